"""What readers of query files take and give: rows in, queries and dropped rows out."""

from dataclasses import dataclass
from typing import Any

from core.query import Query


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One record of a file, before anything is known about it."""

    number: int
    """Counts the file's records from 0; blank lines are none."""
    value: Any
    line: int | None = None
    """Line in the file, from 1; None where records have no lines (parquet, a JSON array)."""
    problem: str = ""
    """Why there is no value: ``bad_json``, ``bad_encoding``; empty when there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A record that gave no query, and why."""

    row: int
    reason: str
    """One of a closed set: bad_json, bad_encoding, not_object, empty_prompt, no_user_turn,
    bad_prompt, no_rubrics, bad_rubric, bad_weight, nonfinite_weight, no_positive_weight, duplicate,
    duplicate_id, invalid."""
    detail: str = ""
    line: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRows:
    """What a reader made of the rows: queries in file order, and what it left out."""

    queries: tuple[Query, ...]
    dropped: tuple[Dropped, ...]


class RowError(ValueError):
    """A row that gives no query; ``reason`` is one of those that ``Dropped`` names."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
