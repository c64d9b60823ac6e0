"""ResearchRubrics (ScaleAI/researchrubrics): weighted criteria of deep research, by axis.

``{"prompt", "domain", "sample_id", "rubrics": [{"axis", "weight", "criterion"}]}``. A negative one
takes points away where the text is true. Axes go to ``meta.rubric_tags`` by criterion id.
"""

from typing import Any

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
    return objects_with(fields.get("rubrics"), "axis", "weight", "criterion")


def _read(fields: Fields) -> Query:
    messages = messages_of(fields)
    items = _items(fields)
    if not items:
        raise RowError("no_rubrics", "got no criteria with axis and weight, wanted at least one")
    entries = [{"text": e["criterion"], "weight": e["weight"]} for e in items]
    rubric = rubric_of_entries(entries)
    axes: dict[str, Any] = {}
    if len(rubric.ids) == len(items):
        axes = {i: str(e["axis"]) for i, e in zip(rubric.ids, items, strict=True)}
    return query_of(fields, messages, rubric, meta={"rubric_tags": axes} if axes else None)


FORMAT = Format(
    name="research_rubrics",
    source="ResearchRubrics (ScaleAI/researchrubrics)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=lambda row: "rubrics with axis, weight and criterion" if _items(row) else "",
    read=_read,
)
