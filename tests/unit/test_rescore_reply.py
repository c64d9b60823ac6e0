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
    text = json.dumps({"criteria": [entry("c1", {"R0": 3, "R2": 1})]})
    got = read_rescore(text, CRITERIA, 2, "stop")
    assert [[v.failure for v in row] for row in got] == [
        ["out_of_scale", "missing"],
        ["missing", "missing"],
    ]


def test_two_values_for_one_cell_are_a_conflict() -> None:
    text = json.dumps({"criteria": [entry("c1", {"R0": 2}), entry("c1", {"R0": 1})]})
    assert read_rescore(text, CRITERIA, 1, "stop")[0][0].failure == "conflict"


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
