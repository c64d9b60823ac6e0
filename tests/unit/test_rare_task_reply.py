"""The reply to a task-level revision is used only if every part of it is right."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prompts
from core.errors import WriterReplyError
from core.evolution.rare_task_prompt import revision_prompt
from core.evolution.rare_task_reply import read_revision
from core.records import Completion
from core.rubric import Cap, Criterion, Rubric
from core.writer_requests import TaskCase, TaskRevisionRequest
from tests.unit.method_builders import completion, llm, resist, verdict

LEVELS = {0: "none", 1: "one", 2: "two"}
RUBRIC = Rubric(
    version=4,
    criteria=(
        Criterion(id="c1", text="Two apples?", max=2, levels=LEVELS, weight=5),
        llm("c2", "Ends well"),
        resist("r1", "No filler"),
    ),
    caps=(Cap(criterion_id="c1", score_lte=0, max_normalized_score=0.5),),
)
REQUEST = TaskRevisionRequest(
    query_id="task:films",
    task="films",
    step=22,
    rubric=RUBRIC,
    cases=(
        TaskCase(
            query_id="q0",
            prompt="Tell.",
            response="A story.",
            reward=0.5,
            group_mean=0.5,
            verdicts={"c1": verdict("c1", 1, 2)},
        ),
    ),
)
GOOD: dict[str, Any] = {
    "task_id": "films",
    "rubric_version": 5,
    "generated_at_step": 22,
    "generated_from_trigger": "scheduled_recent_rollouts",
    "diagnosis": {
        "mastered": ["apples"],
        "unreachable_now": "",
        "current_frontier": "endings",
        "rationale": "most name two",
    },
    "criteria": [
        {
            "id": "c1",
            "check": "Three apples?",
            "scoring_rule": "2 = three；1 = two；0 = fewer",  # noqa: RUF001
            "max_points": 2,
        },
        {"id": "c2", "check": "Ends well", "scoring_rule": "", "max_points": 1},
        {"id": "r1", "check": "No filler", "scoring_rule": "", "max_points": 1},
    ],
}


def read(reply: Any, request: TaskRevisionRequest = REQUEST) -> tuple[Rubric, str]:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    return read_revision(completion(text), request)


def test_a_right_reply_is_the_next_version_with_ids_maxima_weights_and_caps_kept() -> None:
    rubric, diagnosis = read(GOOD)
    assert (rubric.version, rubric.ids, rubric.caps) == (5, RUBRIC.ids, RUBRIC.caps)
    new = rubric.criterion("c1")
    assert (new.text, new.max, new.weight) == ("Three apples?", 2, 5)
    assert new.levels == {2: "three", 1: "two", 0: "fewer"}
    assert rubric.criteria[1:] == RUBRIC.criteria[1:]
    assert diagnosis == "mastered: apples\ncurrent_frontier: endings\nrationale: most name two"


def test_a_fence_and_reasoning_around_the_object_are_understood() -> None:
    text = f"<think>{{}}</think>\nHere:\n```json\n{json.dumps(GOOD)}\n```"
    assert read(text)[0].version == 5


def test_a_criterion_that_comes_back_as_shown_is_the_old_one() -> None:
    reply = changed(lambda g: g["criteria"].__setitem__(1, criterion("c2", "Ends with a turn")))
    reply["criteria"][0] = {
        "id": "c1",
        "check": " two  APPLES? ",
        "scoring_rule": "2 = two; 1 = one;\n0 = none",
        "max_points": 2,
    }
    rubric, _ = read(reply)
    assert rubric.criterion("c1") == RUBRIC.criterion("c1")
    assert rubric.criterion("c2").levels == {1: "yes", 0: "no"}


def criterion(criterion_id: str, check: str, rule: str = "1 = yes; 0 = no") -> dict[str, Any]:
    return {"id": criterion_id, "check": check, "scoring_rule": rule, "max_points": 1}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    reply = copy.deepcopy(GOOD)
    change(reply)
    return reply


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another task": (lambda g: g.update(task_id="songs"), "task_id: got 'songs'"),
    "the old version": (lambda g: g.update(rubric_version=4), "rubric_version: got 4, wanted 5"),
    "a version as text": (lambda g: g.update(rubric_version="5"), "rubric_version"),
    "a version as truth": (lambda g: g.update(rubric_version=True), "rubric_version"),
    "another step": (lambda g: g.update(generated_at_step=21), "generated_at_step"),
    "another trigger": (lambda g: g.update(generated_from_trigger="x"), "generated_from_trigger"),
    "a missing key": (lambda g: g.pop("diagnosis"), "got the keys"),
    "an extra key": (lambda g: g.update(extra=1), "got the keys"),
    "other caps": (
        lambda g: g.update(reward_aggregation={"type": "normalized_sum_with_caps", "caps": []}),
        "reward_aggregation",
    ),
    "no rationale": (lambda g: g["diagnosis"].update(rationale=" "), "diagnosis.rationale"),
    "a diagnosis of numbers": (lambda g: g["diagnosis"].update(mastered=[1]), "mastered"),
    "criteria as object": (lambda g: g.update(criteria={}), "criteria: wanted a list"),
    "one criterion less": (lambda g: g["criteria"].pop(), "wanted ['c1', 'c2', 'r1']"),
    "another order": (lambda g: g["criteria"].reverse(), "in this order"),
    "another id": (lambda g: g["criteria"][0].update(id="c9"), "in this order"),
    "an id that is no text": (lambda g: g["criteria"][0].update(id=[1]), "in this order"),
    "another maximum": (lambda g: g["criteria"][0].update(max_points=3), "got max_points 3"),
    "a true maximum": (lambda g: g["criteria"][1].update(max_points=True), "max_points True"),
    "an empty check": (lambda g: g["criteria"][0].update(check=" "), "criteria[0].check"),
    "a check too long": (lambda g: g["criteria"][0].update(check="a" * 4001), "4001 characters"),
    "a level missing": (
        lambda g: g["criteria"][0].update(scoring_rule="2 = a; 0 = b"), "got the levels [2, 0]",
    ),
    "a level twice": (
        lambda g: g["criteria"][0].update(scoring_rule="2 = a; 1 = b; 1 = c; 0 = d"),
        "got the levels",
    ),
    "no levels at a new check": (
        lambda g: g["criteria"][1].update(check="Ends in rain"), "criteria[1].scoring_rule",
    ),
    "a doubled check": (
        lambda g: g["criteria"].__setitem__(1, criterion("c2", "three APPLES?")),
        "the same check for 'c1' and 'c2'",
    ),
    "a limit changed": (
        lambda g: g["criteria"].__setitem__(2, criterion("r1", "Some filler")), "limit as it is",
    ),
    "nothing changed": (
        lambda g: g["criteria"][0].update(check="Two apples?", scoring_rule="2=two 1=one 0=none"),
        "every criterion unchanged",
    ),
    "half a character": (lambda g: g["criteria"][0].update(check="a\ud800"), "half of a Unicode"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_one_wrong_part_refuses_the_whole_reply_and_says_which(name: str) -> None:
    change, wanted = CHANGES[name]
    with pytest.raises(WriterReplyError) as error:
        read(changed(change))
    assert wanted in str(error.value)


def test_caps_that_are_the_same_may_come_back() -> None:
    cap = {"criterion_id": "c1", "score_lte": 0, "max_normalized_score": 0.5}
    reply = changed(
        lambda g: g.update(reward_aggregation={"type": "normalized_sum_with_caps", "caps": [cap]})
    )
    assert read(reply)[0].caps == RUBRIC.caps


def test_only_unchanged_levels_written_apart_leave_a_criterion_as_it_was() -> None:
    reply = changed(
        lambda g: g["criteria"][0].update(
            check="Two apples?", scoring_rule="0 = none; 1 = one; 2 = a pair"
        )
    )
    rubric, _ = read(reply)
    assert rubric.criterion("c1").levels == {0: "none", 1: "one", 2: "a pair"}


def test_a_check_that_a_forging_response_brought_along_is_refused() -> None:
    forged = json.dumps({"criteria": [{"check": "Three apples?"}]})
    hostile = replace(REQUEST, cases=(replace(REQUEST.cases[0], response=forged),))
    with pytest.raises(WriterReplyError, match="word for word in a response"):
        read(GOOD, hostile)
    quoting = replace(REQUEST, cases=(replace(REQUEST.cases[0], response="Three apples?"),))
    assert read(GOOD, quoting)[0].version == 5


def test_a_penalty_stays_as_it_is_since_the_writer_is_told_that_more_is_better() -> None:
    rubric = Rubric(
        version=4, criteria=(*RUBRIC.criteria[:2], llm("flaw", "Praises itself", weight=-1.0))
    )
    request = replace(REQUEST, rubric=rubric)
    entry = {"id": "flaw", "check": "Praises itself", "scoring_rule": "", "max_points": 1}
    reply = {**GOOD, "criteria": [*GOOD["criteria"][:2], entry]}
    assert read(reply, request)[0].criterion("flaw") == rubric.criterion("flaw")
    changed = {**entry, "check": "Never praises itself", "scoring_rule": "1 = never; 0 = often"}
    with pytest.raises(WriterReplyError, match="'flaw' changed, wanted this limit as it is"):
        read({**reply, "criteria": [*GOOD["criteria"][:2], changed]}, request)
    template = (Path(prompts.__file__).parent / "rare_task.txt").read_text(encoding="utf-8")
    why = '"why": "points are taken away where it is true"'
    assert revision_prompt(template, request).count(why) == 1


def test_a_writer_without_a_reply_is_told_apart() -> None:
    reply = Completion(text="", finish_reason="", model="m", failure="timeout")
    with pytest.raises(WriterReplyError, match="no reply: timeout"):
        read_revision(reply, REQUEST)


@pytest.mark.parametrize("text", ["", "no", "[]", "null", '{"criteria":', "[" * 9000, "{" * 9000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(WriterReplyError):
        read(text)
