"""A large ``rubrics.sqlite`` in seconds: rows written in bulk, of the shape that commits leave.

Every rubric has five criteria; each later version has one of them rewritten, with an edit that
names two rollouts, two quotes and an analysis. The rows go straight into the store's own tables, in
transactions of ``_ROWS_PER_TRANSACTION``; a test compares them with what real commits would have
left.
"""

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from actors.rubric_schema import COMMIT_FIELDS, COMMIT_MARKS, commit_values, open_file, transaction
from core.records import Commit, Evidence, RubricEdit
from core.rows import rubric_row
from core.rubric import Criterion, Rubric

NUM_CRITERIA = 5

_ROWS_PER_TRANSACTION = 100_000
_LOG_EVERY_S = 5.0
_MARK = "@@"
"""Stands for the query's number in a text that is made once a version."""

log = logging.getLogger("ratchet")


def rubric_of(number: int | str) -> Rubric:
    """Return the initial rubric of a query."""
    criteria = (
        Criterion(
            id=f"c{i}",
            text=f"Part {i} of the request of query {number} is answered with a statement that can "
            "be checked, and an example that fits the reader whom the request names.",
        )
        for i in range(NUM_CRITERIA)
    )
    return Rubric(criteria=tuple(criteria))


def next_commit(query_id: str, old: Rubric, number: int | str) -> Commit:
    """Return the commit that rewrites one criterion of ``old``."""
    version = old.version + 1
    place = version % len(old.criteria)
    before = old.criteria[place]
    new = Criterion(
        id=before.id,
        text=f"Revision {version}: query {number} is answered on this point with two facts that do "
        "not repeat each other, without praise of the answer itself.",
    )
    criteria = (*old.criteria[:place], new, *old.criteria[place + 1 :])
    edit = RubricEdit(
        method="care",
        branch="adaptive",
        status="accepted",
        reason="the top rollout passes it without an answer",
        old=before,
        new=new,
        evidence=Evidence(
            rollouts=(0, 3),
            quotes=("as I said, this answer is complete", "in short, all points are covered"),
            analysis=f"Version {version}: rollouts 0 and 3 of {number} pass every criterion by "
            "naming it and saying nothing about it; the anchor gives two facts instead. " * 2,
        ),
    )
    return Commit(
        query_id=query_id,
        from_version=old.version,
        rubric=old.with_criteria(criteria),
        edits=(edit,),
        step=version,
        visit=version - 1,
        key=f"{query_id}:{version - 1}:next_visit",
        writer="bench",
        seconds=20.0,
    )


def query_ids(num_queries: int) -> tuple[str, ...]:
    """Return the ids of the file's rubrics."""
    return tuple(f"q{number:06d}" for number in range(num_queries))


def build_file(path: Path, num_queries: int, num_versions: int) -> None:
    """Make the file with ``num_versions`` versions of each rubric, version 0 among them."""
    db = open_file(path)
    ids = query_ids(num_queries)
    texts = list(_texts(num_versions))
    per_part = max(1, _ROWS_PER_TRANSACTION // num_versions)
    told = time.monotonic()
    try:
        for start in range(0, num_queries, per_part):
            numbers = range(start, min(num_queries, start + per_part))
            with transaction(db):
                db.executemany(
                    "INSERT INTO versions (query_id, version, rubric, step, key) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (row for n in numbers for row in _version_rows(ids[n], n, texts)),
                )
                db.executemany(
                    f"INSERT INTO commits ({COMMIT_FIELDS}) VALUES ({COMMIT_MARKS})",
                    (row for n in numbers for row in _commit_rows(ids[n], n, texts)),
                )
            if time.monotonic() - told > _LOG_EVERY_S:
                told = time.monotonic()
                log.info("store: %d of %d rubrics written", numbers.stop, num_queries)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()


def _texts(num_versions: int) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield, a version, the rubric's text and its commit's values, with marks for the query."""
    rubric = rubric_of(_MARK)
    yield _text(rubric), ()
    for _ in range(num_versions - 1):
        commit = next_commit(_MARK, rubric, _MARK)
        rubric = commit.rubric
        yield _text(rubric), commit_values(commit)


def _version_rows(
    query_id: str, number: int, texts: list[tuple[str, tuple[object, ...]]]
) -> Iterator[tuple[object, ...]]:
    for version, (text, _) in enumerate(texts):
        key = None if version == 0 else f"{query_id}:{version - 1}:next_visit"
        yield query_id, version, text.replace(_MARK, str(number)), version, key


def _commit_rows(
    query_id: str, number: int, texts: list[tuple[str, tuple[object, ...]]]
) -> Iterator[tuple[object, ...]]:
    for version, (_, values) in enumerate(texts[1:], start=1):
        _, _, from_version, to_version, step, visit, edits, *rest = values
        key = f"{query_id}:{version - 1}:next_visit"
        edits = str(edits).replace(_MARK, str(number))
        yield key, query_id, from_version, to_version, step, visit, edits, *rest


def _text(rubric: Rubric) -> str:
    return json.dumps(rubric_row(rubric))
