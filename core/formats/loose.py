"""Query rows of any other shape: what datasets with rubrics look like in the wild.

Pure: rows in, queries and dropped rows out. Nothing is repaired by guessing: a row without a prompt
to answer or a rubric to train by is dropped with its reason. Ids become unique texts; an exact
repeat is dropped, a reused id with another content gets a new id.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic import ValidationError

from core.clean_text import clean_text, clean_value
from core.formats.checklists import RUBRIC_FIELDS, criteria_of
from core.formats.native import is_native, native_query
from core.formats.prompts import PROMPT_FIELDS, messages_of
from core.formats.rows import Dropped, ReadRows, Row, RowError
from core.formats.rubric_files import (
    caps_in_row,
    is_scored_to_two,
    is_weighted_binary,
    nested_rubric,
    with_scale_to_two,
    with_weight_as_max,
)
from core.query import Anchor, Query
from core.rubric import Rubric
from core.validation import first_problem

_ID_FIELDS = ("id", "uid", "query_id", "qid", "prompt_id", "example_id", "index", "idx")
_ANCHOR_FIELDS = ("anchor", "reference_answer", "golden_response", "reference_response")
_USED = {*_ID_FIELDS, *_ANCHOR_FIELDS, *PROMPT_FIELDS, *RUBRIC_FIELDS, "task", "gold", "meta"}


def read_rows(rows: Sequence[Row]) -> ReadRows:
    """Return the queries of ``rows`` in order, native and loose ones alike, and what was dropped.

    Own ids are given out first, in file order, so that a made-up id never takes one.
    """
    queries: list[Query] = []
    dropped: list[Dropped] = []
    seen = _Seen()
    reserved = {own for row in rows if (own := _own_id(row.value)) is not None}
    for row in rows:
        try:
            query = _query(row, seen, reserved)
        except RowError as error:
            dropped.append(
                Dropped(row=row.number, reason=error.reason, detail=error.detail, line=row.line)
            )
            continue
        queries.append(query)
    return ReadRows(queries=tuple(queries), dropped=tuple(dropped))


def with_rubric(row: Row, rubric: Rubric) -> Row:
    """Return the row with ``rubric`` where it has none of its own, for rubrics that a task gives.

    A row that is no object is returned as it is.
    """
    value: Any = row.value
    if row.problem or not isinstance(value, dict):
        return row
    fields = cast(dict[str, Any], value)
    has_own = any(fields.get(f) is not None for f in RUBRIC_FIELDS)
    if has_own or nested_rubric(fields) is not None:
        return row
    given = rubric.model_dump(mode="json", include={"criteria"})
    return replace(row, value=fields | {"rubric": given})


@dataclass(frozen=True, slots=True)
class _Seen:
    """What earlier rows used."""

    ids: set[str] = field(default_factory=set[str])
    contents: set[tuple[str | None, str]] = field(default_factory=set[tuple[str | None, str]])
    """A row's own id (None if it had none) and its content's digest."""


def _query(row: Row, seen: _Seen, reserved: set[str]) -> Query:
    value: Any = row.value
    if row.problem:
        raise RowError(row.problem, str(value))
    if not isinstance(value, dict):
        raise RowError("not_object", f"got {value!r:.60}, wanted an object")
    fields = cast(dict[str, Any], value)
    native = is_native(fields)
    try:
        query = native_query(fields) if native else _loose_query(fields)
    except RecursionError:
        raise RowError("invalid", "got values nested too deeply, wanted plain columns") from None
    content = _digest(query)
    own = query.id if native else _own_id(fields)
    if (own, content) in seen.contents:
        raise RowError("duplicate", f"the row repeats an earlier one with the id {own!r}")
    if native and own in seen.ids:
        raise RowError("duplicate_id", f"got the id {own!r} a second time, wanted unique ids")
    is_free = own is not None and own not in seen.ids
    name = own if own is not None and is_free else _new_id(own, content, seen, reserved)
    seen.ids.add(name)
    seen.contents.add((own, content))
    return query if query.id == name else query.model_copy(update={"id": name})


def _loose_query(fields: dict[str, Any]) -> Query:
    messages, rubric = messages_of(fields), _rubric(fields)
    try:
        return Query(
            id=_own_id(fields) or "new",
            messages=messages,
            rubric=rubric,
            anchor=_anchor(fields),
            task=clean_text(fields["task"]) if isinstance(fields.get("task"), str) else None,
            meta=_meta(fields),
        )
    except ValidationError as error:
        raise RowError("invalid", first_problem(error)) from error


def _rubric(fields: dict[str, Any]) -> Rubric:
    """Return the row's rubric: in a column of its own, or deeper down (RARE, DR Tulu)."""
    column = next((f for f in RUBRIC_FIELDS if fields.get(f) is not None), None)
    nested = nested_rubric(fields) if column is None else None
    criteria = criteria_of(nested or fields)
    if column is not None and is_weighted_binary(fields[column]):
        criteria = tuple(with_weight_as_max(c) for c in criteria)
    if is_scored_to_two(fields, nested):
        criteria = tuple(with_scale_to_two(c) for c in criteria)
    try:
        return Rubric(criteria=criteria, caps=caps_in_row(nested))
    except ValidationError as error:
        raise RowError("bad_rubric", first_problem(error)) from error


def _own_id(value: Any) -> str | None:
    """Return the row's id as text; None if it has none that can be one."""
    if not isinstance(value, dict):
        return None
    fields = cast(dict[str, Any], value)
    own = next((fields[f] for f in _ID_FIELDS if fields.get(f) is not None), None)
    if isinstance(own, float) and own.is_integer():
        own = int(own)
    if isinstance(own, bool) or not isinstance(own, str | int | float):
        return None
    if isinstance(own, float) and not math.isfinite(own):
        return None
    return clean_text(str(own)).strip() or None


def _new_id(own: str | None, content: str, seen: _Seen, reserved: set[str]) -> str:
    """Return an id made from the content, so that it stays when rows move."""
    stem = f"{own or 'q'}-{content[:10]}"
    name, count = stem, 1
    while name in seen.ids or name in reserved:
        count += 1
        name = f"{stem}-{count}"
    return name


def _digest(query: Query) -> str:
    """Return what tells two rows with different content apart."""
    parts = query.model_dump(mode="json", include={"messages", "rubric", "anchor", "gold"})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _anchor(fields: dict[str, Any]) -> Anchor | None:
    value = next((fields[f] for f in _ANCHOR_FIELDS if fields.get(f)), None)
    if isinstance(value, str) and value.strip():
        return Anchor(model="reference", response=clean_text(value))
    if isinstance(value, dict):
        inner = cast(dict[str, Any], value)
        response, model = inner.get("response"), inner.get("model")
        if isinstance(response, str) and response.strip():
            name = clean_text(model) if isinstance(model, str) else "unknown"
            return Anchor(model=name, response=clean_text(response))
    return None


def _meta(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that are neither prompt nor rubric, if they are plain values."""
    own: Any = fields.get("meta")
    meta: dict[str, Any] = dict(cast(dict[str, Any], own)) if isinstance(own, dict) else {}
    for key, value in fields.items():
        is_plain = isinstance(value, str | bool | int | float)
        is_broken = isinstance(value, float) and not math.isfinite(value)
        if key not in _USED and is_plain and not is_broken:
            meta[key] = value
    return clean_value(meta)
