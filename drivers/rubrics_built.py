"""What ``ratchet rubrics build`` made of a query file, and the files that it leaves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from core.formats.rows import Dropped
from core.query import Query
from core.rows import Row, json_line
from core.rubric import Rubric
from core.validation import first_problem
from drivers.asking import say
from drivers.jsonl_files import write_whole
from drivers.rubrics_build_writing import Drop


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """What came out, in the order of the query file."""

    queries: tuple[Query, ...]
    dropped: tuple[tuple[Query, Drop], ...]


def split(queries: Sequence[Query], made: Sequence[Query | Drop]) -> Built:
    """Return what was made of the queries, and what was not."""
    pairs = list(zip(queries, made, strict=True))
    return Built(
        queries=tuple(m for m in made if isinstance(m, Query)),
        dropped=tuple((q, m) for q, m in pairs if isinstance(m, Drop)),
    )


def with_rubric(query: Query, rubric: Rubric, how: str, writer: str) -> Query | Drop:
    """Return the query with its new rubric and a note on where it comes from."""
    meta = {**query.meta, "rubric_built": {"how": how, "writer": writer}}
    fields = query.model_dump() | {"rubric": rubric.model_dump(), "meta": meta}
    try:
        return Query.model_validate(fields)
    except ValidationError as error:  # a gold criterion has an id of the new rubric
        return Drop(reason="invalid", detail=first_problem(error))


def query_row(query: Query) -> Row:
    """Return the query as a line of a query file in our format."""
    row = query.model_dump(mode="json", exclude_none=True)
    if not query.rubric.caps:
        row["rubric"] = row["rubric"]["criteria"]
    return {key: value for key, value in row.items() if value not in ({}, [])}


def write_built(out: Path, built: Built, unread: Sequence[Dropped]) -> int:
    """Write queries.jsonl and dropped.jsonl, say what is in them, return the exit code.

    ``unread`` are the rows of the query file that gave no query.
    """
    rows = [_unread_row(d) for d in unread] + [_drop_row(q, d) for q, d in built.dropped]
    write_whole(out / "queries.jsonl", b"".join(json_line(query_row(q)) for q in built.queries))
    write_whole(out / "dropped.jsonl", b"".join(json_line(row) for row in rows))
    total = len(built.queries) + len(rows)
    say(f"{len(built.queries)} of {total} queries have a rubric: {out / 'queries.jsonl'}")
    if rows:
        reasons = Counter(str(row["reason"]) for row in rows)
        counted = ", ".join(f"{reason} {n}" for reason, n in reasons.most_common())
        say(f"{len(rows)} dropped ({counted}): {out / 'dropped.jsonl'}")
    passing = sum(drop.is_passing for _, drop in built.dropped)
    if passing:
        say(f"{passing} of them had no answer from an endpoint: start the same command again")
    return 1 if passing or not built.queries else 0


def _unread_row(dropped: Dropped) -> Row:
    place = {"row": dropped.row} | ({} if dropped.line is None else {"line": dropped.line})
    return {**place, "reason": dropped.reason, "detail": dropped.detail}


def _drop_row(query: Query, drop: Drop) -> Row:
    return {"id": query.id, "reason": drop.reason, "detail": drop.detail}
