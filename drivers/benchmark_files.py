"""Reads a benchmark's own files as rows, by the reader of all data files (``data_records``).

Rows are what the benchmark's authors wrote; what they mean is decided in ``core/benchmarks``. A
file is named by its path below the given folder, so that two files of one name stay apart. A record
that is no object is no row of any benchmark: it is left out and told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from core.rows import Row
from drivers.data_files import load_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkFiles:
    """The rows of each file, and what tells the data of one evaluation from another's."""

    rows: Mapping[str, Sequence[Row]]
    digests: Mapping[str, str]
    """sha256 of each given file's bytes, or of names and bytes in a given folder."""
    left_out: Mapping[str, str]
    """Records that are no objects, by place, with the reason."""


def read_benchmark_files(paths: Sequence[Path]) -> BenchmarkFiles:
    """Read files and folders; ConfigError for one that is not there or cannot be read, and for two
    files of one name."""
    rows: dict[str, list[Row]] = {}
    digests: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for path in paths:
        loaded = load_rows(path)
        found: dict[str, list[Row]] = {}
        for row in loaded.rows:
            name = row.file or path.name
            own = found.setdefault(name, [])
            if isinstance(row.value, dict) and not row.problem:
                own.append(row.value)
            else:
                left_out[f"{name}, {row.place}"] = row.problem or "not an object"
        if twice := sorted(found.keys() & rows.keys()):
            raise ConfigError(f"got two files named {twice[0]!r}, wanted each file once")
        rows |= found
        digests[path.name] = loaded.fingerprint
    return BenchmarkFiles(rows=rows, digests=digests, left_out=left_out)
