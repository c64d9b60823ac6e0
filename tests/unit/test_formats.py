"""Rows of any shape become queries, or are dropped with a reason."""

from typing import Any

from core.formats.loose import read_rows
from core.formats.rows import ReadRows, Row

NATIVE = {
    "id": "q1",
    "messages": [{"role": "user", "content": "Name a river."}],
    "rubric": [{"id": "c1", "text": "Names one", "rule": {"name": "max_words", "args": {"n": 4}}}],
    "gold": [{"id": "g1", "text": "Is true"}],
    "anchor": {"model": "m", "response": "The Elbe."},
}


def read(*values: Any) -> ReadRows:
    return read_rows([Row(number=i, value=v, line=i + 1) for i, v in enumerate(values)])


def test_a_native_row_keeps_rules_gold_and_anchor() -> None:
    (query,) = read(NATIVE).queries
    assert query.rubric.criteria[0].rule is not None
    assert query.gold[0].id == "g1"
    assert query.anchor is not None


def test_a_native_row_with_two_criteria_of_one_id_is_named() -> None:
    doubled = {**NATIVE, "rubric": [{"id": "c1", "text": "a"}, {"id": "c1", "text": "b"}]}
    (dropped,) = read(doubled).dropped
    assert dropped.reason == "invalid"
    assert "two criteria with the id 'c1'" in dropped.detail


def test_a_native_row_with_an_unknown_key_or_a_used_id_is_named() -> None:
    typo = {**NATIVE, "id": "q2", "rubric": [{"id": "c1", "text": "a", "wieght": 2}]}
    other = {**NATIVE, "messages": [{"role": "user", "content": "Name a lake."}]}
    reasons = [d.reason for d in read(NATIVE, typo, other).dropped]
    assert reasons == ["invalid", "duplicate_id"]


def test_a_rare_rubric_keeps_its_maxima_and_level_texts() -> None:
    row = {
        "prompt": "p",
        "rubric": {"criteria": [{"id": "pace", "check": "Keeps pace", "max_points": 2,
                                 "scoring_rule": "2 = steady; 1 = uneven; 0 = none"}]},
    }  # fmt: skip
    (criterion,) = read(row).queries[0].rubric.criteria
    assert (criterion.id, criterion.max) == ("pace", 2)
    assert criterion.levels == {0: "none", 1: "uneven", 2: "steady"}


def test_tags_of_a_loose_rubric_become_kinds() -> None:
    row = {"prompt": "p", "rubrics": ["[llm] Names one", "[Resist] Does not pad"]}
    kinds = [(c.kind, c.text) for c in read(row).queries[0].rubric.criteria]
    assert kinds == [("llm", "Names one"), ("resist", "Does not pad")]


def test_an_item_of_several_lines_ends_at_its_importance_note() -> None:
    block = (
        "1) Holds both:\n1) short\n2) clear (importance: 100/100)\n2) Is kind (importance: 50/100)"
    )
    criteria = read({"prompt": "p", "requirements": block}).queries[0].rubric.criteria
    assert [c.weight for c in criteria] == [100, 50]
    assert criteria[0].text == "Holds both:\n1) short\n2) clear"


def test_ids_are_unique_texts_and_stay_when_rows_move() -> None:
    rows = [
        {"id": "a", "prompt": "x", "rubrics": ["r"]},
        {"id": "a", "prompt": "y", "rubrics": ["r"]},
        {"prompt": "z", "rubrics": ["r"]},
    ]
    first = [q.id for q in read(*rows).queries]
    assert first[0] == "a"
    assert len(set(first)) == 3
    assert read(rows[2]).queries[0].id == first[2]


def test_an_exact_repeat_is_dropped_even_under_a_reused_id() -> None:
    a, b = (
        {"id": "a", "prompt": "x", "rubrics": ["r"]},
        {"id": "a", "prompt": "y", "rubrics": ["r"]},
    )
    read_ = read(a, b, b, a)
    assert len(read_.queries) == 2
    assert [d.reason for d in read_.dropped] == ["duplicate", "duplicate"]
