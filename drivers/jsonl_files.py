"""JSONL files that survive being cut off at any moment.

A line is whole when it ends in a newline. Appending writes whole lines and syncs them to disk;
reading leaves out a half line at the end, and names file and line of anything else that is not
JSON. What is rewritten appears at once or not at all.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.rows import Row, json_line


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]], *, is_shared: bool = False) -> None:
    """Append whole lines, on disk when this returns; a half line left before them is cut first.

    ``is_shared``: another process may be appending too, whose unfinished line is not to be cut.
    """
    lines = b"".join(json_line(row) for row in rows)
    if not lines:
        return
    if not is_shared:
        cut_half_line(path)
    with path.open("ab") as file:
        file.write(lines)  # in one system call, so that lines of two processes do not mix
        file.flush()
        os.fsync(file.fileno())


def read_rows(path: Path) -> Iterator[Row]:
    """Read a file's rows; none for a missing file."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"{path}:{number}: got a line that is not JSON ({error}), wanted one object "
                    "a line"
                ) from error
            if not isinstance(row, dict):
                raise ConfigError(f"{path}:{number}: got {line[:40]!r}, wanted one object a line")
            yield row


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".tmp")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def keep_rows(path: Path, should_keep: Callable[[Row], bool]) -> int:
    """Rewrite a file with the rows to keep; return how many were left out."""
    if not path.is_file():
        return 0
    rows = list(read_rows(path))
    kept = [row for row in rows if should_keep(row)]
    if len(kept) < len(rows) or not _ends_whole(path):
        write_whole(path, b"".join(json_line(row) for row in kept))
    return len(rows) - len(kept)


def cut_half_line(path: Path) -> None:
    """Cut what stands after the last newline."""
    if path.is_file() and not _ends_whole(path):
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
