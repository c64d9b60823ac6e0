"""Rubrics as Rewards (ScaleAI/RaR-Medicine, RaR-Science): weighted items in four categories.

``question``, ``reference_answer`` (read as the anchor), ``rubric`` [{title, description, weight}]
or ``rubric_list`` [texts]; a description begins with "Essential Criteria: ", "Important Criteria:
", "Optional Criteria: " or "Pitfall Criteria: ". A pitfall's stored weight is negative while its
text may already say what is wanted (``core/formats/pitfalls.py``): such a one gets the size of its
weight and loses the prefix, others stay penalties, and ``meta`` counts both.
``rar_explicit`` takes the paper's category weights instead (1.0, 0.7, 0.3, 0.9), with every pitfall
put as something to avoid. Rows without these prefixes are plain rows.
"""

import re
from typing import Any, cast

from core.formats.base import (
    CHECKLIST,
    Fields,
    Format,
    as_list,
    query_of,
    rubric_of_entries,
)
from core.formats.pitfalls import wording
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query

_CATEGORY = re.compile(r"\s*(Essential|Important|Optional|Pitfall) Criteria\s*:\s*", re.IGNORECASE)
_EXPLICIT = {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": 0.9}
"""RaR-Explicit's weights (the paper's section on explicit aggregation)."""
_COLUMNS = ("rubric", "rubrics", "rubric_list")


def _items(fields: Fields) -> list[Fields]:
    """Return the items as ``{"text", "weight"}``; a weight that is not there is None."""
    none: list[Any] = []
    entries = next((e for c in _COLUMNS if (e := as_list(fields.get(c)))), none)
    return [_item(e) for e in entries]


def _item(entry: Any) -> Fields:
    fields = cast(Fields, entry) if isinstance(entry, dict) else {"description": entry}
    text: Any = fields.get("description")
    if not isinstance(text, str):
        raise RowError("bad_rubric", f"got the description {text!r:.60}, wanted a text")
    return {"text": text, "weight": fields.get("weight")}


def _category(text: str) -> tuple[str, str]:
    """Return the category in lower case (empty if there is none) and the text behind it."""
    match = _CATEGORY.match(text)
    return (match[1].lower(), text[match.end() :]) if match is not None else ("", text)


def _claim(fields: Fields) -> str:
    for column in _COLUMNS:
        for entry in as_list(fields.get(column)):
            value: Any = (
                cast(Fields, entry).get("description") if isinstance(entry, dict) else entry
            )
            if isinstance(value, str) and _category(value)[0]:
                return f'{column} items that begin with "... Criteria:"'
    return ""


def _read(fields: Fields) -> Query:
    messages = messages_of(fields)
    counts = {"pitfalls_turned": 0, "pitfalls_as_penalty": 0}
    entries: list[Fields] = []
    for item in _needed(_items(fields)):
        category, text = _category(item["text"])
        is_pitfall = category == "pitfall"
        is_negative = is_pitfall if item["weight"] is None else _is_negative(item["weight"])
        if not is_pitfall or not is_negative:
            entries.append(item)
        elif wording(text) == "positive":
            counts["pitfalls_turned"] += 1
            entries.append({"text": text, "weight": _size(item["weight"])})
        else:
            counts["pitfalls_as_penalty"] += 1
            weight = -1.0 if item["weight"] is None else item["weight"]
            entries.append({"text": item["text"], "weight": weight})
    meta = {key: count for key, count in counts.items() if count}
    return query_of(_without_list(fields), messages, rubric_of_entries(entries), meta=meta)


def _read_explicit(fields: Fields) -> Query:
    messages = messages_of(fields)
    entries: list[Fields] = []
    for item in _needed(_items(fields)):
        category, text = _category(item["text"])
        if not category:
            raise RowError(
                "bad_rubric",
                f"got {text[:60]!r} without a category, wanted it to begin with one of "
                "Essential, Important, Optional or Pitfall Criteria:",
            )
        if category == "pitfall" and wording(text) != "positive":
            text = f"Avoids this mistake: {text}"
        entries.append({"text": text, "weight": _EXPLICIT[category]})
    return query_of(_without_list(fields), messages, rubric_of_entries(entries))


def _needed(items: list[Fields]) -> list[Fields]:
    if not items:
        raise RowError("no_rubrics", f"got no criteria, wanted a list in one of {_COLUMNS}")
    return items


def _is_negative(weight: Any) -> bool:
    try:
        return float(weight) < 0
    except (TypeError, ValueError):
        return False  # the reader of criteria names it


def _size(weight: Any) -> float:
    return 1.0 if weight is None else abs(float(weight))


def _without_list(fields: Fields) -> Fields:
    """Return the row without what only counts or repeats its rubric."""
    return {k: v for k, v in fields.items() if k not in ("rubric_list", "rubric_count")}


FORMAT = Format(
    name="rar",
    source="Rubrics as Rewards (ScaleAI/RaR-Medicine, RaR-Science)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=_claim,
    read=_read,
)

EXPLICIT = Format(
    name="rar_explicit",
    source="Rubrics as Rewards under the paper's category weights",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=lambda fields: "",  # the same rows as ``rar``: chosen by name only
    read=_read_explicit,
)
