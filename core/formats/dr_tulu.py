"""DR Tulu (rl-research/dr-tulu-rl-data): the rubric as JSON text in ``ground_truth``.

``{"query" or "Question", "rubrics": [{"description", "weight", "title"}]}``, often inside a list of
one. Its judge scores every criterion 0, 1 or 2, and a negative weight subtracts how true the
criterion is. Older rows hold ``rubric: [{"type", "rubric_item"}]`` or ScholarQA's ``{"Question",
"Answer Critical": [{"Ingredient", "Handle", "Specifics"}], "Valuable", "Context"}``, of which the
released reward scores the answer-critical ingredients, all alike; so do we. A criterion without a
weight counts 1.
"""

from typing import Any, cast

from core.formats.base import Fields, Format, as_list, as_object, query_of, rubric_from
from core.formats.checklists import criteria_of
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query
from core.rubric import Criterion

_PENALTY_LEVELS = {
    0: "not true of the response",
    1: "true of it in part",
    2: "plainly true of the response",
}
_LISTS = ("rubrics", "rubric", "Answer Critical")
_TEXTS = ("description", "rubric_item", "Ingredient")


def ground_truth(fields: Fields) -> Fields:
    """Return the row's ground truth as an object; empty where it has none with a rubric."""
    truth: Any = fields.get("ground_truth")
    listed = as_list(truth)
    for value in listed or [truth]:
        found = as_object(value)
        if any(key in found for key in _LISTS):
            return found
    return {}


def with_scale_to_two(criterion: Criterion) -> Criterion:
    """Return a criterion on the scale of DR Tulu's judge.

    A penalty says what its levels mean: a judge that takes high scores for praise must not read it
    the other way round.
    """
    if criterion.max != 1 or criterion.kind == "resist":
        return criterion
    levels = None if criterion.weight > 0 else _PENALTY_LEVELS
    return criterion.model_copy(update={"max": 2, "levels": levels})


def _entries(truth: Fields) -> list[Any]:
    key = next((k for k in _LISTS if truth.get(k)), None)
    if key is None:
        raise RowError("no_rubrics", f"got a ground_truth without criteria, wanted one of {_LISTS}")
    return [_entry(e) for e in as_list(truth[key])]


def _entry(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    entry = cast(Fields, value)
    text: Any = next((entry[k] for k in _TEXTS if entry.get(k) is not None), None)
    return entry if text is None else {"text": text, "weight": entry.get("weight")}


def _claim(fields: Fields) -> str:
    truth = ground_truth(fields)
    if not truth:
        return ""
    is_legacy = "Answer Critical" in truth
    return f"a rubric in ground_truth{' (ScholarQA ingredients)' if is_legacy else ''}"


def _read(fields: Fields) -> Query:
    truth = ground_truth(fields)
    asked: Any = truth.get("query") or truth.get("Question")
    has_prompt = any(fields.get(f) is not None for f in ("messages", "prompt"))
    messages = messages_of(fields if has_prompt else {"prompt": asked})
    criteria = criteria_of({"rubric": _entries(truth)})
    return query_of(fields, messages, rubric_from(map(with_scale_to_two, criteria)))


FORMAT = Format(
    name="dr_tulu",
    source="DR Tulu's RLER rows (rubric in ground_truth)",
    normaliser="pos_sum_floor1",
    reward={"weights": "checklist", "normaliser": "pos_sum_floor1"},
    claim=_claim,
    read=_read,
)
