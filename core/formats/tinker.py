"""tinker-cookbook's rubric recipe: a conversation and items with a grader's output format each.

``{"convo": [messages], "rubric_items": [{"rubric_str", "extraction_regex",
"grader_output_format_instruction"}]}``; the reward is the mean over the items. Our judge has a
reply format of its own, so the two format columns are left out.
"""

from core.formats.base import (
    CHECKLIST,
    Fields,
    Format,
    objects_with,
    query_of,
    rubric_of_entries,
)
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query


def _items(fields: Fields) -> list[Fields]:
    return objects_with(fields.get("rubric_items"), "rubric_str")


def _read(fields: Fields) -> Query:
    messages = messages_of({"messages": fields.get("convo")})
    items = _items(fields)
    if not items:
        raise RowError("no_rubrics", "got no rubric_str in rubric_items, wanted at least one")
    return query_of(fields, messages, rubric_of_entries([e["rubric_str"] for e in items]))


FORMAT = Format(
    name="tinker",
    source="tinker-cookbook's rubric recipe (convo, rubric_items)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=lambda row: (
        "convo, and rubric_items with rubric_str" if "convo" in row and _items(row) else ""
    ),
    read=_read,
)
