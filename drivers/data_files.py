"""Reads query files: JSONL, a JSON array (under any name), parquet.

``load_queries`` is the one way in. It knows bytes, lines and files; what a row means is decided in
``core/formats``. Strict (a run's own data) means that the first row that gives no query is a
``ConfigError`` with file, line and reason; otherwise such rows are reported and left out.
Lines end at a newline only: U+2028 and U+0085 are content. Needs neither torch nor Ray nor vLLM;
pyarrow only for parquet.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.formats.loose import read_rows, with_rubric
from core.formats.rows import Dropped, Row, RowError
from core.formats.rubric_files import read_rubric
from core.query import Query
from core.rubric import Rubric

logger = logging.getLogger(__name__)

_LIST_KEYS = ("data", "rows", "queries", "examples", "records", "train")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedQueries:
    """The queries of one file, in file order."""

    path: str
    queries: tuple[Query, ...]
    dropped: tuple[Dropped, ...]
    fingerprint: str
    """sha256 of the file's bytes: tells on resume whether it is still the same data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRows:
    """The rows of one file, in file order, before anything is known about them."""

    path: str
    rows: tuple[Row, ...]
    fingerprint: str
    """sha256 of the file's bytes."""


def load_rows(path: str | Path) -> LoadedRows:
    """Return the rows of ``path``; raises ConfigError for a file that cannot be read at all."""
    file = Path(path)
    data = _bytes_of(file)
    rows = _parquet_rows(file) if file.suffix.lower() == ".parquet" else list(_text_rows(data))
    return LoadedRows(
        path=str(file), rows=tuple(rows), fingerprint=hashlib.sha256(data).hexdigest()
    )


def load_queries(
    path: str | Path, *, strict: bool = True, stand_in: Rubric | None = None
) -> LoadedQueries:
    """Return the queries of ``path``; raises ConfigError if it cannot be used.

    ``stand_in`` is the rubric of rows that have none; without it they give no query.
    """
    file, loaded = Path(path), load_rows(path)
    rows = list(loaded.rows)
    if stand_in is not None:
        rows = [with_rubric(row, stand_in) for row in rows]
    read = read_rows(rows)
    if strict and read.dropped:
        raise ConfigError(_dropped_message(file, read.dropped))
    if not read.queries:
        reasons = sorted({d.reason for d in read.dropped}) or ["the file has no rows"]
        raise ConfigError(
            f"{file}: got no usable query ({', '.join(reasons)}), wanted at least one row with a "
            "prompt and a rubric; check the file and its columns"
        )
    if read.dropped:
        logger.warning("%s", _dropped_message(file, read.dropped))
    return LoadedQueries(
        path=str(file),
        queries=read.queries,
        dropped=read.dropped,
        fingerprint=loaded.fingerprint,
    )


def load_rubric(path: str | Path) -> Rubric:
    """Return the rubric of a JSON file (ours or RARE's); raises ConfigError if it has none."""
    file = Path(path)
    data = _bytes_of(file, "a rubric file (JSON)")
    try:
        return read_rubric(json.loads(_as_utf8(data)))
    except RowError as error:
        raise ConfigError(
            f"{file}: {error.detail}; correct the file, or give another one in data.task_rubrics"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{file}: got text that is no JSON ({reason}), wanted a rubric: a list of criteria, or "
            'an object with "criteria"'
        ) from error


def _bytes_of(file: Path, what: str = "a query file (JSONL, a JSON array or parquet)") -> bytes:
    try:
        return file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConfigError(
            f"{repr(str(file)[:200])[1:-1]}: got no readable file ({reason}), wanted {what}; "
            "check the path in the config"
        ) from error


def _dropped_message(file: Path, dropped: tuple[Dropped, ...]) -> str:
    first = dropped[0]
    place = f"line {first.line}" if first.line is not None else f"row {first.row}"
    more = f" ({len(dropped) - 1} more rows like this)" if len(dropped) > 1 else ""
    return (
        f"{file}, {place}: {first.reason}: {first.detail or 'the row cannot be used'}{more}; "
        "correct the row or take it out"
    )


def _text_rows(data: bytes) -> Iterator[Row]:
    data = _as_utf8(data)
    if (values := _one_json_value(data)) is not None:
        for number, value in enumerate(values):
            yield Row(number=number, value=value)
        return
    number = 0
    for line_number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        yield _line_row(raw.strip(b"\r"), number, line_number)
        number += 1


def _as_utf8(data: bytes) -> bytes:
    """Return the bytes without byte-order mark, as UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace").encode("utf-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def _line_row(raw: bytes, number: int, line: int) -> Row:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"got bytes that are no UTF-8 ({error.reason}), wanted UTF-8 text"
        return Row(number=number, value=detail, line=line, problem="bad_encoding")
    try:
        return Row(number=number, value=json.loads(text), line=line)
    except (ValueError, RecursionError) as error:
        detail = f"got a line that is no JSON ({error}), wanted one object a line"
        return Row(number=number, value=detail, line=line, problem="bad_json")


def _one_json_value(data: bytes) -> list[Any] | None:
    """Return the records of a file that is one JSON array or object; None if it has lines."""
    start = data.lstrip()[:1]
    if start not in (b"[", b"{"):
        return None
    if start == b"{" and _is_json(data.lstrip().split(b"\n", 1)[0]):
        return None
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if isinstance(whole, dict):
        return next((whole[k] for k in _LIST_KEYS if isinstance(whole.get(k), list)), [whole])
    is_one_line_row = b"\n" not in data.strip() and not any(isinstance(v, dict) for v in whole)
    return None if is_one_line_row else whole


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parquet_rows(file: Path) -> list[Row]:
    import pyarrow.parquet as parquet

    try:
        values = parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file}: got a file that is no readable parquet ({error}), wanted parquet; "
            "check that it was written whole"
        ) from error
    return [Row(number=number, value=value) for number, value in enumerate(values)]
