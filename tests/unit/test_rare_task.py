"""RARE at task level: when, from which rollouts, and what a candidate must pass."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import prompts
from core.config import RewardConfig
from core.config_evolution import RareTaskConfig
from core.evolution.rare_task import (
    GateResult,
    Representative,
    evidence_seed,
    fitting_request,
    gate,
    num_tokens,
    representative,
    revision_steps,
    task_evidence,
    task_evolution,
)
from core.evolution.rare_task_prompt import revision_prompt, shown_evidence
from core.query import Query
from core.records import Draw, GradedGroup, GradedRollout
from core.rubric import Criterion, Rubric
from core.writer_requests import TaskCase, TaskRevisionRequest
from tests.unit.method_builders import graded_group, llm, query, resist, rollout, verdict

TEMPLATE = (Path(prompts.__file__).parent / "rare_task.txt").read_text(encoding="utf-8")
RUBRIC = Rubric(version=3, criteria=(llm("a", max=2), llm("b", max=2)))
REWARD = RewardConfig()
TASK = RareTaskConfig(min_groups=2, max_groups=4)


def group_of(
    query_id: str,
    totals: Sequence[int | None],
    *,
    step: int = 1,
    visit: int = 0,
    rubric: Rubric = RUBRIC,
    texts: Sequence[str] | None = None,
) -> GradedGroup:
    """A group whose rollouts have these sums of scores (0..4); None has no score on ``b``."""
    base = query(rubric)
    own = Query(id=query_id, messages=base.messages, rubric=rubric, task="films")
    members: list[GradedRollout] = []
    for i, total in enumerate(totals):
        text = texts[i] if texts else f"{query_id} answer {i}"
        first = min(total, 2) if total is not None else 1
        second = total - first if total is not None else None
        members.append(
            GradedRollout(
                rollout=rollout(i, text),
                verdicts={"a": verdict("a", first, 2), "b": verdict("b", second, 2)},
            )
        )
    draw = Draw(query_id=query_id, step=step, position=0, visit=visit)
    return GradedGroup(draw=draw, query=own, rubric=rubric, rollouts=tuple(members), judge="j")


# ------------------------------------------------------------------ schedule
@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (132, (22, 44, 66, 88, 110)),
        (108, (18, 36, 54, 72, 90)),
        (94, (16, 31, 47, 63, 78)),
    ],
)
def test_five_revisions_stand_where_the_released_runs_have_them(
    steps: int, wanted: tuple[int, ...]
) -> None:
    assert revision_steps(steps, 5) == wanted


def test_halves_are_rounded_up_and_nothing_is_revised_after_the_last_step() -> None:
    assert revision_steps(5, 1) == (3,)  # 2.5; rounding half to even would give 2
    assert revision_steps(2, 1) == (1,)
    assert revision_steps(3, 5) == (1, 2)  # 0.5, 1, 1.5, 2, 2.5
    assert revision_steps(1, 1) == ()


# ------------------------------------------------------------------ representatives
def test_the_representative_is_the_graded_rollout_nearest_the_median() -> None:
    found = representative(group_of("q", [4, 0, 3, None, 4]), REWARD)
    assert found is not None
    # graded rewards 1, 0, 0.75, 1: the median is 0.875, as near to 1 as to 0.75
    near = [0, 2, 4]
    texts = {i: hashlib.sha256(f"q answer {i}".encode()).hexdigest() for i in near}
    assert found.member.rollout.index == min(near, key=lambda i: texts[i])
    assert found.group_mean == pytest.approx((1 + 0 + 0.75 + 1) / 4)
    assert found.num_graded == 4


def test_an_odd_number_of_graded_rollouts_has_its_median_among_them() -> None:
    found = representative(group_of("q", [4, 1, 2]), REWARD)
    assert found is not None
    assert (found.member.rollout.index, found.reward) == (2, 0.5)


def test_a_group_needs_half_of_its_rollouts_graded_rounded_up() -> None:
    assert representative(group_of("q", [1, None]), REWARD) is not None
    assert representative(group_of("q", [1, None, None]), REWARD) is None
    assert representative(group_of("q", [1, 2, None]), REWARD) is not None
    assert representative(group_of("q", [None, None]), REWARD) is None


def test_a_case_shows_the_answer_without_the_reasoning() -> None:
    group = group_of("q", [1], texts=["<think>a plan</think>\nthe answer"])
    found = representative(group, REWARD)
    assert found is not None
    assert found.case.response == "the answer"
    assert found.case.prompt == "Write about apples."
    assert found.case.verdicts["a"].score == 1


# ------------------------------------------------------------------ evidence
def evidence_ids(groups: Sequence[GradedGroup], task: RareTaskConfig = TASK) -> list[str]:
    found = task_evidence(groups, RUBRIC, task, REWARD, evidence_seed("films", 9, 0))
    assert not found.reason
    return [r.group.query.id for r in found.representatives]


def test_a_query_is_evidence_once_with_more_graded_rollouts_before_the_later_step() -> None:
    early_whole = group_of("q1", [4, 0], step=1)
    late_half = group_of("q1", [4, None], step=2, visit=1)
    early, late = group_of("q2", [0, 0], step=1), group_of("q2", [4, 4], step=3, visit=1)
    found = task_evidence([early_whole, late_half, early, late], RUBRIC, TASK, REWARD, "s")
    steps = {r.group.query.id: r.group.draw.step for r in found.representatives}
    assert steps == {"q1": 1, "q2": 3}


def test_groups_under_another_version_are_no_evidence() -> None:
    older = Rubric(version=2, criteria=RUBRIC.criteria)
    found = task_evidence(
        [group_of("q1", [1, 2]), group_of("q2", [1, 2], rubric=older)], RUBRIC, TASK, REWARD, "s"
    )
    assert found.representatives == ()
    assert "got 1 queries" in found.reason
    assert "wanted 2" in found.reason


def test_cases_stand_in_the_order_of_their_group_means() -> None:
    groups = [group_of("q1", [4, 2]), group_of("q2", [0, 0]), group_of("q3", [2, 2])]
    assert evidence_ids(groups) == ["q2", "q3", "q1"]


def many(number: int) -> list[GradedGroup]:
    """Groups ``q00..`` of rising mean; with few distinct means the id decides."""
    return [group_of(f"q{i:02d}", [i * 4 // number] * 2) for i in range(number)]


def test_too_many_groups_are_drawn_by_thirds_as_five_six_and_five() -> None:
    task = RareTaskConfig()
    ids = evidence_ids(many(24), task)
    assert len(ids) == 16
    places = [int(i[1:]) for i in ids]
    assert [sum(lo <= p < lo + 8 for p in places) for lo in (0, 8, 16)] == [5, 6, 5]
    # the draw by hand: the first 16 hex digits of the SHA-256 of "films:9:0" seed it
    digest = hashlib.sha256(b"films:9:0").hexdigest()[:16]
    rng = random.Random(int(digest, 16))
    wanted = [
        p for lo, n in ((0, 5), (8, 6), (16, 5)) for p in sorted(rng.sample(range(lo, lo + 8), n))
    ]
    assert places == wanted
    assert evidence_ids(list(reversed(many(24))), task) == ids


@pytest.mark.parametrize("most", [12, 13, 14, 15, 16, 2, 3])
@pytest.mark.parametrize("number", [17, 18, 19, 20, 31, 96])
def test_any_number_of_groups_gives_exactly_the_most_that_are_wanted(
    most: int, number: int
) -> None:
    task = RareTaskConfig(min_groups=2, max_groups=most)
    ids = evidence_ids(many(number), task)
    assert len(set(ids)) == most == len(ids)


def test_sixteen_groups_are_all_evidence() -> None:
    assert len(evidence_ids(many(16), RareTaskConfig())) == 16
    few = task_evidence(many(11), RUBRIC, RareTaskConfig(), REWARD, "s")
    assert few.reason


# ------------------------------------------------------------------ the prompt's size
def case(name: str, response: str) -> TaskCase:
    verdicts = {"a": verdict("a", 1, 2), "b": verdict("b", 0, 2)}
    return TaskCase(
        query_id=name, prompt="Tell.", response=response, reward=0.25, group_mean=0.5,
        verdicts=verdicts,
    )  # fmt: skip


def request_of(cases: Sequence[TaskCase], rubric: Rubric = RUBRIC) -> TaskRevisionRequest:
    return TaskRevisionRequest(
        query_id="task:films", task="films", step=9, rubric=rubric, cases=tuple(cases)
    )


def test_tokens_are_estimated_by_script() -> None:
    assert num_tokens("abcdefgh") == 2
    assert num_tokens("电影。") == 3
    assert num_tokens("电abcd") == 2


def test_the_middle_case_goes_first_when_the_prompt_is_too_long() -> None:
    cases = [case(f"q{i}", "电" * 30_000) for i in range(5)]
    fitting = fitting_request(request_of(cases), shown_evidence, min_groups=3)
    assert fitting is not None
    assert [c.query_id for c in fitting.cases] == ["q0", "q1", "q4"]  # q2, then q3
    assert fitting_request(request_of(cases), shown_evidence, min_groups=4) is None


def test_spaced_scripts_have_four_times_the_room() -> None:
    cases = [case(f"q{i}", "a" * 200_000) for i in range(3)]
    fitting = fitting_request(request_of(cases), shown_evidence, min_groups=2)
    assert fitting is None  # two of them are 100,000 tokens
    shorter = [case(f"q{i}", "a" * 190_000) for i in range(3)]
    fitting = fitting_request(request_of(shorter), shown_evidence, min_groups=2)
    assert fitting is not None
    assert [c.query_id for c in fitting.cases] == ["q0", "q2"]


# ------------------------------------------------------------------ gate
def reps(*rewards: float) -> list[Representative]:
    return [
        Representative(
            group=group_of(f"q{i}", [2, 2]),
            member=group_of(f"q{i}", [2, 2]).rollouts[0],
            reward=reward,
            group_mean=reward,
            num_graded=2,
        )
        for i, reward in enumerate(rewards)
    ]


def rows(*totals: int | None) -> list[Mapping[str, object]]:
    return [group_of("q", [t]).rollouts[0].verdicts for t in totals]  # type: ignore[misc]


def gated(
    old: Sequence[float], new: Sequence[int | None], task: RareTaskConfig = TASK
) -> GateResult:
    return gate(reps(*old), rows(*new), RUBRIC, task, REWARD)  # type: ignore[arg-type]


def test_a_candidate_that_discriminates_and_keeps_the_scale_passes() -> None:
    result = gated([0.5, 0.5, 0.75], [1, 2, 3])
    assert result.refusal == ""
    # 1.75 / 3 before, (0.25 + 0.5 + 0.75) / 3 after
    assert "3 representatives, 3 distinct new rewards" in result.reason
    assert "0.5833 before and 0.5000 after" in result.reason


def test_too_few_valid_representatives_refuse() -> None:
    result = gated([0.5, 0.5, 0.5], [1, None, None])
    assert result.refusal == "valid"
    assert "got scores of 1 of 3 representatives, wanted 2" in result.reason


def test_equal_new_rewards_refuse() -> None:
    assert gated([0.5, 0.5], [2, 2]).refusal == "distinct"
    assert gated([0.5, 0.5], [2, 3]).refusal == ""


def test_a_shift_of_the_mean_over_the_limit_refuses_with_the_numbers() -> None:
    at_limit = RareTaskConfig(min_groups=2, max_mean_shift=0.375)
    assert gated([1.0, 1.0], [2, 3], at_limit).refusal == ""  # 1 to 0.625: exactly the limit
    over = gated([1.0, 1.0], [2, 3])
    assert over.refusal == "shift"
    assert "mean 1.0000 before and 0.6250 after; wanted a shift of at most 0.35" in over.reason
    up = gated([0.0, 0.0], [1, 2])
    assert up.refusal == "shift"


def test_old_and_new_mean_are_over_the_same_representatives() -> None:
    """Over all old rewards the shift would be 0.5; the one without a new score is left out."""
    assert gated([0.5, 0.75, 0.0, 0.0], [2, 3, None, None]).refusal == ""


# ------------------------------------------------------------------ edits
def test_one_edit_stands_for_each_changed_criterion() -> None:
    changed = RUBRIC.criteria[1].model_copy(update={"text": "stronger"})
    candidate = RUBRIC.with_criteria((RUBRIC.criteria[0], changed))
    accepted = task_evolution(RUBRIC, candidate, "why", "numbers", "accepted")
    assert accepted.rubric == candidate
    (edit,) = accepted.edits
    assert (edit.branch, edit.status, edit.old, edit.new) == (
        "task", "accepted", RUBRIC.criteria[1], changed,
    )  # fmt: skip
    assert edit.evidence.analysis == "why"
    refused = task_evolution(RUBRIC, candidate, "why", "numbers", "refused")
    assert refused.rubric == RUBRIC
    assert [e.reason for e in refused.edits] == ["numbers"]


# ------------------------------------------------------------------ prompt
def test_the_prompt_shows_cases_with_scores_and_says_what_must_come_back() -> None:
    rubric = Rubric(
        version=1,
        criteria=(
            Criterion(id="a", text="First?", max=1, levels={0: "no", 1: "yes"}),
            resist("limit", "No filler"),
        ),
    )
    shown = case("q0", "An answer with {{rubric}} and </case1_answer>")
    prompt = revision_prompt(TEMPLATE, request_of([shown], rubric))
    for text in (
        '"scoring_rule": "1 = yes; 0 = no"',
        '"rubric_version": 2, "generated_at_step": 9',
        '"task_id": "films"',
        "scheduled_recent_rollouts",
        "An answer with {{rubric}} and </case1_answer>",
        '"group_mean": 0.5',
        "Criteria that must stay as they are",
        '"id": "limit",\n  "why": "a hard limit"',
    ):
        assert text in prompt
    assert "Your last reply was refused" not in prompt
    again = revision_prompt(TEMPLATE, replace(request_of([shown]), error="got nothing"))
    assert "got nothing" in again
    assert "must stay as they are" not in again


def test_a_graded_group_of_the_other_tests_has_a_representative_too() -> None:
    group = graded_group(RUBRIC, [{"a": 2.0, "b": 1.0}, {"a": 0.0, "b": None}])
    found = representative(group, REWARD)
    assert found is not None
    assert found.reward == 0.75
