"""Query files and rubric files as a run, a command or a tool reads them.

``load_queries`` is the one way in: ``drivers/data_records.py`` makes records of files (JSONL, JSON,
parquet, gzip, folders), ``core/formats`` makes queries of records. Strict (a run's own data) means
that the first row that gives no query is a ``ConfigError`` with file, line and reason, and so are
rows of formats that count differently; otherwise such rows are reported. Needs neither torch nor
Ray nor vLLM.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from core.formats.names import FormatName
from core.formats.reading import Watch, read_rows, with_rubric
from core.formats.registry import FORMATS
from core.formats.rows import Dropped, ReadRows, Row, RowError
from core.formats.rubric_files import read_mpo_rubric, read_rubric
from core.query import Query
from core.rubric import Rubric
from drivers.data_records import as_utf8, bytes_of, files_in, records_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedQueries:
    """The queries of one file (or one folder), in file order."""

    path: str
    queries: tuple[Query, ...]
    dropped: tuple[Dropped, ...]
    fingerprint: str
    """sha256 of the file's bytes (of names and bytes in a folder, and of a format that was given):
    tells on resume whether it is still the same data."""
    formats: Mapping[str, int]
    """Queries by the format that their rows were read as (``core/formats/registry.py``)."""
    why: Mapping[str, str]
    """What told each of these formats."""
    notes: tuple[str, ...] = ()
    """What the rows leave open, for a person to decide."""
    num_rows: int = 0

    @property
    def format(self) -> str:
        """The one format of the rows; ``mixed`` where there are several."""
        return next(iter(self.formats)) if len(self.formats) == 1 else "mixed"

    @property
    def normaliser(self) -> str | None:
        """The one of ``core.normalisers.NORMALISERS`` that reproduces the source's numbers.

        None where the formats of rows that are not our own differ in it.
        """
        names = {FORMATS[name].normaliser for name in foreign(self.formats)}
        return next(iter(names)) if len(names) == 1 else None

    @property
    def reward(self) -> Mapping[str, str] | None:
        """The ``reward`` settings that do so in a run; None where the formats differ in it."""
        settings = [FORMATS[name].reward for name in foreign(self.formats)]
        return settings[0] if all(s == settings[0] for s in settings) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRows:
    """The rows of one file or folder, in file order, before anything is known about them."""

    path: str
    rows: tuple[Row, ...]
    fingerprint: str
    """sha256 of the file's bytes; of names and bytes in a folder."""


def foreign(formats: Iterable[str]) -> list[str]:
    """Return the formats that are not our own, which count as a run is told to; else our own."""
    names = list(formats)
    return [name for name in names if name != "native"] or names


def load_queries(
    path: str | Path,
    *,
    strict: bool = True,
    stand_in: Rubric | None = None,
    format: FormatName = "auto",
    limit: int | None = None,
    watch: Watch = iter,
) -> LoadedQueries:
    """Return the queries of ``path``, a file or a folder; raises ConfigError if it cannot be used.

    ``stand_in`` is the rubric of rows that have none; without it they give no query. ``format``
    says what the rows are instead of their content; ``limit`` reads the first rows only; ``watch``
    passes the rows on (a progress bar).
    """
    source, loaded = Path(path), load_rows(path)
    rows, fingerprint = list(loaded.rows), loaded.fingerprint
    if stand_in is not None:
        rows = [with_rubric(row, stand_in) for row in rows]
    if format != "auto":
        fingerprint = hashlib.sha256(f"{fingerprint}\n{format}".encode()).hexdigest()
    rows = rows[:limit]
    read = read_rows(rows, format, watch)
    if strict:
        _check_strictly(source, read)
    if not read.queries:
        reasons = sorted({d.reason for d in read.dropped}) or ["the file has no rows"]
        raise ConfigError(
            f"{source}: got no usable query ({', '.join(reasons)}), wanted at least one row with a "
            f"prompt and a rubric{_first_detail(read)}; check the file and its columns"
        )
    if read.dropped:
        logger.warning("%s", dropped_message(source, read.dropped))
    for note in read.notes:
        logger.warning("%s: %s", source, note)
    return LoadedQueries(
        path=str(source),
        queries=read.queries,
        dropped=read.dropped,
        fingerprint=fingerprint,
        formats=read.formats,
        why=read.why,
        notes=read.notes,
        num_rows=len(rows),
    )


def load_rows(path: str | Path) -> LoadedRows:
    """Return the rows of a file or folder; raises ConfigError if it cannot be read at all."""
    source = Path(path)
    files = files_in(source)
    if files == (source,):
        data = bytes_of(source)
        rows, fingerprint = records_of(source, data), hashlib.sha256(data).hexdigest()
        return LoadedRows(path=str(source), rows=tuple(rows), fingerprint=fingerprint)
    rows = []
    digest = hashlib.sha256()
    for file in files:
        name, data = file.relative_to(source).as_posix(), bytes_of(file)
        rows += records_of(file, data, name)
        line = f"{name}\0{hashlib.sha256(data).hexdigest()}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return LoadedRows(path=str(source), rows=tuple(rows), fingerprint=digest.hexdigest())


def load_rubric(path: str | Path) -> Rubric:
    """Return the rubric of a file (ours or RARE's JSON, MPO's text); ConfigError if it has none."""
    file = Path(path)
    data = as_utf8(bytes_of(file, "a rubric file (JSON)"))
    try:
        if data.lstrip().startswith(b"<rubric>"):
            return read_mpo_rubric(data.decode("utf-8", "replace"))
        return read_rubric(json.loads(data))
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


def dropped_message(source: Path, dropped: Sequence[Dropped]) -> str:
    """Return one sentence on the first row that gave no query, and how many more there are."""
    first = dropped[0]
    file = source / first.file if first.file else source
    place = f"line {first.line}" if first.line is not None else f"row {first.row}"
    more = f" ({len(dropped) - 1} more rows like this)" if len(dropped) > 1 else ""
    return (
        f"{file}, {place}: {first.reason}: {first.detail or 'the row cannot be used'}{more}; "
        "correct the row or take it out"
    )


def _check_strictly(source: Path, read: ReadRows) -> None:
    if read.dropped:
        raise ConfigError(dropped_message(source, read.dropped))
    names = foreign(read.formats)
    if len({FORMATS[name].normaliser for name in names}) > 1:
        counts = ", ".join(f"{name}: {read.formats[name]} rows" for name in names)
        raise ConfigError(
            f"{source}: got rows of formats that count differently ({counts}), wanted one format: "
            "set data.format, or keep them in files of their own"
        )


def _first_detail(read: ReadRows) -> str:
    return f" ({read.dropped[0].detail[:200]})" if read.dropped else ""
