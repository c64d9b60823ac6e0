"""OpenRubrics (OpenRubrics/OpenRubrics, OpenRubric-v2): numbered lines with a tag each.

``{"instruction", "rubric": "1. text [Hard Rule]\\n2. text [Principle]", "source"}``. Each line is a
binary criterion that counts alike; its tag goes to ``meta.rubric_tags`` by criterion id. Columns of
a preference pair stay in ``meta`` as they are (their names differ between versions).
"""

import re

from core.formats.base import CHECKLIST, Fields, Format, query_of, rubric_of_entries
from core.formats.checklists import checklist_lines
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query

_TAG = re.compile(r"\s*\*{0,2}\[(Hard Rule|Principle)\]\*{0,2}\s*[:\-]?\s*", re.IGNORECASE)


def tagged_lines(block: str) -> list[tuple[str, str]]:
    """Return text and tag of each line; the tag is empty where a line has none."""
    found: list[tuple[str, str]] = []
    for entry in checklist_lines(block):
        tag = _TAG.search(entry["text"])
        text = _TAG.sub(" ", entry["text"]).strip()
        if text:
            found.append((text, tag[1].lower().replace(" ", "_") if tag is not None else ""))
    return found


def has_tags(value: object) -> bool:
    """Whether a value is a text with this format's tags."""
    return isinstance(value, str) and _TAG.search(value) is not None


def tagged_query(fields: Fields, prompt: object, meta: dict[str, str] | None = None) -> Query:
    """Return the query of a prompt with a block of tagged lines in ``rubric``."""
    messages = messages_of({"prompt": prompt})
    block = fields.get("rubric")
    lines = tagged_lines(block) if isinstance(block, str) else []
    if not lines:
        raise RowError("no_rubrics", "got no lines in rubric, wanted numbered criteria")
    rubric = rubric_of_entries([{"text": text} for text, _ in lines])
    tags = {i: tag for i, (_, tag) in zip(rubric.ids, lines, strict=True) if tag}
    given = {**(meta or {}), **({"rubric_tags": tags} if tags else {})}
    return query_of(fields, messages, rubric, meta=given)


FORMAT = Format(
    name="open_rubrics",
    source="OpenRubrics (numbered lines tagged [Hard Rule] or [Principle])",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=lambda row: (
        "instruction, and lines tagged [Hard Rule] or [Principle] in rubric"
        if "instruction" in row and has_tags(row.get("rubric"))
        else ""
    ),
    read=lambda row: tagged_query(row, row.get("instruction")),
)
