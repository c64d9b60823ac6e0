"""The project's own query rows: ``{"id", "messages", "rubric": [{"id", "text", ...}], ...}``.

Read strictly: an unknown key, two criteria of one id, a rubric without criteria are errors with the
place and the reason, since such a row was written for this project and a guess would hide a slip.
"""

from typing import Any

from pydantic import ValidationError

from core.clean_text import clean_value
from core.formats.rows import RowError
from core.query import Query
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
