"""Rows of offline training: what gives a demonstration or a pair, and what is held out."""

import json
from typing import Any

import pytest

from core.formats.rows import RowError
from core.offline_rows import (
    Demonstration,
    anchor_demonstration,
    held_out,
    preference,
    script_demonstration,
)
from core.query import Query

ASKED = [{"role": "system", "content": "Write scripts."}, {"role": "user", "content": "A robot."}]
ANSWER = {"role": "assistant", "content": "S01"}


def query(anchor: dict[str, str] | None, **meta: Any) -> Query:
    return Query.model_validate(
        {
            "id": "q",
            "messages": ASKED,
            "rubric": [{"id": "c", "text": "t"}],
            "anchor": anchor,
            "meta": meta,
        }
    )


@pytest.mark.parametrize(
    "row",
    [
        {"messages": ASKED, "response": "S01"},
        {"messages": ASKED, "script": "S01"},
        {"messages": [*ASKED, ANSWER]},
        {"prompt": ASKED, "completion": [ANSWER]},
        {"prompt": ASKED, "answer": "S01", "extra_info": {"stem": "v1"}},
        {"prompt": ASKED, "answer": "", "response": "S01"},
        {"system": "Write scripts.", "prompt": "A robot.", "response": "S01"},
    ],
)
def test_a_script_is_found_in_every_layout_of_a_row(row: dict[str, Any]) -> None:
    made = script_demonstration(row, 4)
    assert [m.model_dump() for m in made.prompt] == ASKED
    assert (made.id, made.response) == ("row 4", "S01")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "not_object"),
        ({"response": "S01"}, "empty_prompt"),
        ({"prompt": ASKED, "answer": ""}, "no_response"),
        ({"prompt": ASKED, "answer": "  "}, "no_response"),
        ({"prompt": ASKED, "answer": 3}, "bad_response"),
        ({"prompt": ASKED, "response": [*ASKED]}, "bad_response"),
        ({"prompt": ASKED, "response": [{"role": "user", "content": "x"}, ANSWER]}, "bad_response"),
        ({"prompt": ASKED, "response": [{"role": "assistant", "content": ""}]}, "no_response"),
    ],
)
def test_a_row_without_a_script_says_why(row: Any, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        script_demonstration(row, 0)
    assert caught.value.reason == reason


def test_an_anchor_is_imitated_and_a_query_without_one_says_so() -> None:
    made = anchor_demonstration(query({"model": "gpt-4.1", "response": "S01"}))
    assert (made.id, made.response) == ("q", "S01")
    with pytest.raises(RowError) as caught:
        anchor_demonstration(query(None))
    assert caught.value.reason == "no_anchor"


def pair(**changed: Any) -> dict[str, Any]:
    row = {"id": "p1", "prompt": ASKED, "chosen": [ANSWER], "rejected": "no", **changed}
    return {key: value for key, value in row.items() if value != "absent"}


@pytest.mark.parametrize(
    "row",
    [
        pair(),
        pair(chosen_score=0.9, rejected_score=0.3),
        pair(chosen_score=0.9),
        pair(chosen=[*ASKED, ANSWER], rejected=[*ASKED, {"role": "assistant", "content": "no"}]),
        pair(chosen=[ASKED[1], ANSWER]),  # WildChecklists has no system turn
    ],
)
def test_a_pair_is_read_whether_its_responses_are_texts_turns_or_conversations(
    row: dict[str, Any],
) -> None:
    made = preference(row, 0)
    assert (made.id, made.chosen, made.rejected) == ("p1", "S01", "no")
    assert [m.role for m in made.prompt] == ["system", "user"]


def test_a_row_of_wildchecklists_is_a_pair() -> None:
    asked = {"role": "user", "content": "Three names."}
    row = {
        "prompt": "Three names.",
        "chosen": [asked, {"role": "assistant", "content": "A, B, C"}],
        "rejected": [asked, {"role": "assistant", "content": "A"}],
        "chosen_score": 0.94,
        "rejected_score": 0.31,
        "requirements": "1) Three? (importance: 100/100)",
    }
    made = preference(row, 0)
    assert (made.chosen, made.rejected) == ("A, B, C", "A")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"chosen": "no"}, "no_preference"),
        ({"chosen_score": 0.5, "rejected_score": 0.5}, "no_preference"),
        ({"chosen_score": 0.1, "rejected_score": 0.5}, "no_preference"),
        ({"chosen_score": "high"}, "bad_score"),
        ({"chosen_score": True}, "bad_score"),
        ({"chosen_score": float("nan")}, "bad_score"),
        ({"rejected": "absent"}, "no_response"),
        ({"chosen": [{"role": "user", "content": "Other."}, ANSWER]}, "bad_response"),
    ],
)
def test_a_row_that_prefers_nothing_says_why(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError) as caught:
        preference(pair(**changed), 0)
    assert caught.value.reason == reason


# ------------------------------------------------------------------ the validation split
def rows(number: int, per_group: int = 1) -> list[Demonstration]:
    return [
        Demonstration(id=str(i), group=f"g{i // per_group}", prompt=(), response="r")
        for i in range(number)
    ]


def test_rows_of_one_source_group_stay_on_one_side() -> None:
    train, val = held_out(rows(60, per_group=3), 0.2, seed=5)
    assert {e.group for e in train} & {e.group for e in val} == set()
    assert (len(train), len(val)) == (48, 12)


def test_the_split_depends_on_the_seed_and_not_on_the_order_of_the_rows() -> None:
    given = rows(40)
    first = {e.id for e in held_out(given, 0.25, seed=1)[1]}
    assert {e.id for e in held_out(given[::-1], 0.25, seed=1)[1]} == first
    assert {e.id for e in held_out(given, 0.25, seed=2)[1]} != first
    train, _ = held_out(given, 0.25, seed=1)
    assert [e.id for e in train] == sorted((e.id for e in train), key=int)


def test_a_small_share_still_holds_one_group_out_and_leaves_one() -> None:
    assert len(held_out(rows(5), 0.01, seed=0)[1]) == 1
    assert len(held_out(rows(2), 0.5, seed=0)[0]) == 1
    assert held_out(rows(5), 0.0, seed=0)[1] == []
    with pytest.raises(ValueError, match="wanted at least 2"):
        held_out(rows(5, per_group=5), 0.2, seed=0)


def test_a_group_is_the_source_video_where_there_is_one_and_else_the_prompt() -> None:
    extra = {"stem": "2d_video_0001", "query_idx": 3}
    for row in (
        {"prompt": ASKED, "answer": "x", "extra_info": extra},
        {"prompt": "Other.", "answer": "y", "extra_info": json.dumps(extra)},
        {"prompt": "Other.", "answer": "y", "stem": "2d_video_0001"},
    ):
        assert script_demonstration(row, 0).group == "2d_video_0001"
    assert anchor_demonstration(query({"response": "r"}, stem="v")).group == "v"
    same = [script_demonstration({"prompt": ASKED, "response": r}, 0).group for r in "ab"]
    other = script_demonstration({"prompt": "Other.", "response": "a"}, 0).group
    assert same[0] == same[1] != other
