"""Every version of every rubric, edits that wait, and the verdict cache, in one SQLite file.

A rubric's id (``query_id`` in the tables) is its query's, or ``task:NAME`` for one that the queries
of a task share.
``RubricLog`` is the synchronous class behind the RubricStore actor; it needs no Ray, and the
report reads a run through it. What always holds:

- a commit that returned ``applied`` is on disk (WAL, ``synchronous=FULL``) and is applied once:
  compare-and-set on the version, the idempotency key unique;
- no version is ever deleted: a restore moves later ones to ``set_aside`` and frees their keys, so
  that a replay can commit them again;
- a failed verdict is never cached, and a cached one is never replaced.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from actors.rubric_schema import (
    COMMIT_FIELDS,
    COMMIT_MARKS,
    commit_values,
    open_file,
    transaction,
)
from actors.rubric_snapshot import restore_snapshot, write_snapshot
from actors.rubric_waiting import (
    Decision,
    WaitingEdit,
    decide,
    find,
    num_open,
    propose,
    waiting_edits,
)
from core.errors import ConfigError
from core.records import Commit, CommitResult, RubricEdit, Verdict
from core.rows import edit_from_row, rubric_from_row, rubric_row
from core.rubric import Rubric

T = TypeVar("T")

MAX_REASON_CHARS = 2000
"""Longest reason kept in the verdict cache; the rollout's own row keeps it whole."""

APPROVED = "approved: "
"""Begins the key of a commit that a person approved."""

_KEYS_PER_SELECT = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class RubricVersion:
    """One version with its provenance; version 0 comes from the data and has none."""

    query_id: str
    """The rubric's id."""
    version: int
    rubric: Rubric
    edits: tuple[RubricEdit, ...] = ()
    writer: str = ""
    step: int = 0
    visit: int = 0
    key: str = ""
    seconds: float = 0.0
    time: float = 0.0


