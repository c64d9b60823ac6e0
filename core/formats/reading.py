"""Rows in, queries out: which format each row has, ids, repeats, and what is left out.

Pure. A row is read as the format that claims it. A row that none claims is read as the one foreign
format that claims most of its file (so that its fault is named in that format's words and no file
is read on two scales), and else as a plain row. A row that two formats claim is refused with both
names; an override settles that. Rows in our own format are read as such whatever is given.
Ids become unique texts; an exact repeat is dropped, a reused id with another content gets a new id.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from core.formats import dr_tulu, rare
from core.formats.base import Fields, Format, own_id
from core.formats.checklists import RUBRIC_FIELDS
from core.formats.names import FormatName
from core.formats.native import is_native
from core.formats.online_rubrics import is_undecided
from core.formats.registry import FORMATS, claims
from core.formats.rows import Dropped, ReadRows, Row, RowError
from core.query import Query
from core.rubric import Rubric

Watch = Callable[[Sequence[Row]], Iterable[Row]]
"""Passes rows on, one by one: where a progress bar comes in."""


def read_rows(
    rows: Sequence[Row], data_format: FormatName = "auto", watch: Watch = iter
) -> ReadRows:
    """Return the queries of ``rows`` in order, and what was dropped.

    Own ids are given out first, in file order, so that a made-up id never takes one.
    """
    chosen = _Chosen.of(rows, data_format)
    queries: list[Query] = []
    dropped: list[Dropped] = []
    counts: Counter[str] = Counter()
    seen = _Seen(reserved={own for row in rows if (own := own_id(row.value)) is not None})
    for row, found in zip(watch(rows), chosen.claims, strict=True):
        try:
            known = chosen.format_of(row, found)
            query = _query(row, known, seen)
        except RowError as error:
            dropped.append(_dropped(row, error))
            continue
        counts[known.name] += 1
        queries.append(query)
    return ReadRows(
        queries=tuple(queries),
        dropped=tuple(dropped),
        formats=dict(counts),
        why={name: chosen.why.get(name, "nothing tells another format") for name in counts},
        notes=_notes(rows) if data_format == "auto" and counts["plain"] else (),
    )


def with_rubric(row: Row, rubric: Rubric) -> Row:
    """Return the row with ``rubric`` where it has none of its own, for rubrics that a task gives.

    A row that is no object is returned as it is.
    """
    value: Any = row.value
    if row.problem or not isinstance(value, dict):
        return row
    fields = cast(Fields, value)
    has_own = any(fields.get(f) is not None for f in RUBRIC_FIELDS)
    if has_own or rare.nested_rubric(fields) or dr_tulu.ground_truth(fields):
        return row
    given = rubric.model_dump(mode="json", include={"criteria"})
    return replace(row, value=fields | {"rubric": given})


def _dropped(row: Row, error: RowError) -> Dropped:
    return Dropped(
        row=row.number, reason=error.reason, detail=error.detail, line=row.line, file=row.file
    )


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    places = [row.place for row in rows if is_undecided(_fields(row))]
    if not places:
        return ()
    return (
        f"{len(places)} rows (first: {places[0]}) hold only criterion and a small whole weight, as "
        "chasing_tail (weight is the maximum) and online_rubrics (weight is a weight) do, and are "
        "read as plain rows with weights: say which with the format",
    )


# ------------------------------------------------------------------ which format
@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which format reads which row."""

    given: Format | None
    home: Mapping[str, str]
    """By file, the format of the rows that none claims."""
    claims: Sequence[Mapping[str, str]]
    """By row, the formats that claim it, each with what tells it."""
    why: Mapping[str, str]

    @classmethod
    def of(cls, rows: Sequence[Row], name: FormatName) -> "_Chosen":
        if name != "auto":
            why = {"native": "messages, and a rubric of criteria with ids", name: "it was given"}
            none: list[Mapping[str, str]] = [{} for _ in rows]
            return cls(FORMATS[name], {}, none, why)
        found = [claims(fields) if (fields := _fields(row)) else {} for row in rows]
        sizes = Counter(row.file for row in rows if _fields(row))
        counts: dict[str, Counter[str]] = {}
        why: dict[str, str] = {}
        for row, names in zip(rows, found, strict=True):
            counts.setdefault(row.file, Counter()).update(names.keys())
            why = names | why
        home = {file: _home(counter, sizes[file]) for file, counter in counts.items()}
        return cls(None, home, found, why)

    def format_of(self, row: Row, found: Mapping[str, str]) -> Format:
        value: Any = row.value
        if row.problem:
            raise RowError(row.problem, str(value))
        if not isinstance(value, dict):
            raise RowError("not_object", f"got {value!r:.60}, wanted an object")
        if is_native(cast(Fields, value)):
            return FORMATS["native"]
        if self.given is not None:
            return self.given
        if len(found) > 1:
            both = "; ".join(f"{name}: {why}" for name, why in found.items())
            raise RowError("ambiguous_format", f"got a row of {both}; wanted one: give the format")
        return FORMATS[next(iter(found), self.home.get(row.file, "plain"))]


def _fields(row: Row) -> Fields:
    """Return the row's object; empty where it is none."""
    value: Any = row.value
    return cast(Fields, value) if isinstance(value, dict) and not row.problem else {}


def _home(counter: Counter[str], size: int) -> str:
    foreign = [name for name in counter if name != "native"]
    is_one = len(foreign) == 1 and 2 * counter[foreign[0]] >= size
    return foreign[0] if is_one else "plain"


# ------------------------------------------------------------------ one row
@dataclass(frozen=True, slots=True)
class _Seen:
    """What earlier rows used."""

    reserved: set[str]
    """Ids that rows give themselves."""
    ids: set[str] = field(default_factory=set[str])
    contents: dict[tuple[str | None, str], str] = field(
        default_factory=dict[tuple[str | None, str], str]
    )
    """Where a row's own id (None if it had none) and its content's digest stood first."""


def _query(row: Row, known: Format, seen: _Seen) -> Query:
    fields = cast(Fields, row.value)
    try:
        query = known.read(fields)
    except RecursionError:
        raise RowError("invalid", "got values nested too deeply, wanted plain columns") from None
    is_own_format = known.name == "native"
    content = _digest(query)
    own = query.id if is_own_format else own_id(fields)
    first = seen.contents.get((own, content))
    if first is not None:
        of_id = "" if own is None else f" (id {own!r:.80})"
        raise RowError("duplicate", f"the row repeats {first}{of_id}")
    if is_own_format and own in seen.ids:
        raise RowError("duplicate_id", f"got the id {own!r} a second time, wanted unique ids")
    is_free = own is not None and own not in seen.ids
    name = own if own is not None and is_free else _new_id(own, content, seen)
    seen.ids.add(name)
    seen.contents[own, content] = row.place
    return query if query.id == name else query.model_copy(update={"id": name})


def _new_id(own: str | None, content: str, seen: _Seen) -> str:
    """Return an id made from the content, so that it stays when rows move."""
    stem = f"{own or 'q'}-{content[:10]}"
    name, count = stem, 1
    while name in seen.ids or name in seen.reserved:
        count += 1
        name = f"{stem}-{count}"
    return name


def _digest(query: Query) -> str:
    """Return what tells two rows with different content apart."""
    parts = query.model_dump(mode="json", include={"messages", "rubric", "anchor", "gold"})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
