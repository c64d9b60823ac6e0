"""WildChecklists (viswavi/wildchecklists, viswavi/rlcf): a checklist as one text a row.

``requirements`` holds lines ``N) question? (importance: W/100)``. RLCF's universal item stands
among them as one item of several lines: a stem and sub-points that are numbered from 1 again, with
one importance note at its end. So a line without a note goes on until a note comes, else the item
would count several times. Weights stay importances out of 100 (CARE, whose rows have an ``anchor``
beside them, weighs every criterion alike). The preference pair goes to ``meta``: ``chosen`` and
``rejected`` are the answers' texts.
"""

import re
from typing import Any, cast

from core.formats.base import CHECKLIST, Fields, Format, as_list, query_of, rubric_of_entries
from core.formats.checklists import checklist_lines, split_importance
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query

_NOTE = re.compile(r"\(importance:\s*\d+(?:\.\d+)?\s*/\s*100\s*\)", re.IGNORECASE)
_NUMBER = re.compile(r"^\s*\d{1,3}\)\s*")


def wildchecklist_entries(block: str) -> list[dict[str, Any]]:
    """Return the items of a checklist in its order; a block without any note has one a line.

    Raises RowError when text stands after the last note: it may be the rest of any item.
    """
    if not _NOTE.search(block):
        return checklist_lines(block)
    entries: list[dict[str, Any]] = []
    item: list[str] = []
    for line in block.replace("\r", "").split("\n"):
        if not line.strip():
            continue
        text, weight = split_importance(line if item else _NUMBER.sub("", line, count=1))
        item.append(text)
        if weight is not None:
            entries.append({"text": "\n".join(t for t in item if t), "weight": weight})
            item = []
    if item:
        raise RowError(
            "bad_rubric",
            f"got {' '.join(item)[:60]!r} after the last importance note, wanted a note at the "
            "end of each item",
        )
    return entries


def pair_meta(fields: Fields) -> dict[str, str]:
    """Return the answers of a row's preference pair (texts, or conversations that end in one)."""
    pair = {key: _answer(fields.get(key)) for key in ("chosen", "rejected")}
    return {key: text for key, text in pair.items() if text}


def _answer(value: Any) -> str:
    turns = [cast(Fields, t) for t in as_list(value) if isinstance(t, dict)]
    if not turns:
        return value if isinstance(value, str) else ""
    last: Any = turns[-1]
    text: Any = last.get("content", last.get("value"))
    is_answer = last.get("role", last.get("from")) in ("assistant", "gpt")
    return text if is_answer and isinstance(text, str) else ""


def _claim(fields: Fields) -> str:
    block = fields.get("requirements")
    is_checklist = isinstance(block, str) and _NOTE.search(block) is not None
    return "requirements with an importance out of 100 in each item" if is_checklist else ""


def _read(fields: Fields) -> Query:
    messages = messages_of(fields)
    block = fields.get("requirements")
    if not isinstance(block, str) or not block.strip():
        raise RowError("no_rubrics", "got no text in requirements, wanted a checklist")
    rubric = rubric_of_entries(wildchecklist_entries(block))
    return query_of(fields, messages, rubric, meta=pair_meta(fields))


FORMAT = Format(
    name="wildchecklists",
    source="WildChecklists and RLCF's training rows; WildChecklist-9K of CARE",
    normaliser="weight100",
    reward=CHECKLIST,
    claim=_claim,
    read=_read,
)
