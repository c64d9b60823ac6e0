"""CSV sheets that people open in a spreadsheet program, and give back filled in.

Text from a model is text there too: a cell that a program would take for a formula (it begins with
``=``, ``+``, ``-`` or ``@``, white space aside, or with a tab or a line end) gets an apostrophe in
front, which reading takes away again. Files are UTF-8 with a byte-order mark, so that Excel shows
every language; what comes back may be separated by commas, semicolons or tabs, as programs save by
the country that they are set to.
"""

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.clean_text import clean_text
from core.errors import ConfigError
from drivers.jsonl_files import write_whole

LONGEST_CELL = 32_767
"""Characters of a cell that Excel shows; LibreOffice shows all."""

_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_MARK = "'"
_DELIMITERS = (",", ";", "\t")


def guarded(text: str) -> str:
    """Return the text as a cell that no program reads as a formula."""
    is_formula = text.lstrip().startswith(_FORMULA) or text[:1] in ("\t", "\r", "\n")
    return _MARK + text if is_formula or text.startswith(_MARK) else text


def unguarded(cell: str) -> str:
    """Return the text that ``guarded`` made a cell of."""
    return cell.removeprefix(_MARK)


def write_sheet(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    """Write a sheet, whole or not at all; every cell is quoted, so that line ends stay inside."""
    made = io.StringIO(newline="")
    writer = csv.writer(made, quoting=csv.QUOTE_ALL)
    writer.writerow([guarded(c) for c in columns])
    writer.writerows([guarded(clean_text(row[c])) for c in columns] for row in rows)
    write_whole(path, made.getvalue().encode("utf-8-sig"))


def read_sheet(path: Path) -> list[dict[str, str]]:
    """Return the rows of a sheet by column; ConfigError for a file that is none.

    Rows without any text are left out, as programs add them at the end.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: got no readable file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: got bytes that are no UTF-8, wanted a CSV file saved as UTF-8"
        ) from error
    csv.field_size_limit(sys.maxsize)  # a long response is one cell
    heading = text.split("\n", 1)[0]
    there = [d for d in _DELIMITERS if d in heading]
    delimiter = min(there, key=heading.index, default=",")  # after the first column's one word
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ConfigError(f"{path}: got no CSV that can be read ({error})") from error
    if not rows:
        raise ConfigError(f"{path}: got an empty file, wanted a sheet with its heading")
    columns = [unguarded(c) for c in rows[0]]
    return [dict(zip(columns, map(unguarded, row), strict=False)) for row in rows[1:] if any(row)]
