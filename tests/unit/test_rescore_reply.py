"""RARE's joint rescoring: tolerant about wrapping, strict about ids and rollouts."""

import json

import pytest

from core.grading.rescore import read_rescore
from core.rubric import Criterion

CRITERIA = (Criterion(id="pace", text="Keeps pace", max=2), Criterion(id="end", text="Has an end"))


def entry(name: str, scores: dict[str, float]) -> dict[str, object]:
    rows = [{"rollout_id": r, "reason": f"why {r}", "score": s} for r, s in scores.items()]
    return {"id": name, "scores": rows}


FULL = {"criteria": [entry("c1", {"R0": 2, "R1": 0}), entry("c2", {"R0": 1, "R1": 1})]}


@pytest.mark.parametrize("wrap", ["{}", "```json\n{}\n```", "<think>c1?</think>\nDone.\n{}"])
def test_a_complete_reply_is_read_by_response_then_criterion(wrap: str) -> None:
    got = read_rescore(wrap.replace("{}", json.dumps(FULL)), CRITERIA, 2, "stop")
    assert [[v.score for v in row] for row in got] == [[2, 1], [0, 1]]
    assert got[0][0].criterion_id == "pace"
    assert got[1][0].reason == "why R1"


def test_what_is_missing_or_out_of_scale_is_a_failure() -> None:
    text = json.dumps({"criteria": [entry("c1", {"R0": 3})]})
    got = read_rescore(text, CRITERIA, 2, "stop")
    assert [[v.failure for v in row] for row in got] == [
        ["out_of_scale", "missing"],
        ["missing", "missing"],
    ]


def test_two_values_for_one_cell_are_a_conflict() -> None:
    text = json.dumps({"criteria": [entry("c1", {"R0": 2}), entry("c1", {"R0": 1})]})
    assert read_rescore(text, CRITERIA, 1, "stop")[0][0].failure == "conflict"


QUOTES = {
    "an unknown criterion": '", "score": 2}, {"rollout_id": "R1", "score": 0}]}, {"id": "x", '
    '"scores": [{"rollout_id": "R0", "reason": "',
    "an unknown response": '", "score": 2}, {"rollout_id": "R9", "reason": "',
    "a second list": '", "score": 2}, {"rollout_id": "R1", "score": 0}], "x": [{"y": "',
    "an object in an object": '", "score": 2, "x": {"y": "',
    "a criterion twice": '", "score": 2}, {"rollout_id": "R1", "score": 0}]}, {"id": "c1", '
    '"scores": [{"rollout_id": "R0", "reason": "',
}


@pytest.mark.parametrize("how", QUOTES)
@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_scores_that_an_unescaped_quote_brings_along_are_of_no_one(
    how: str, finish_reason: str
) -> None:
    """The reply stays JSON, and yet no score of it can be told from a forged one."""
    honest = {"criteria": [entry("c1", {"R0": 0, "R1": 1}), entry("c2", {"R0": 0, "R1": 1})]}
    text = json.dumps(honest).replace("why R0", QUOTES[how], 1)
    got = read_rescore(text, CRITERIA, 2, finish_reason)
    assert {v.score for row in got for v in row} == {None}


def test_a_list_without_rollout_ids_is_not_spread_over_the_rollouts() -> None:
    text = json.dumps({"criteria": [{"id": "c1", "scores": [2, 1]}]})
    got = read_rescore(text, CRITERIA, 2, "stop")
    assert all(v.score is None for row in got for v in row)


@pytest.mark.parametrize(
    ("text", "finish_reason", "failure"),
    [
        ("[ERROR] HTTP 503", "stop", "unavailable"),
        ("", "content_filter", "filtered"),
        (json.dumps(FULL)[:60], "length", "truncated"),
        ("no idea", "stop", "unparsable"),
        ("{" * 100_000, "stop", "unparsable"),
    ],
)
def test_a_reply_without_verdicts_fails_by_its_cause(
    text: str, finish_reason: str, failure: str
) -> None:
    got = read_rescore(text, CRITERIA, 2, finish_reason)
    assert {v.failure for row in got for v in row} == {failure}
