"""Writes the results of ``ratchet analyze`` as tables on a terminal.

A result is a JSON object of numbers, of objects with numbers, and of lists of rows. Numbers stand
in one table with a column a run; each list of rows is a table of its own, thinned where it is long
(analysis.json has all of it).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.rows import Row
from drivers.rubrics_text import shown, table

_MAX_ROWS = 12
_MAX_CELL = 60


def result_text(title: str, source: str, results: Mapping[str, Row]) -> list[str]:
    """Return the lines of one analysis; ``results`` by column (run, or all of them)."""
    lines = ["", f"{title} ({source})"]
    given = {name: r for name, r in results.items() if "missing" not in r or len(r) > 1}
    for name, result in results.items():
        if name not in given:
            lines.append(f"  {shown(name, _MAX_CELL)}: not given: {result['missing']}")
    flat = {name: dict(_numbers(r)) for name, r in given.items()}
    names = list(dict.fromkeys(n for numbers in flat.values() for n in numbers))
    if names:
        heads = ["", *(shown(n, _MAX_CELL) for n in flat)]
        rows = [[n, *(_cell(numbers.get(n)) for numbers in flat.values())] for n in names]
        lines += _indented(table(heads, rows))
    for name, result in given.items():
        for path, rows in _tables(result):
            lines += ["", f"  {path}, {shown(name, _MAX_CELL)}", *_indented(_rows_table(rows))]
    return lines


# ------------------------------------------------------------------ parts of a result
def _numbers(result: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in result.items():
        name = f"{path}{key}"
        if isinstance(value, dict) and not _is_estimate(value):
            yield from _numbers(value, f"{name}.")
        elif not _is_table(value):
            yield name, value


def _tables(result: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, list[Row]]]:
    for key, value in result.items():
        if _is_table(value):
            yield f"{path}{key}", value
        elif isinstance(value, dict):
            yield from _tables(value, f"{path}{key}.")


def _is_estimate(value: Mapping[str, Any]) -> bool:
    """Whether an object is one number with its interval or count."""
    return "value" in value


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _rows_table(rows: Sequence[Row]) -> list[str]:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    heads = [h for h in heads if any(row.get(h) is not None for row in rows)]
    kept = _thinned(rows)
    lines = table(heads, [[_cell(row.get(h)) for h in heads] for row in kept])
    if len(kept) < len(rows):
        lines.append(f"({len(kept)} of {len(rows)} rows; all of them in analysis.json)")
    return lines


def _thinned(rows: Sequence[Row]) -> list[Row]:
    """Return up to so many rows, evenly over them, the first and the last included."""
    if len(rows) <= _MAX_ROWS:
        return list(rows)
    return [rows[i * (len(rows) - 1) // (_MAX_ROWS - 1)] for i in range(_MAX_ROWS)]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return _estimate(value)
    if isinstance(value, list):
        return ", ".join(map(_cell, value)) or "-"
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return shown(str(value), _MAX_CELL)


def _estimate(value: Mapping[str, Any]) -> str:
    text = _cell(value.get("value"))
    if value.get("low") is not None:
        text += f" [{_cell(value['low'])}, {_cell(value['high'])}]"
    if value.get("relative") is not None:
        text += f" ({100 * value['relative']:+.1f} %)"
    return text


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
