"""A damaged row of any format gives a query or a reason, never another exception."""

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.formats.names import FormatName
from core.formats.native import native_row
from core.formats.reading import read_rows
from core.formats.rows import Row

FIXTURES = Path(__file__).parents[1] / "fixtures" / "formats"
ODD: tuple[Any, ...] = (
    None,
    "",
    "x",
    "[",
    '{"a": [1]}',
    7,
    -1,
    math.nan,
    True,
    [],
    [None],
    [[]],
    {},
)
TEXTS = ("ground_truth", "criteria", "prompt_metadata", "conversation_history")
"""Columns that hold JSON as text: they are damaged inside too."""


def rows_of(name: str) -> list[dict[str, Any]]:
    lines = (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [opened(json.loads(line)) for line in lines]


def opened(value: Any, key: str = "") -> Any:
    """The value with its JSON texts as values, which every reader takes too."""
    if key in TEXTS and isinstance(value, str):
        return opened(json.loads(value))
    if isinstance(value, dict):
        return {k: opened(v, k) for k, v in value.items()}
    return [opened(v, key) for v in value] if isinstance(value, list) else value


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a value but the whole."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in entries:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def with_odd(row: dict[str, Any], path: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    changed = copy.deepcopy(row)
    node: Any = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = odd
    return changed


@pytest.mark.parametrize("name", sorted(p.stem for p in FIXTURES.glob("*.jsonl")))
def test_an_odd_value_anywhere_in_a_row_gives_a_query_or_a_reason(name: FormatName) -> None:
    damaged = [
        Row(number=0, value=with_odd(row, path, odd), file=str(number))
        for number, (row, path, odd) in enumerate(
            (row, path, odd) for row in rows_of(name) for path in places(row) for odd in ODD
        )
    ]
    for given in (name, "auto"):
        read = read_rows(damaged, given)
        assert len(read.queries) + len(read.dropped) == len(damaged)
        assert all(d.reason and d.detail for d in read.dropped)
        json.dumps([native_row(q) for q in read.queries], allow_nan=False)
