"""The project's own query rows: ``{"id", "messages", "rubric": [{"id", "text", ...}], ...}``.

Read strictly: an unknown key, two criteria of one id, a rubric without criteria are errors with the
place and the reason, since such a row was written for this project and a guess would hide a slip.
"""

from typing import Any

from pydantic import ValidationError

from core.clean_text import clean_value
from core.formats.base import Format
from core.formats.rows import RowError
from core.query import Query
from core.rows import Row as JsonRow
from core.rows import criterion_row
from core.rubric import Rubric
from core.validation import first_problem

_KEYS = frozenset(Query.model_fields)


def is_native(row: dict[str, Any]) -> bool:
    """Return whether a row is meant to be in the project's own format."""
    if "messages" not in row or "rubric" not in row:
        return False
    rubric = row["rubric"]
    if not isinstance(rubric, list):
        return isinstance(rubric, dict) and "criteria" in rubric and set(row) <= _KEYS
    criteria: list[Any] = rubric  # pyright: ignore[reportUnknownVariableType]
    if not criteria:
        return set(row) <= _KEYS
    return any(isinstance(c, dict) and "id" in c and "text" in c for c in criteria)


def native_query(row: dict[str, Any]) -> Query:
    """Return the query of a native row; raises RowError with the first thing that is wrong."""
    if not row.get("rubric"):
        raise RowError("no_rubrics", "got no rubric, wanted at least one criterion")
    try:
        query = Query.model_validate(clean_value(row))
    except ValidationError as error:
        raise RowError("invalid", first_problem(error)) from error
    if query.rubric.version != 0:
        got = query.rubric.version
        raise RowError("invalid", f"got a rubric of version {got}, wanted an initial one (0)")
    return query


def native_row(query: Query) -> JsonRow:
    """Return the row that ``native_query`` reads as this query again; its rubric is an initial one.

    The rubric is a plain list of criteria, or an object where it has caps.
    """
    row: JsonRow = {
        "id": query.id,
        "messages": [{"role": m.role, "content": m.content} for m in query.messages],
        "rubric": _rubric_value(query.rubric),
    }
    if query.anchor is not None:
        row["anchor"] = query.anchor.model_dump(mode="json")
    if query.gold:
        row["gold"] = [criterion_row(c) for c in query.gold]
    if query.task is not None:
        row["task"] = query.task
    if query.meta:
        row["meta"] = dict(query.meta)
    return row


def _rubric_value(rubric: Rubric) -> Any:
    criteria = [criterion_row(c) for c in rubric.criteria]
    if not rubric.caps:
        return criteria
    return {"criteria": criteria, "caps": [cap.model_dump(mode="json") for cap in rubric.caps]}


FORMAT = Format(
    name="native",
    source="the project's own rows",
    normaliser="max_points",
    reward={"weights": "none", "normaliser": "pos_sum"},
    claim=lambda row: "messages, and a rubric of criteria with ids" if is_native(row) else "",
    read=native_query,
)
