"""The papers' case studies, told from rollouts and anchor to accepted criterion and new rewards.

Each case is a file in tests/golden/cases: query, rubric, anchor, rollouts with the judge's replies
as they came, the writer's reply, the judge's replies on the changed criterion, and the numbers that
a person computed by hand. The stories are the papers' (CARE section 4.4, RARE section 5.3), the
words are ours. The way is the one of a run: verdicts, rewards, contrast or replacement, edit,
rewards again.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from core.advantage import score_group
from core.config import AdvantageConfig, RewardConfig
from core.config_evolution import CareConfig, RareConfig
from core.evolution.care import contrast_request, read_contrast
from core.evolution.rare import (
    apply_replacements,
    read_replacements,
    replacement_request,
    rescore_request,
    saturated_ids,
)
from core.grading.reply import read_verdicts
from core.grading.rescore import read_rescore
from core.query import Anchor, Message, Query
from core.records import Draw, GradedGroup, GradedRollout, RescoreReply, RubricEdit, ScoredGroup
from core.rubric import Criterion, Rubric
from tests.unit.method_builders import completion, rollout

FOLDER = Path(__file__).parents[1] / "golden" / "cases"
REWARD, ADVANTAGE, CARE = RewardConfig(), AdvantageConfig(), CareConfig()

Case = dict[str, Any]


def load(name: str) -> Case:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def graded(case: Case) -> GradedGroup:
    """The group as the judge's recorded replies grade it."""
    rubric = Rubric(criteria=tuple(Criterion.model_validate(row) for row in case["rubric"]))
    members: list[GradedRollout] = []
    for index, row in enumerate(case["rollouts"]):
        verdicts = read_verdicts(row["judge"], rubric.criteria, "stop", template=case["template"])
        members.append(
            GradedRollout(
                rollout=rollout(index, row["response"]),
                verdicts={v.criterion_id: v for v in verdicts},
            )
        )
    query = Query(
        id="q1",
        messages=(Message(role="user", content=case["prompt"]),),
        rubric=rubric,
        anchor=Anchor(response=case["anchor"]) if case["anchor"] else None,
    )
    draw = Draw(query_id="q1", step=1, position=0, visit=0)
    return GradedGroup(draw=draw, query=query, rubric=rubric, rollouts=tuple(members), judge="j")


def assert_rewards(scored: ScoredGroup, wanted: Case) -> None:
    """Rewards as computed by hand, and who is pushed up and who down."""
    rewards = [r.reward for r in scored.rollouts]
    assert rewards == pytest.approx([float(Fraction(text)) for text in wanted["rewards"]])
    signs = "".join("+" if r.advantage > 0 else "-" for r in scored.rollouts)
    assert signs == wanted["signs"]
    assert sum(r.advantage for r in scored.rollouts) == pytest.approx(0.0, abs=1e-9)
    assert [i for i, r in enumerate(scored.rollouts) if r.is_vetoed] == wanted.get("vetoed", [])


def assert_edit(edits: Sequence[RubricEdit], group: GradedGroup, wanted: Case) -> Criterion:
    """One accepted edit, whose quotes stand in the rollouts it names. Returns the new criterion."""
    (edit,) = edits
    assert edit.new is not None
    assert (edit.status, edit.branch) == (wanted["status"], wanted["branch"])
    assert (edit.new.id, edit.new.kind, edit.new.text) == (
        wanted["id"],
        wanted["kind"],
        wanted["text"],
    )
    assert (edit.old.text if edit.old else None) == wanted["old"]
    assert set(edit.evidence.quotes) >= set(wanted["quotes"])
    named = [group.rollouts[i].rollout.response for i in edit.evidence.rollouts]
    assert all(any(quote in text for text in named) for quote in edit.evidence.quotes)
    return edit.new


