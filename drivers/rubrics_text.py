"""How ``ratchet rubrics`` writes rubrics on a terminal: tables, criteria, changes.

Criteria and reasons were written by models, perhaps out of what a policy wrote: control characters
and marks that turn the direction of writing never reach the terminal.
"""

import unicodedata
from collections.abc import Iterable, Sequence

from core.rubric import TAGS, Criterion
from core.rubric_diff import CriterionChange

_JOINERS = "\u200c\u200d"
"""Format characters that some scripts need."""


def shown(text: str, limit: int = 0) -> str:
    """Return text on one line that a terminal only prints; cut at ``limit`` where there is one."""
    kept = "".join(_shown(c) for c in text)
    line = " ".join(kept.split())
    return line if not limit or len(line) <= limit else line[: limit - 1] + "\u2026"


def _shown(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Cf":
        return char if char in _JOINERS else ""
    if category == "Cs":
        return "?"
    return " " if category in ("Cc", "Zl", "Zp") else char


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns; the last column is as wide as it is."""
    cells = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads) - 1)]
    return [
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in cells
    ]


def criterion_text(criterion: Criterion) -> str:
    """Return a criterion on one line: id, tag, text, and what is not as usual."""
    extras = [f"0..{criterion.max}"] if criterion.max != 1 else []
    extras += [f"weight {criterion.weight:g}"] if criterion.weight != 1 else []
    tail = f"  ({', '.join(extras)})" if extras else ""
    return f"{shown(criterion.id)} {TAGS[criterion.kind]} {shown(criterion.text)}{tail}"


def change_lines(changes: Iterable[CriterionChange]) -> list[str]:
    """Return the lines of a difference: ``+`` added, ``-`` removed, ``~`` changed."""
    lines: list[str] = []
    for change in changes:
        if change.old is None and change.new is not None:
            lines.append(f"  + {criterion_text(change.new)}")
        elif change.old is not None and change.new is None:
            lines.append(f"  - {criterion_text(change.old)}")
        elif change.old is not None and change.new is not None:
            lines.append(f"  ~ {shown(change.old.id)}: {', '.join(change.what)}")
            lines.append(f"      from {criterion_text(change.old)}")
            lines.append(f"      to   {criterion_text(change.new)}")
            lines += _level_lines(change)
    return lines


def _level_lines(change: CriterionChange) -> list[str]:
    if "levels" not in change.what or change.new is None or change.new.levels is None:
        return []
    return [f"      {level} = {shown(text)}" for level, text in sorted(change.new.levels.items())]


def veto_note(changes: Iterable[CriterionChange]) -> list[str]:
    """Say which vetoes a person's edit takes back or changes; only a person's edit can."""
    loosened = [c.old for c in changes if c.loosens_veto and c.old is not None]
    return [f"  note: this takes back the veto {criterion_text(c)}" for c in loosened]
