"""Chasing the Tail (JunkaiZ/Rubrics): yes or no criteria that weigh 1 to 3.

``{"prompt", "rubrics": [{"criterion", "weight"}], "number_of_criteria", "total_weight"}``, or the
pipeline's ``{"id", "prompt", "criteria": [{"criterion", "weight", "local_id"}], "total_criteria",
"total_weight"}``. As RARE runs it (its appendix E.2), a criterion's weight is its maximum, given
whole or not at all; the released code's own score is the plain sum of the weights met.
Rows with neither count are not this format's for certain: they read as plain rows with a note.
"""

from typing import Any, cast

from core.formats.base import Fields, Format, query_of, rubric_from
from core.formats.checklists import criteria_of
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query
from core.rubric import MAX_SCALE, Criterion

_KEYS = {"criterion", "weight"}
_COUNTS = ("total_weight", "number_of_criteria", "total_criteria")
_LARGEST_POINTS = 10
"""It weighs from 1 to 3; importances out of 100 are no points."""


def weighted_binary(fields: Fields) -> list[Fields]:
    """Return the row's criteria if they are ``{"criterion", "weight"}`` with small whole weights.

    Empty otherwise.
    """
    entries: Any = fields.get("rubrics", fields.get("criteria"))
    if not isinstance(entries, list):
        return []
    items = [cast(Fields, e) for e in cast(list[Any], entries) if isinstance(e, dict)]
    is_all = len(items) == len(cast(list[Any], entries))
    return items if is_all and all(map(_is_item, items)) else []


def _is_item(entry: Fields) -> bool:
    weight = entry.get("weight")
    if not _KEYS <= set(entry) <= {*_KEYS, "local_id"}:
        return False
    return (
        isinstance(weight, int) and not isinstance(weight, bool) and 1 <= weight <= _LARGEST_POINTS
    )


def has_counts(fields: Fields) -> bool:
    """Whether the row has one of the counts that tell this format from others."""
    return any(fields.get(c) is not None for c in _COUNTS)


def with_weight_as_max(criterion: Criterion) -> Criterion:
    """Return a weighted binary criterion as one of 0 or its weight (RARE appendix E.2).

    The levels tell the judge that nothing lies between; a score between them is read all the same.
    """
    if not criterion.weight.is_integer() or not 1 <= criterion.weight <= MAX_SCALE:
        raise RowError(
            "bad_weight", f"got the weight {criterion.weight:g}, wanted a whole number from 1"
        )
    top = int(criterion.weight)
    if top == 1 or criterion.kind == "resist":
        return criterion
    between = f"never given: a response that meets it only in part gets 0, all others {top}"
    levels = {0: "not met, or met only in part", **dict.fromkeys(range(1, top), between)}
    return criterion.model_copy(update={"max": top, "levels": levels | {top: "met in full"}})


def _claim(fields: Fields) -> str:
    is_claimed = has_counts(fields) and weighted_binary(fields)
    return "criterion and weight, with the row's count or total of them" if is_claimed else ""


def _read(fields: Fields) -> Query:
    messages = messages_of(fields)
    criteria = criteria_of({"rubrics": fields.get("rubrics", fields.get("criteria"))})
    return query_of(fields, messages, rubric_from(map(with_weight_as_max, criteria)))


FORMAT = Format(
    name="chasing_tail",
    source="Chasing the Tail (JunkaiZ/Rubrics)",
    normaliser="raw_sum",
    reward={"weights": "checklist", "normaliser": "raw_sum"},
    claim=_claim,
    read=_read,
)
