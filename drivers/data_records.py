"""From files to records: JSONL, a JSON array (under any name), parquet, gzip, folders of them.

Knows bytes and lines only; what a record means is decided in ``core/formats``. What a file is shows
in its first bytes, not in its name. Lines end at a newline only: U+2028 and U+0085 are content.
Needs neither torch nor Ray nor vLLM; pyarrow only for parquet.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.formats.rows import Row

_ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet")
_LIST_KEYS = ("data", "rows", "queries", "examples", "records", "train")
_WANTED = "a query file (JSONL, a JSON array or parquet) or a folder of them"


def files_in(path: Path) -> tuple[Path, ...]:
    """Return the file itself, or a folder's data files in the order of their names.

    Folders below it count too; hidden files and folders do not. Raises ConfigError where there is
    none.
    """
    try:
        if not path.is_dir():
            return (path,)
        found = sorted(p for p in path.rglob("*") if _is_data(p.relative_to(path)) and p.is_file())
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise _unreadable(path, error, _WANTED) from error
    if not found:
        raise ConfigError(
            f"{path}: got a folder without data files, wanted at least one that ends in "
            f"{', '.join(_ENDINGS)} (or .gz after it)"
        )
    return tuple(found)


def _is_data(relative: Path) -> bool:
    if any(part.startswith(".") for part in relative.parts):
        return False
    return relative.name.lower().removesuffix(".gz").endswith(_ENDINGS)


def bytes_of(file: Path, wanted: str = _WANTED) -> bytes:
    """Return a file's bytes; raises ConfigError where it cannot be read."""
    try:
        return file.read_bytes()
    except (OSError, ValueError) as error:
        raise _unreadable(file, error, wanted) from error


def _unreadable(path: Path, error: OSError | ValueError, wanted: str) -> ConfigError:
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    return ConfigError(
        f"{repr(str(path)[:200])[1:-1]}: got no readable file ({reason}), wanted {wanted}; "
        "check the path in the config"
    )


def records_of(file: Path, data: bytes, name: str = "") -> list[Row]:
    """Return a file's records; ``name`` is what they call their file, where there are several."""
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(file, data)
    if data.startswith(b"PAR1"):
        return _parquet_rows(file, data, name)
    return list(_text_rows(data, name))


def as_utf8(data: bytes) -> bytes:
    """Return the bytes without byte-order mark, as UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace").encode("utf-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def _unpacked(file: Path, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(
            f"{file}: got a gzip file that cannot be unpacked ({error}), wanted a whole one; "
            "check that it was written whole"
        ) from error


# ------------------------------------------------------------------ text
def _text_rows(data: bytes, name: str) -> Iterator[Row]:
    data = as_utf8(data)
    if (values := _one_json_value(data)) is not None:
        for number, value in enumerate(values):
            yield Row(number=number, value=value, file=name)
        return
    number = 0
    for line_number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        yield _line_row(raw.strip(b"\r"), number, line_number, name)
        number += 1


def _line_row(raw: bytes, number: int, line: int, name: str) -> Row:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"got bytes that are no UTF-8 ({error.reason}), wanted UTF-8 text"
        return Row(number=number, value=detail, line=line, problem="bad_encoding", file=name)
    try:
        return Row(number=number, value=json.loads(text), line=line, file=name)
    except (ValueError, RecursionError) as error:
        detail = f"got a line that is no JSON ({error}), wanted one object a line"
        return Row(number=number, value=detail, line=line, problem="bad_json", file=name)


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


# ------------------------------------------------------------------ parquet
def _parquet_rows(file: Path, data: bytes, name: str) -> list[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        values = parquet.read_table(pyarrow.BufferReader(data)).to_pylist()
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"{file}: got a file that is no readable parquet ({error}), wanted parquet; "
            "check that it was written whole"
        ) from error
    return [Row(number=number, value=value, file=name) for number, value in enumerate(values)]
