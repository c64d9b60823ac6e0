"""Weighted criteria in the style of Online Rubrics: ``criterion`` and a whole signed weight.

``{"prompt", "rubrics" or "criteria" or "final_criteria": [{"criterion", "weight"}]}``; a criterion
is present or not, and a negative weight subtracts where it is present. What the method's stages
write (``{"stage", "output"}``) is no query: it has no prompt.
"""

from typing import Any, cast

from core.formats.base import (
    CHECKLIST,
    Fields,
    Format,
    as_object,
    objects_with,
    query_of,
    rubric_of_entries,
)
from core.formats.chasing_tail import has_counts, weighted_binary
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query

_COLUMNS = ("final_criteria", "rubrics", "criteria")
_KEYS = {"criterion", "weight", "quote", "id"}


def _items(fields: Fields) -> list[Fields]:
    for column in _COLUMNS:
        items = objects_with(fields.get(column), "criterion", "weight")
        if items:
            return items
    return []


def is_undecided(fields: Fields) -> bool:
    """Whether a row may be this format's or Chasing the Tail's: nothing in it tells."""
    is_short = bool(weighted_binary(fields)) and not has_counts(fields)
    return (
        is_short and "final_criteria" not in fields and any(e["weight"] > 1 for e in _items(fields))
    )


def _claim(fields: Fields) -> str:
    if {"stage", "output"} <= set(fields):
        return "the output of a stage"
    items = _items(fields)
    if not items or has_counts(fields) or any(not _is_item(e) for e in items):
        return ""
    if "final_criteria" in fields:
        return "criterion and weight in final_criteria"
    return "" if weighted_binary(fields) else "criterion and whole weights of either sign"


def _is_item(entry: Fields) -> bool:
    weight = entry["weight"]
    return set(entry) <= _KEYS and isinstance(weight, int) and not isinstance(weight, bool)


def _read(fields: Fields) -> Query:
    if {"stage", "output"} <= set(fields) and not _has_prompt(fields):
        stage: Any = fields["stage"]
        keys = sorted(as_object(fields["output"]))
        raise RowError(
            "not_a_query",
            f"got the output of the stage {stage!r:.40} ({', '.join(keys)[:60]}), which has no "
            "prompt, wanted a prompt with its criteria",
        )
    messages = messages_of(fields)
    items = _items(fields)
    if not items:
        raise RowError("no_rubrics", f"got no criteria with weights, wanted one of {_COLUMNS}")
    entries = [{"text": e["criterion"], "weight": e["weight"]} for e in items]
    return query_of(fields, messages, rubric_of_entries(entries))


def _has_prompt(fields: Fields) -> bool:
    return any(cast(object, fields.get(f)) is not None for f in ("prompt", "messages", "question"))


FORMAT = Format(
    name="online_rubrics",
    source="rows in the style of Online Rubrics (criterion, whole weight of either sign)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=_claim,
    read=_read,
)
