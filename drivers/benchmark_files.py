"""Reads a benchmark's own files as rows: JSONL, JSON, either of them gzipped, or folders of them.

Rows are what the benchmark's authors wrote; what they mean is decided in ``core/benchmarks``. A
file is named by its path below the given folder, so that two files of one name stay apart.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.rows import Row

_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkFiles:
    """The rows of each file, and what tells the data of one evaluation from another's."""

    rows: Mapping[str, Sequence[Row]]
    digests: Mapping[str, str]
    """sha256 of each file's bytes."""


def read_benchmark_files(paths: Sequence[Path]) -> BenchmarkFiles:
    """Read files and folders; ConfigError for one that is not there or cannot be read."""
    rows: dict[str, list[Row]] = {}
    digests: dict[str, str] = {}
    for path in paths:
        for name, file in _files(path):
            if name in rows:
                raise ConfigError(f"got two files named {name!r}, wanted each file once")
            try:
                data = file.read_bytes()
                text = gzip.decompress(data) if file.suffix == ".gz" else data
            except (OSError, EOFError) as error:
                raise ConfigError(
                    f"{file}: got no readable file ({error}), wanted benchmark rows"
                ) from error
            rows[name] = _rows(file, text)
            digests[name] = hashlib.sha256(data).hexdigest()
    return BenchmarkFiles(rows=rows, digests=digests)


def _files(path: Path) -> list[tuple[str, Path]]:
    if path.is_file():
        return [(path.name, path)]
    if not path.is_dir():
        raise ConfigError(f"got {path}, which is neither a file nor a folder, wanted the data")
    found = sorted(p for p in path.rglob("*") if p.is_file() and p.name.endswith(_ENDINGS))
    if not found:
        raise ConfigError(f"{path}: got no data file, wanted one that ends in {list(_ENDINGS)}")
    return [(p.relative_to(path).as_posix(), p) for p in found]


def _rows(file: Path, data: bytes) -> list[Row]:
    text = data.decode("utf-8-sig", "replace")
    is_lines = file.name.removesuffix(".gz").endswith(".jsonl")
    try:
        values = _line_values(text) if is_lines else _whole_values(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: got text that is no JSON ({error}), wanted rows") from error
    if not all(isinstance(value, dict) for value in values):
        raise ConfigError(f"{file}: got rows that are no objects, wanted one object a row")
    return values


def _line_values(text: str) -> list[Any]:
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _whole_values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
