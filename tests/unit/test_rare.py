"""RARE: saturation, checked replacements, and mixed rewards on the same rollouts."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.config import RewardConfig
from core.config_evolution import RareConfig
from core.errors import WriterReplyError
from core.evolution.rare import (
    Replacements,
    apply_replacements,
    replacement_request,
    rescore_request,
    saturated_ids,
)
from core.evolution.rare_reply import Replacement
from core.records import GradedGroup, RescoreReply
from core.reward import rollout_reward
from core.rubric import Cap, Criterion, Rubric
from tests.unit.method_builders import graded_group, llm, resist, verdict

C1 = llm("c1", "Names an apple", max=2, weight=3)
C2 = llm("c2", "Names a river", max=2)
C3 = llm("c3", "Ends well", max=1)
LIMIT = resist("r1", "No filler")
RUBRIC = Rubric(version=2, criteria=(C1, C2, C3, LIMIT))
PLAIN = RewardConfig()


def group_of(*rows: Sequence[float | None], rubric: Rubric = RUBRIC) -> GradedGroup:
    scores = [dict(zip(rubric.ids, row, strict=True)) for row in rows]
    responses = [f'Rollout {i} says "river of apples" today.' for i in range(len(rows))]
    return graded_group(rubric, scores, responses=responses)


def replacement(
    old: Criterion, text: str = "No sentence is said twice", difference: str = "d"
) -> Replacement:
    levels = {level: f"level {level}" for level in range(old.max + 1)}
    new = Criterion(id=old.id, text=text, max=old.max, weight=old.weight, levels=levels)
    return Replacement(
        criterion=new,
        polarity="negative",
        difference=difference,
        learning_direction="Say it once.",
        nonredundancy="Nothing else checks it.",
        best=(0,),
        weaker=(1,),
    )


def rescored(items: Replacements, *rows: Sequence[float | None]) -> RescoreReply:
    return RescoreReply(
        verdicts=tuple(
            tuple(
                verdict(r.criterion.id, s, r.criterion.max)
                for r, s in zip(items.items, row, strict=True)
            )
            for row in rows
        ),
        judge="test-judge",
    )


def rewards(group: GradedGroup) -> list[float]:
    values = [rollout_reward(group.rubric, r.verdicts, PLAIN).value for r in group.rollouts]
    assert all(v is not None for v in values)
    return [v for v in values if v is not None]


# ------------------------------------------------------------------ saturation
def test_a_criterion_is_saturated_when_all_rollouts_have_full_score() -> None:
    group = group_of((2, 2, 0, 1), (2, 1, 0, 1), (2, 2, 0, 1))
    assert saturated_ids(RUBRIC, group.rollouts) == ("c1",)


def test_nothing_is_saturated_when_any_rollout_is_ungraded() -> None:
    group = group_of((2, 2, 1, 1), (2, 2, None, 1))
    assert saturated_ids(RUBRIC, group.rollouts) == ()
    assert replacement_request(group, RareConfig()) is None


def test_a_missing_verdict_is_ungraded_too() -> None:
    group = group_of((2, 2, 1, 1), (2, 2, 1, 1))
    verdicts = {i: v for i, v in group.rollouts[1].verdicts.items() if i != "c3"}
    rollouts = (group.rollouts[0], replace(group.rollouts[1], verdicts=verdicts))
    assert saturated_ids(RUBRIC, rollouts) == ()


def test_all_zero_criteria_and_satisfied_resist_criteria_are_never_saturated() -> None:
    assert saturated_ids(RUBRIC, group_of((0, 0, 0, 1), (0, 0, 0, 1)).rollouts) == ()


def test_a_saturated_penalty_is_not_replaced() -> None:
    rubric = Rubric(criteria=(llm("good"), llm("bad", weight=-1)))
    assert saturated_ids(rubric, group_of((0, 1), (0, 1), rubric=rubric).rollouts) == ()


@pytest.mark.parametrize(("budget", "wanted"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_exactly_the_smaller_of_budget_and_saturated_is_asked_for(budget: int, wanted: int) -> None:
    request = replacement_request(group_of((2, 2, 1, 1), (2, 2, 1, 0)), RareConfig(budget=budget))
    assert request is not None
    assert request.saturated_ids == ("c1", "c2", "c3")
    assert request.num_updates == wanted
    assert len(request.responses) == len(request.verdicts) == 2


def test_no_pattern_of_scores_ever_saturates_a_resist_criterion() -> None:
    rubric = Rubric(criteria=(llm("c1"), resist("r1"), resist("r2")))
    patterns = list(itertools.product((0, 1), repeat=3))
    for first, second in itertools.product(patterns, patterns):
        ids = saturated_ids(rubric, group_of(first, second, rubric=rubric).rollouts)
        assert set(ids) <= {"c1"}


# ------------------------------------------------------------------ applying
def test_the_same_rollouts_are_rescored_by_the_replacements_alone() -> None:
    group = group_of((2, 2, 1, 1), (2, 1, 0, 1))
    request = rescore_request(group, Replacements(items=(replacement(C1),)))
    assert request.responses == tuple(r.rollout.response for r in group.rollouts)
    assert [c.id for c in request.criteria] == ["c1"]


def test_rewards_mix_new_scores_for_the_replaced_with_old_ones_for_the_rest() -> None:
    group = group_of((2, 2, 1, 1), (2, 1, 0, 1))
    assert rewards(group) == pytest.approx([6 / 6, 4 / 6])
    items = Replacements(items=(replacement(C1),))
    replaced = apply_replacements(group, items, rescored(items, (0,), (1,)))
    assert rewards(replaced.group) == pytest.approx([4 / 6, 3 / 6])
    assert replaced.group.rollouts[1].verdicts["c2"] is group.rollouts[1].verdicts["c2"]
    assert rewards(group) == pytest.approx([6 / 6, 4 / 6])


def test_count_ids_maxima_weights_and_caps_stay_and_the_version_goes_up_by_one() -> None:
    cap = Cap(criterion_id="c1", score_lte=0, max_normalized_score=0.3)
    rubric = RUBRIC.model_copy(update={"caps": (cap,)})
    group = group_of((2, 2, 1, 1), (2, 2, 1, 1), rubric=rubric)
    items = Replacements(items=(replacement(C1), replacement(C3, "Ends on an image")))
    replaced = apply_replacements(group, items, rescored(items, (2, 1), (0, 0)))
    new = replaced.evolution.rubric
    assert new == replaced.group.rubric
    assert new.version == 3
    assert new.ids == rubric.ids
    assert [c.max for c in new.criteria] == [c.max for c in rubric.criteria]
    assert [c.weight for c in new.criteria] == [c.weight for c in rubric.criteria]
    assert new.caps == (cap,)
    assert rewards(replaced.group) == pytest.approx([1.0, 0.3])  # (0+2+0+1)/6 = 0.5, capped


def test_each_replacement_is_an_edit_with_evidence_that_stands_in_the_rollouts() -> None:
    group = group_of((2, 2, 1, 1), (2, 1, 0, 1))
    difference = 'R0 says "river of apples" once, R1 says "never".'
    items = Replacements(items=(replacement(C1, difference=difference),))
    (edit,) = apply_replacements(group, items, rescored(items, (2,), (0,))).evolution.edits
    assert (edit.method, edit.branch, edit.status) == ("rare", "replacement", "accepted")
    assert (edit.old, edit.new) == (C1, items.items[0].criterion)
    assert edit.evidence.rollouts == (0, 1)
    assert edit.evidence.quotes == ("river of apples",)
    assert difference in edit.evidence.analysis


@pytest.mark.parametrize(
    "reply",
    [
        RescoreReply(verdicts=(), judge="j"),
        RescoreReply(verdicts=((verdict("c1", 1, 2),),), judge="j"),
        RescoreReply(verdicts=((verdict("c1", 1, 2),), ()), judge="j"),
        RescoreReply(verdicts=((verdict("c1", 1, 2),), (verdict("c1", None, 2),)), judge="j"),
        RescoreReply(verdicts=((verdict("c1", 1, 2),), (verdict("c2", 1, 2),)), judge="j"),
        RescoreReply(verdicts=((verdict("c1", 1, 2),), (verdict("c1", 1, 1),)), judge="j"),
    ],
)
def test_an_incomplete_rescoring_changes_nothing(reply: RescoreReply) -> None:
    group = group_of((2, 2, 1, 1), (2, 1, 0, 1))
    with pytest.raises(WriterReplyError, match="wanted"):
        apply_replacements(group, Replacements(items=(replacement(C1),)), reply)


def test_a_replacement_moves_a_reward_by_at_most_the_replaced_share_of_the_maxima() -> None:
    random_ = random.Random(3)
    for _ in range(300):
        maxima = [random_.randint(1, 4) for _ in range(random_.randint(2, 6))]
        rubric = Rubric(criteria=tuple(llm(f"c{i}", max=m) for i, m in enumerate(maxima)))
        num_full = random_.randint(1, len(maxima))
        rows = [
            [m if i < num_full else random_.randint(0, m) for i, m in enumerate(maxima)]
            for _ in range(4)
        ]
        group = group_of(*rows, rubric=rubric)
        saturated = saturated_ids(rubric, group.rollouts)
        chosen = random_.sample(saturated, random_.randint(1, len(saturated)))
        items = Replacements(items=tuple(replacement(rubric.criterion(i)) for i in chosen))
        fresh = [[random_.randint(0, r.criterion.max) for r in items.items] for _ in group.rollouts]
        replaced = apply_replacements(group, items, rescored(items, *fresh))
        share = sum(r.criterion.max for r in items.items) / sum(maxima)
        for old, new in zip(rewards(group), rewards(replaced.group), strict=True):
            assert 0.0 <= new <= 1.0
            assert abs(new - old) <= share + 1e-12