class RubricLog:
    """The file; not thread-safe, one caller at a time."""

    def __init__(self, path: str | Path, *, is_read_only: bool = False) -> None:
        self._db = open_file(Path(path), is_read_only=is_read_only)
        self.num_rubrics = 0
        self.num_edits = 0
        self._count()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # -------------------------------------------------------------- rubrics
    def register(self, rubrics: Mapping[str, Rubric]) -> None:
        """Make version 0 of each rubric known by its id; a known one must be the same."""
        with transaction(self._db):
            num_new = sum(self._register(i, rubric) for i, rubric in rubrics.items())
        self.num_rubrics += num_new

    def _register(self, rubric_id: str, rubric: Rubric) -> bool:
        """Return whether it is new."""
        if rubric.version != 0:
            raise ConfigError(f"rubric {rubric_id!r}: got version {rubric.version}, wanted 0")
        text = _text(rubric_row(rubric))
        row = self._db.execute(
            "SELECT rubric FROM versions WHERE query_id = ? AND version = 0", (rubric_id,)
        ).fetchone()
        if row is None:
            self._db.execute(
                "INSERT INTO versions (query_id, version, rubric, step) VALUES (?, 0, ?, 0)",
                (rubric_id, text),
            )
        elif row[0] != text and _rubric(row[0]) != rubric:
            raise ConfigError(
                f"rubric {rubric_id!r}: got another initial rubric than the one this run began "
                "with (the data file changed), wanted the same: give the run another name, or "
                "start over with fresh=true"
            )
        return row is None

    def current(self, query_id: str) -> Rubric:
        """Return the current rubric; KeyError for one that was never registered."""
        row = self._db.execute(
            "SELECT rubric FROM versions WHERE query_id = ? ORDER BY version DESC LIMIT 1",
            (query_id,),
        ).fetchone()
        if row is None:
            raise KeyError(f"got rubric {query_id!r}, wanted one that was registered")
        return _rubric(row[0])

    def commit(self, commit: Commit) -> CommitResult:
        """Compare-and-set on the version, applied once a key.

        A commit whose rubric has version ``from_version`` changes nothing and is kept as
        provenance (refused, failed and no-op edits).
        """
        with transaction(self._db):
            current = self.current(commit.query_id)
            known = self._db.execute("SELECT 1 FROM commits WHERE key = ?", (commit.key,))
            if known.fetchone() is not None:
                return CommitResult(status="duplicate", version=current.version)
            if current.version != commit.from_version:
                return CommitResult(status="conflict", version=current.version)
            _check_next(current, commit)
            self._insert(commit)
        self.num_edits += commit.rubric.version - commit.from_version
        return CommitResult(status="applied", version=commit.rubric.version)

    def _insert(self, commit: Commit) -> None:
        self._db.execute(
            f"INSERT INTO commits ({COMMIT_FIELDS}) VALUES ({COMMIT_MARKS})", commit_values(commit)
        )
        if commit.rubric.version > commit.from_version:
            self._db.execute(
                "INSERT INTO versions (query_id, version, rubric, step, key) "
                "VALUES (?, ?, ?, ?, ?)",
                (
                    commit.query_id,
                    commit.rubric.version,
                    _text(rubric_row(commit.rubric)),
                    commit.step,
                    commit.key,
                ),
            )

    def history(self, query_id: str) -> tuple[RubricVersion, ...]:
        """Return all versions of a rubric, oldest first; empty for an unknown one."""
        return self._versions("v.query_id = ?", query_id)

    def edited(self) -> tuple[RubricVersion, ...]:
        """Return every version that an edit made, of all rubrics."""
        return self._versions("v.version > ?", 0)

    def _versions(self, where: str, value: str | int) -> tuple[RubricVersion, ...]:
        rows = self._db.execute(
            "SELECT v.query_id, v.version, v.rubric, c.edits, c.writer, v.step, c.visit, v.key, "
            "c.seconds, c.time FROM versions v LEFT JOIN commits c ON c.key = v.key "
            f"WHERE {where} ORDER BY v.query_id, v.version",
            (value,),
        )
        return tuple(
            RubricVersion(
                query_id=query_id,
                version=version,
                rubric=_rubric(rubric),
                edits=tuple(edit_from_row(e) for e in json.loads(edits or "[]")),
                writer=writer or "",
                step=step,
                visit=visit or 0,
                key=key or "",
                seconds=seconds or 0.0,
                time=at or 0.0,
            )
            for query_id, version, rubric, edits, writer, step, visit, key, seconds, at in rows
        )

    def query_ids(self) -> tuple[str, ...]:
        """Return the ids of the registered rubrics, in order of registration."""
        rows = self._db.execute("SELECT query_id FROM versions WHERE version = 0 ORDER BY rowid")
        return tuple(row[0] for row in rows)

    def settled_step(self, query_id: str, version: int) -> int:
        """Return the step of a person's edit of this version: the latest of its own and those below
        it, so that a restore keeps the edit exactly when it keeps the version."""
        (step,) = self._db.execute(
            "SELECT max(step) FROM versions WHERE query_id = ? AND version <= ?",
            (query_id, version),
        ).fetchone()
        return int(step or 0)

    # -------------------------------------------------------------- edits that wait for a person
    def propose(self, commit: Commit) -> None:
        """Keep an edit until a person decides, once a key."""
        with transaction(self._db):
            self.current(commit.query_id)
            propose(self._db, commit)

    def num_waiting(self, query_id: str) -> int:
        """Return how many edits of a rubric wait and can be applied to its current version."""
        return num_open(self._db, query_id)

    def waiting(self, query_id: str | None = None) -> tuple[WaitingEdit, ...]:
        """Return every proposed edit (of one rubric), decided or not, oldest first."""
        return waiting_edits(self._db, query_id)

    def approve(self, edit_id: int, reason: str = "") -> Decision:
        """Commit a waiting edit if the rubric is still at the version it was made from."""
        with transaction(self._db):
            edit = find(self._db, edit_id)
            if edit is None:
                return "unknown"
            if edit.status != "waiting":
                return "before" if edit.status == "approved" else "otherwise"
            if not edit.is_open:
                return "outdated"
            self._insert(self._approved(edit.commit, reason))
            decide(self._db, edit_id, "approved", reason)
        self._count()
        return "done"

    def _approved(self, commit: Commit, reason: str) -> Commit:
        said = f"approved by a person: {reason}" if reason else "approved by a person"
        good = ("waiting", "accepted")
        edits = [
            replace(e, status="accepted", reason=said) if e.status in good else e
            for e in commit.edits
        ]
        return replace(
            commit,
            edits=tuple(edits),
            step=self.settled_step(commit.query_id, commit.from_version),
            key=f"{APPROVED}{commit.key} from {commit.from_version}",
        )

    def reject(self, edit_id: int, reason: str = "") -> Decision:
        """Note that a person does not want a waiting edit; it stays as provenance."""
        with transaction(self._db):
            edit = find(self._db, edit_id)
            if edit is None:
                return "unknown"
            if edit.status != "waiting":
                return "before" if edit.status == "rejected" else "otherwise"
            decide(self._db, edit_id, "rejected", reason)
        return "done"

    # -------------------------------------------------------------- verdict cache
    def cached_verdicts(self, keys: Sequence[str]) -> dict[str, Verdict]:
        """Return the verdicts known for these keys."""
        found: dict[str, Verdict] = {}
        for start in range(0, len(keys), _KEYS_PER_SELECT):
            part = keys[start : start + _KEYS_PER_SELECT]
            marks = ", ".join("?" * len(part))
            rows = self._db.execute(
                "SELECT key, criterion_id, score, max, reason FROM verdicts "
                f"WHERE key IN ({marks})",
                tuple(part),
            )
            for key, criterion_id, score, highest, reason in rows:
                found[key] = Verdict(
                    criterion_id=criterion_id,
                    score=score,
                    max=highest,
                    reason=json.loads(reason),
                )
        return found

    def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        """Remember scored verdicts; failures are left out, known keys stay as they are."""
        rows = [
            (key, v.criterion_id, v.score, v.max, json.dumps(v.reason[:MAX_REASON_CHARS]))
            for key, v in verdicts.items()
            if v.score is not None
        ]
        if rows:
            with transaction(self._db):
                self._db.executemany("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?, ?, ?)", rows)

    # -------------------------------------------------------------- checkpoints
    def snapshot(self, folder: str | Path, step: int) -> None:
        """Write the rubrics as of ``step`` into ``folder``, on disk when this returns."""
        write_snapshot(self._db, Path(folder), step)

    def restore(self, folder: str | Path, step: int) -> int:
        """Make the versions of ``step`` current; return how many commits were set aside.

        An empty ``folder`` is a run without a checkpoint: later versions are set aside too.
        """
        moved = restore_snapshot(self._db, Path(folder) if folder else None, step)
        self._count()
        return moved

    # -------------------------------------------------------------- many changes at once
    def together(self, changes: Sequence[Callable[[], T]]) -> list[T | Exception]:
        """Do changes of this file in one transaction, on disk when this returns.

        One that raises undoes itself, and its error stands in its place. Raises when the
        transaction breaks; then nothing of it is kept.
        """
        results: list[T | Exception] = []
        try:
            with transaction(self._db):
                for change in changes:
                    try:
                        results.append(change())
                    except Exception as error:
                        if not self._db.in_transaction:  # the disk ended it, for all of them
                            raise
                        results.append(error)
        except BaseException:
            self._count()
            raise
        return results

    # -------------------------------------------------------------- inner parts
    def _count(self) -> None:
        self.num_rubrics, self.num_edits = self._db.execute(
            "SELECT count(*) FILTER (WHERE version = 0), count(*) FILTER (WHERE version > 0) "
            "FROM versions"
        ).fetchone()


def _check_next(current: Rubric, commit: Commit) -> None:
    version = commit.rubric.version
    if version == commit.from_version:
        if commit.rubric != current:
            raise ValueError(
                f"rubric {commit.query_id!r}: got other criteria under version {version}, wanted "
                "a changed rubric to have the next version"
            )
    elif version != commit.from_version + 1:
        raise ValueError(
            f"rubric {commit.query_id!r}: got version {version} after {commit.from_version}, "
            f"wanted {commit.from_version + 1}"
        )


def _text(row: Mapping[str, object]) -> str:
    return json.dumps(row)


def _rubric(text: str) -> Rubric:
    return rubric_from_row(json.loads(text))
