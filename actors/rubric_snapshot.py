"""A run's rubrics inside a checkpoint, and back.

A version belongs to step s when the draw that it comes from, and those of all versions below it,
are at or before s. A snapshot holds exactly these. A restore keeps exactly these: versions of later
draws are set aside, because the replay draws them again and commits them anew. A commit whose draw
is not replayed is kept even when it was acknowledged after the snapshot was written, and so is a
person's edit (it has the step of the version it was made on, or 0): nothing that was acknowledged
is lost. An edit that waits for a person belongs to the step of its draw; of those that a restore
sets aside the row stays and the key becomes free. An approved edit is a person's.
The verdict cache is no part of a snapshot: verdicts stay true whatever version is current.
"""

import os
import sqlite3
from pathlib import Path

from actors.rubric_schema import (
    COMMIT_FIELDS,
    check_schema,
    create_tables,
    schema_of,
    transaction,
)
from core.errors import ConfigError

SNAPSHOT_NAME = "rubrics.sqlite"

_IS_AS_OF = (
    "NOT EXISTS (SELECT 1 FROM main.versions w WHERE w.query_id = v.query_id "
    "AND w.version <= v.version AND w.step > :step)"
)

# By the primary key: `key` alone has no index, and a search for each commit would be quadratic.
_IS_MADE_BY = "v.query_id = c.query_id AND v.version = c.to_version AND v.key = c.key"

# Versions are compared by content and by the commit that made them.
_VERSION_FIELDS = "query_id, version, rubric, step, key"

_WAITING_FIELDS = f"status, rubric, decision, decided, {COMMIT_FIELDS}"


