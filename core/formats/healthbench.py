"""HealthBench and its professional variant (OpenAI): physicians' criteria with points.

``{"prompt_id", "prompt": [messages], "rubrics": [{"criterion", "points", "tags"}], "example_tags",
"ideal_completions_data"}``. Negative points mean that the bad thing is met: the text says the bad
thing, so sign and text stay, and such a criterion is a penalty. The physicians' ideal completion is
the anchor. Tags go to ``meta``: ``rubric_tags`` by criterion id. The professional rows have
``conversation.messages`` and ``rubric_items`` [{criterion_text, points}].
"""

from typing import Any

from core.clean_text import clean_text
from core.formats.base import (
    CHECKLIST,
    Fields,
    Format,
    as_list,
    as_object,
    objects_with,
    query_of,
    rubric_of_entries,
)
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Anchor, Query


def _anchor(fields: Fields) -> Anchor | None:
    ideal = as_object(fields.get("ideal_completions_data")).get("ideal_completion")
    if not isinstance(ideal, str) or not ideal.strip():
        return None
    return Anchor(model="physician", response=clean_text(ideal))


def _meta(fields: Fields, ids: tuple[str, ...], items: list[Fields]) -> dict[str, Any]:
    """Return the tags; criteria ids and items are in one order (no item is without a text)."""
    tags = {i: as_list(item.get("tags")) for i, item in zip(ids, items, strict=False)}
    found: dict[str, Any] = {i: t for i, t in tags.items() if t}
    meta: dict[str, Any] = {"rubric_tags": found} if found else {}
    example = as_list(fields.get("example_tags"))
    return meta | ({"example_tags": example} if example else {})


def _read(fields: Fields) -> Query:
    messages = messages_of({"prompt": fields.get("prompt")})
    items = _needed(objects_with(fields.get("rubrics"), "criterion", "points"), "rubrics")
    entries = [{"text": e["criterion"], "weight": e["points"]} for e in items]
    rubric = rubric_of_entries(entries)
    meta = _meta(fields, rubric.ids, items) if len(rubric.ids) == len(items) else {}
    return query_of(fields, messages, rubric, anchor=_anchor(fields), meta=meta)


def _read_professional(fields: Fields) -> Query:
    conversation = as_object(fields.get("conversation"))
    value: Any = fields.get("conversation.messages", conversation.get("messages"))
    messages = messages_of({"messages": value})
    items = _needed(
        objects_with(fields.get("rubric_items"), "criterion_text", "points"), "rubric_items"
    )
    rubric = rubric_of_entries(
        [{"text": e["criterion_text"], "weight": e["points"]} for e in items]
    )
    return query_of(fields, messages, rubric, anchor=_anchor(fields))


def _needed(items: list[Fields], column: str) -> list[Fields]:
    if not items:
        raise RowError(
            "no_rubrics", f"got no criteria with points in {column}, wanted at least one"
        )
    return items


def _claim(fields: Fields) -> str:
    items = objects_with(fields.get("rubrics"), "criterion", "points")
    return "rubrics with criterion and points" if items else ""


def _claim_professional(fields: Fields) -> str:
    items = objects_with(fields.get("rubric_items"), "criterion_text", "points")
    return "rubric_items with criterion_text and points" if items else ""


FORMAT = Format(
    name="healthbench",
    source="HealthBench (openai/simple-evals)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=_claim,
    read=_read,
)

PROFESSIONAL = Format(
    name="healthbench_professional",
    source="HealthBench Professional (openai/healthbench-professional)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=_claim_professional,
    read=_read_professional,
)