def run_care(name: str) -> None:
    """One contrast of the top rollout with the anchor, and the next visit to the same rollouts."""
    case = load(name)
    group = graded(case)
    assert_rewards(score_group(group, REWARD, ADVANTAGE), case["before"])
    request = contrast_request(group, CARE, REWARD)
    assert request is not None
    assert request.response == case["rollouts"][case["before"]["top"]]["response"]
    assert [c.id for c in request.satisfied] == case["before"]["satisfied"]
    evolution = read_contrast(completion(case["writer"]), request, group, CARE, REWARD)
    changed = assert_edit(evolution.edits, group, case["edit"])
    old, new = group.rubric, evolution.rubric
    assert new.version == 1
    assert [c for c in new.criteria if c != changed] == [
        c for c in old.criteria if c.id != changed.id
    ]
    members = [
        replace(
            member,
            verdicts={
                **member.verdicts,
                changed.id: read_verdicts(text, (changed,), "stop", template=case["template"])[0],
            },
        )
        for member, text in zip(group.rollouts, case["judge_after"], strict=True)
    ]
    later = replace(group, rubric=new, rollouts=tuple(members))
    assert_rewards(score_group(later, REWARD, ADVANTAGE), case["after"])


def test_word_sense_a_program_is_no_script_for_a_broadcast() -> None:
    """Python code passes as "a script": 3 of 3. With the new veto it has 0; the full honest script
    keeps 4 of 4, the one without team names rises from 2/3 to 3/4 and is now above the mean.
    """
    run_care("word_sense")


def test_language_substitution_an_arabic_question_is_answered_in_arabic() -> None:
    """Two answers of mixed scripts lead with 3 of 3 and end with 0; the three in Arabic, all below
    the mean of 11/15 before, are all above the mean of 2/5 after.
    """
    run_care("language_substitution")


def test_lack_of_specific_detail_a_coarse_criterion_is_sharpened() -> None:
    """ "Specific studies" passed without one. The criterion keeps its id and asks for two named
    experiments with findings: the vague answer falls from 1 to 2/3, below the one that names them.
    """
    run_care("lack_of_specific_detail")


def test_causal_coherence_a_criterion_that_all_satisfy_is_replaced() -> None:
    """Two of three criteria are full on all eight scripts. "There is a reveal" becomes "does it
    leave events unexplained?", worth 2 of 7 as before. The script with the explained clues stays at
    6/7 and turns from below to above the mean; the one whose ghost was a fear loses both points.
    """
    case = load("causal_coherence")
    group = graded(case)
    assert_rewards(score_group(group, REWARD, ADVANTAGE), case["before"])
    assert list(saturated_ids(group.rubric, group.rollouts)) == case["before"]["saturated"]
    request = replacement_request(group, RareConfig(budget=case["budget"]))
    assert request is not None
    assert request.num_updates == 1
    replacements = read_replacements(completion(case["writer"]), request)
    asked = rescore_request(group, replacements)
    assert [c.id for c in asked.criteria] == ["reveal"]
    assert asked.responses == tuple(row["response"] for row in case["rollouts"])
    scores = read_rescore(case["rescore"], asked.criteria, len(asked.responses), "stop")
    replaced = apply_replacements(group, replacements, RescoreReply(verdicts=scores, judge="j"))
    changed = assert_edit(replaced.evolution.edits, group, case["edit"])
    assert {str(k): v for k, v in (changed.levels or {}).items()} == case["edit"]["levels"]
    assert replaced.group.rubric.version == 1
    assert replaced.group.rubric.total_max == group.rubric.total_max == 7
    assert_rewards(score_group(replaced.group, REWARD, ADVANTAGE), case["after"])
    kept = [i for i in group.rubric.ids if i != "reveal"]
    for before, after in zip(group.rollouts, replaced.group.rollouts, strict=True):
        assert [after.verdicts[i] for i in kept] == [before.verdicts[i] for i in kept]


def test_every_recorded_case_is_told() -> None:
    told = {"word_sense", "language_substitution", "lack_of_specific_detail", "causal_coherence"}
    assert {path.stem for path in FOLDER.glob("*.json")} == told