def write_snapshot(db: sqlite3.Connection, folder: Path, step: int) -> None:
    """Copy the state as of ``step`` into ``folder``; fsynced, atomic.

    The run's own file is only read, in one transaction: another connection may commit meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / SNAPSHOT_NAME
    part = folder / f"{SNAPSHOT_NAME}.tmp"
    part.unlink(missing_ok=True)
    db.execute("ATTACH DATABASE ? AS snap", (part.resolve().as_uri() + "?mode=rwc",))
    try:
        _copy(db, step)
    finally:
        db.execute("DETACH DATABASE snap")
    _sync(part)
    os.replace(part, target)
    _sync(folder)


def _copy(db: sqlite3.Connection, step: int) -> None:
    create_tables(db, "snap")
    at = {"step": step}
    with transaction(db, is_immediate=False):  # locks no more than it touches: it reads `main`
        db.execute(
            f"INSERT INTO snap.versions ({_VERSION_FIELDS}) SELECT {_VERSION_FIELDS} "
            f"FROM main.versions v WHERE {_IS_AS_OF} ORDER BY v.rowid",
            at,
        )
        db.execute(
            f"INSERT INTO snap.commits ({COMMIT_FIELDS}) SELECT {COMMIT_FIELDS} "
            "FROM main.commits c WHERE EXISTS (SELECT 1 FROM snap.versions v "
            f"WHERE {_IS_MADE_BY}) "
            "OR (c.from_version = c.to_version AND c.step <= :step) ORDER BY c.seq",
            at,
        )
        db.execute(
            f"INSERT INTO snap.waiting ({_WAITING_FIELDS}) SELECT {_WAITING_FIELDS} "
            "FROM main.waiting WHERE restored_step IS NULL AND step <= :step ORDER BY seq",
            at,
        )
        db.execute("INSERT INTO snap.meta VALUES ('step', :step)", {"step": str(step)})


def restore_snapshot(db: sqlite3.Connection, folder: Path | None, step: int) -> int:
    """Set later commits aside, put back what the live file lacks; return how many were moved.

    Without a folder (a run that stopped before its first checkpoint) nothing is put back.
    """
    path = None if folder is None else folder / SNAPSHOT_NAME
    if path is not None and not path.is_file():
        raise ConfigError(f"got no {path}, wanted a checkpoint with its rubrics: take another one")
    at = ":memory:" if path is None else path.resolve().as_uri() + "?mode=ro"
    try:
        db.execute("ATTACH DATABASE ? AS snap", (at,))
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error
    try:
        if path is None:
            create_tables(db, "snap")
        else:
            _check_snapshot(db, path, step)
        with transaction(db):
            moved = _set_aside(db, step)
            db.execute(
                "UPDATE main.waiting SET restored_step = :step "
                "WHERE restored_step IS NULL AND step > :step",
                {"step": step},
            )
            _put_back(db)
    finally:
        db.execute("DETACH DATABASE snap")
    return moved


def _check_snapshot(db: sqlite3.Connection, path: Path, step: int) -> None:
    try:
        check_schema(db, path, "snap")
        row = db.execute("SELECT value FROM snap.meta WHERE name = 'step'").fetchone()
        problem = db.execute("PRAGMA snap.quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error
    if problem != "ok":
        raise _unreadable(path, problem)
    if row is None or int(row[0]) != step:
        raise ConfigError(f"got {path} of step {row and row[0]}, wanted step {step}")


def _unreadable(path: Path | None, reason: object) -> ConfigError:
    return ConfigError(
        f"got {path} that SQLite cannot read ({' '.join(str(reason).split())[:200]}), wanted the "
        "rubrics of a whole checkpoint: delete that checkpoint to go on from the one before it, or "
        "start over with fresh=true"
    )


def _set_aside(db: sqlite3.Connection, step: int) -> int:
    # For each query, the first live version that is of a later draw or is not the snapshot's.
    db.execute(
        "CREATE TEMP TABLE cut AS SELECT query_id, min(version) AS version FROM ("
        "  SELECT query_id, version FROM main.versions WHERE step > :step"
        "  UNION ALL"
        "  SELECT v.query_id, v.version FROM main.versions v JOIN snap.versions s"
        "  USING (query_id, version)"
        "  WHERE v.rubric IS NOT s.rubric OR v.key IS NOT s.key"
        ") GROUP BY query_id",
        {"step": step},
    )
    if db.execute("SELECT 1 FROM cut WHERE version = 0").fetchone():
        raise ConfigError(
            "got a snapshot with another initial rubric than this run's, wanted a checkpoint of "
            "this run"
        )
    db.execute(
        "CREATE TEMP TABLE gone AS SELECT c.key FROM main.commits c LEFT JOIN cut USING (query_id)"
        " WHERE c.to_version >= coalesce(cut.version, c.to_version + 1)"
        " AND c.to_version > c.from_version"
        " OR c.from_version = c.to_version AND c.step > :step",
        {"step": step},
    )
    moved = db.execute(
        f"INSERT INTO main.set_aside (restored_step, rubric, {COMMIT_FIELDS}) "
        "SELECT :step, v.rubric, c.key, c.query_id, c.from_version, c.to_version, c.step, c.visit, "
        "c.edits, c.writer, c.seconds, c.time FROM main.commits c "
        f"LEFT JOIN main.versions v ON {_IS_MADE_BY} "
        "WHERE c.key IN (SELECT key FROM gone) ORDER BY c.seq",
        {"step": step},
    ).rowcount
    db.execute("DELETE FROM main.versions WHERE key IN (SELECT key FROM gone)")
    db.execute("DELETE FROM main.commits WHERE key IN (SELECT key FROM gone)")
    db.execute("DROP TABLE cut")
    db.execute("DROP TABLE gone")
    return moved


def _put_back(db: sqlite3.Connection) -> None:
    db.execute(
        f"INSERT INTO main.versions ({_VERSION_FIELDS}) SELECT {_VERSION_FIELDS} "
        "FROM snap.versions s WHERE NOT EXISTS (SELECT 1 FROM main.versions v "
        "WHERE v.query_id = s.query_id AND v.version = s.version) ORDER BY s.rowid"
    )
    db.execute(
        f"INSERT OR IGNORE INTO main.commits ({COMMIT_FIELDS}) SELECT {COMMIT_FIELDS} "
        "FROM snap.commits ORDER BY seq"
    )
    if schema_of(db, "snap") > 1:
        db.execute(
            f"INSERT OR IGNORE INTO main.waiting ({_WAITING_FIELDS}) SELECT {_WAITING_FIELDS} "
            "FROM snap.waiting ORDER BY seq"
        )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
