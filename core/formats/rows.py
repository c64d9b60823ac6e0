"""What readers of query files take and give: rows in, queries and dropped rows out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    file: str = ""
    """Its file, where several are read as one."""

    @property
    def place(self) -> str:
        """Where the row stands, for a message."""
        where = f"line {self.line}" if self.line is not None else f"row {self.number}"
        return f"{self.file}, {where}" if self.file else where


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A record that gave no query, and why."""

    row: int
    reason: str
    """One of a closed set: bad_json, bad_encoding, not_object, empty_prompt, no_user_turn,
    bad_prompt, no_rubrics, bad_rubric, bad_weight, nonfinite_weight, no_positive_weight, duplicate,
    duplicate_id, invalid, ambiguous_format, marked_invalid, not_a_query."""
    detail: str = ""
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRows:
    """What a reader made of the rows: queries in file order, and what it left out."""

    queries: tuple[Query, ...]
    dropped: tuple[Dropped, ...]
    formats: Mapping[str, int] = field(default_factory=dict[str, int])
    """Queries by the format that their row was read as."""
    why: Mapping[str, str] = field(default_factory=dict[str, str])
    """What told each of these formats, in one clause."""
    notes: tuple[str, ...] = ()
    """What the rows leave open, for a person to decide."""


class RowError(ValueError):
    """A row that gives no query; ``reason`` is one of those that ``Dropped`` names."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
