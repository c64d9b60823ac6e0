"""Edits that wait for a person, in the ``waiting`` table of ``rubrics.sqlite``.

A method proposes a whole commit; ``RubricLog`` keeps it under its key and commits it when a person
approves. A row is never deleted: approved and rejected edits stay as provenance, and so does what a
restore set aside. An edit can be applied as long as the rubric is at the version it was made from;
after that it is outdated.
"""

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Literal

from actors.rubric_schema import COMMIT_FIELDS, COMMIT_MARKS, commit_values, schema_of
from core.records import Commit
from core.rows import edit_from_row, rubric_from_row, rubric_row

WaitingStatus = Literal["waiting", "approved", "rejected"]
Decision = Literal["done", "before", "otherwise", "outdated", "unknown"]
"""What became of a person's decision: done now, the same ``before``, decided ``otherwise`` before;
``outdated``: the rubric is at another version now; ``unknown``: there is no such edit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingEdit:
    """A proposed commit and what a person made of it."""

    id: int
    commit: Commit
    status: WaitingStatus
    current_version: int
    """The rubric's version now."""
    decision: str
    """The person's reason."""
    time: float

    @property
    def is_open(self) -> bool:
        """Whether it waits and can still be applied."""
        return self.status == "waiting" and self.current_version == self.commit.from_version


def propose(db: sqlite3.Connection, commit: Commit) -> None:
    """Keep an edit; a key that is known changes nothing. Call inside a transaction."""
    db.execute(
        f"INSERT OR IGNORE INTO waiting (status, rubric, {COMMIT_FIELDS}) "
        f"VALUES ('waiting', ?, {COMMIT_MARKS})",
        (json.dumps(rubric_row(commit.rubric)), *commit_values(commit)),
    )


def num_open(db: sqlite3.Connection, rubric_id: str) -> int:
    """Return how many edits of a rubric wait and can still be applied."""
    return sum(e.is_open for e in waiting_edits(db, rubric_id))


def waiting_edits(db: sqlite3.Connection, rubric_id: str | None = None) -> tuple[WaitingEdit, ...]:
    """Return every proposed edit (of one rubric), decided or not, oldest first."""
    if schema_of(db) < 2:  # opened for reading only, so not brought up to date
        return ()
    cursor = db.cursor()
    cursor.row_factory = sqlite3.Row
    rows = cursor.execute(
        "SELECT w.*, (SELECT max(version) FROM versions v WHERE v.query_id = w.query_id) "
        "AS current FROM waiting w WHERE restored_step IS NULL "
        "AND (:id IS NULL OR w.query_id = :id) ORDER BY w.seq",
        {"id": rubric_id},
    )
    return tuple(_read(row) for row in rows)


def _read(row: sqlite3.Row) -> WaitingEdit:
    commit = Commit(
        query_id=row["query_id"],
        from_version=row["from_version"],
        rubric=rubric_from_row(json.loads(row["rubric"])),
        edits=tuple(edit_from_row(e) for e in json.loads(row["edits"])),
        step=row["step"],
        visit=row["visit"],
        key=row["key"],
        writer=row["writer"],
        seconds=row["seconds"],
    )
    return WaitingEdit(
        id=row["seq"],
        commit=commit,
        status=row["status"],
        current_version=-1 if row["current"] is None else row["current"],
        decision=row["decision"],
        time=row["time"],
    )


def find(db: sqlite3.Connection, edit_id: int) -> WaitingEdit | None:
    """Return one proposed edit, None when there is none of this id."""
    return next((e for e in waiting_edits(db) if e.id == edit_id), None)


def decide(db: sqlite3.Connection, edit_id: int, status: WaitingStatus, reason: str) -> None:
    """Note what a person decided. Call inside a transaction."""
    db.execute(
        "UPDATE waiting SET status = ?, decision = ?, decided = ? WHERE seq = ?",
        (status, reason, time.time(), edit_id),
    )
