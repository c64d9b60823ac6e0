"""The tables of ``rubrics.sqlite`` and how a file with them is opened.

The file is the truth about a run's rubrics: every version with its provenance, edits that wait for
a person, what a restore set aside, and the verdict cache. A column ``query_id`` holds the rubric's
id: the query's, or ``task:NAME``. The file is in WAL mode with ``synchronous=FULL``, so that a
commit that returned is on disk. ``PRAGMA user_version`` is the schema's number: a file of schema 1
(without waiting edits) is brought up to date when it is opened for writing and read as it is
otherwise; a file of a newer schema is refused, never guessed at.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import ConfigError
from core.records import Commit
from core.rows import edit_row

SCHEMA_VERSION = 2
_READABLE = (1, 2)
BUSY_TIMEOUT_S = 30.0

_COMMIT_COLUMNS = """
    key TEXT NOT NULL UNIQUE,
    query_id TEXT NOT NULL,
    from_version INTEGER NOT NULL,
    to_version INTEGER NOT NULL,
    step INTEGER NOT NULL,
    visit INTEGER NOT NULL,
    edits TEXT NOT NULL,
    writer TEXT NOT NULL,
    seconds REAL NOT NULL,
    time REAL NOT NULL
"""

# {s} is the schema of an attached file ("main" or "snap"). versions.step is the commit's (0 for
# version 0), and so is versions.key. commits also holds replies that changed nothing.
_WAITING = (
    "CREATE TABLE {s}.waiting (seq INTEGER PRIMARY KEY AUTOINCREMENT, status TEXT NOT NULL, "
    "rubric TEXT NOT NULL, decision TEXT NOT NULL DEFAULT '', decided REAL, "
    "restored_step INTEGER," + _COMMIT_COLUMNS.replace(" UNIQUE", "") + ")",
    # A restore frees the keys of later draws: the replay proposes them anew.
    "CREATE UNIQUE INDEX {s}.waiting_key ON waiting (key) WHERE restored_step IS NULL",
)
"""``status`` is waiting, approved or rejected; ``decision`` is the person's reason."""

_TABLES = (
    """CREATE TABLE {s}.versions (
    query_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    rubric TEXT NOT NULL,
    step INTEGER NOT NULL,
    key TEXT,
    PRIMARY KEY (query_id, version)
)""",
    "CREATE TABLE {s}.commits (seq INTEGER PRIMARY KEY AUTOINCREMENT," + _COMMIT_COLUMNS + ")",
    "CREATE TABLE {s}.set_aside (seq INTEGER PRIMARY KEY AUTOINCREMENT, restored_step INTEGER "
    "NOT NULL, rubric TEXT," + _COMMIT_COLUMNS.replace(" UNIQUE", "") + ")",
    """CREATE TABLE {s}.verdicts (
    key TEXT PRIMARY KEY,
    criterion_id TEXT NOT NULL,
    score REAL NOT NULL,
    max INTEGER NOT NULL,
    reason TEXT NOT NULL
)""",
    "CREATE TABLE {s}.meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    *_WAITING,
)

COMMIT_FIELDS = "key, query_id, from_version, to_version, step, visit, edits, writer, seconds, time"
COMMIT_MARKS = ", ".join("?" for _ in COMMIT_FIELDS.split(", "))


def commit_values(commit: Commit) -> tuple[object, ...]:
    """Return the values of ``COMMIT_FIELDS`` for a commit that is made now."""
    return (
        commit.key,
        commit.query_id,
        commit.from_version,
        commit.rubric.version,
        commit.step,
        commit.visit,
        json.dumps([edit_row(e) for e in commit.edits]),
        commit.writer,
        commit.seconds,
        time.time(),
    )


def create_tables(db: sqlite3.Connection, schema: str = "main") -> None:
    """Make the tables in an empty file and number the schema."""
    for table in _TABLES:
        db.execute(table.format(s=schema))
    db.execute(f"PRAGMA {schema}.user_version = {SCHEMA_VERSION}")


def open_file(path: Path, *, is_read_only: bool = False) -> sqlite3.Connection:
    """Open (and unless read-only, make) a rubric file; ConfigError if it is not one of ours."""
    if is_read_only and not path.is_file():
        raise ConfigError(f"got no file {path}, wanted a run's rubrics.sqlite")
    if not is_read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
    mode = _reading_mode(path) if is_read_only else "rwc"
    db: sqlite3.Connection | None = None
    try:
        db = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,  # transactions are written out: BEGIN IMMEDIATE ... COMMIT
            check_same_thread=False,  # the owner uses it from one thread at a time
        )
        if not is_read_only:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            _make_or_migrate(db)
        check_schema(db, path)
    except sqlite3.DatabaseError as error:
        if db is not None:
            db.close()
        if "locked" in str(error):
            raise ConfigError(
                f"got {path}, which another process kept locked for {BUSY_TIMEOUT_S:g} s, wanted "
                "a turn: try again, and see what holds it"
            ) from error
        raise ConfigError(
            f"got {path}, which SQLite cannot read ({error}), wanted a run's rubrics.sqlite: "
            "restore it from a checkpoint, or start over with fresh=true"
        ) from error
    except ConfigError:
        if db is not None:
            db.close()
        raise
    return db


def _reading_mode(path: Path) -> str:
    """Return how SQLite opens the file for reading.

    In a folder that cannot be written it has no place for the shared index of the write-ahead log,
    and can only take the file as one that nobody changes.
    """
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if os.access(path.parent, os.W_OK) or index.exists():
        return "ro"
    if log.is_file() and log.stat().st_size > 0:
        raise ConfigError(
            f"got {path} with a write-ahead log that was never closed, in a folder that cannot be "
            "written, wanted a place to read both together: copy the run's folder, and take the "
            "copy"
        )
    return "ro&immutable=1"


def check_schema(db: sqlite3.Connection, path: Path, schema: str = "main") -> None:
    """Refuse a file of an unknown schema."""
    found = schema_of(db, schema)
    if found not in _READABLE:
        raise ConfigError(
            f"got {path} of schema {found}, wanted {SCHEMA_VERSION}: it was written by another "
            "version of Ratchet; use that one, or start over with fresh=true"
        )


def schema_of(db: sqlite3.Connection, schema: str = "main") -> int:
    """Return the number of the file's schema."""
    return int(db.execute(f"PRAGMA {schema}.user_version").fetchone()[0])


def _make_or_migrate(db: sqlite3.Connection) -> None:
    with transaction(db):  # two openers of one file: one changes it, the other waits
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            create_tables(db)
        elif schema_of(db) == 1:
            for table in _WAITING:
                db.execute(table.format(s="main"))
            db.execute(f"PRAGMA main.user_version = {SCHEMA_VERSION}")


@contextmanager
def transaction(db: sqlite3.Connection, *, is_immediate: bool = True) -> Iterator[None]:
    """BEGIN IMMEDIATE to COMMIT; rolled back whole on any exception, a failed COMMIT's too.

    Inside another one it is a savepoint: an exception undoes what is inside and no more, and what
    is inside is on disk when the outer one is. A full disk ends a transaction by itself or leaves
    it open; either way the next one can begin.
    """
    if db.in_transaction:
        with _savepoint(db):
            yield
        return
    db.execute("BEGIN IMMEDIATE" if is_immediate else "BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def _savepoint(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("SAVEPOINT inner_part")
    try:
        yield
        db.execute("RELEASE inner_part")
    except BaseException:
        if db.in_transaction:  # an error of the disk may have ended the outer one
            db.execute("ROLLBACK TO inner_part")
            db.execute("RELEASE inner_part")
        raise
