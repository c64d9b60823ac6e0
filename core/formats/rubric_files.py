"""One rubric as a JSON value: a file that gives all queries of a task their rubric.

Two shapes: our own list of criteria (or ``{"criteria": [...], "caps": [...]}``), and the object of
RARE's release, ``{"criteria": [{"id", "check", "scoring_rule", "max_points"}],
"reward_aggregation": {"caps": [...]}}``, whose level texts stand in the scoring rule. Read
strictly: a RARE criterion must define every level from 0 to its maximum, and nothing is guessed.
``nested_rubric`` finds a rubric that a query's row holds deeper down.
"""

import json
from typing import Any, cast

from pydantic import ValidationError

from core.clean_text import clean_text, clean_value
from core.formats.checklists import level_texts
from core.formats.rows import RowError
from core.rubric import Cap, Criterion, Rubric
from core.validation import first_problem

_RARE_KEYS = {"id", "check", "scoring_rule", "max_points"}
_MAX_PLACE = 6
_PENALTY_LEVELS = {
    0: "not true of the response",
    1: "true of it in part",
    2: "plainly true of the response",
}


def read_rubric(value: Any) -> Rubric:
    """Return the rubric of a JSON value as version 0; raises RowError with what is wrong."""
    fields = cast("dict[str, Any]", value if isinstance(value, dict) else {"criteria": value})
    entries: Any = fields.get("criteria")
    if not isinstance(entries, list) or not entries:
        raise RowError("no_rubrics", "got no list of criteria, wanted at least one criterion")
    items = cast("list[Any]", entries)
    is_rare = any(isinstance(c, dict) and "check" in c for c in items)
    if is_rare:
        criteria: Any = [_rare_criterion(c) for c in items]
        return _checked({"criteria": criteria, "caps": caps_of(fields)})
    extra = sorted(set(fields) - {"criteria", "caps", "version"})
    if extra:
        raise RowError("invalid", f"got the unknown key {extra[0]!r:.40}, wanted criteria and caps")
    return _checked({"criteria": items, "caps": fields.get("caps", [])})


def _checked(tree: dict[str, Any]) -> Rubric:
    try:
        return Rubric.model_validate(clean_value(tree))
    except ValidationError as error:
        raise RowError("invalid", first_problem(error)) from error


def _rare_criterion(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(cast("dict[str, Any]", value)) >= _RARE_KEYS:
        raise RowError("bad_rubric", f"got {value!r:.80}, wanted the keys {sorted(_RARE_KEYS)}")
    fields = cast("dict[str, Any]", value)
    name, top = fields["id"], fields["max_points"]
    if not isinstance(name, str) or not isinstance(fields["check"], str):
        raise RowError("bad_rubric", f"criterion {name!r:.40}: wanted texts as id and check")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise RowError("bad_rubric", f"criterion {name!r:.40}: got max_points {top!r:.20}, wanted "
                       "a whole number from 1")  # fmt: skip
    levels = level_texts(fields["scoring_rule"], top)
    if levels is None:
        raise RowError(
            "bad_rubric",
            f"criterion {name!r:.40}: got a scoring_rule that does not define each level "
            f"0..{top}, wanted texts like '1 = ...; 0 = ...'",
        )
    return {"id": name, "text": fields["check"], "max": top, "levels": levels}


def caps_of(fields: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the caps of RARE's ``reward_aggregation``, if the object has them."""
    rule: Any = fields.get("reward_aggregation")
    if rule is None:
        return ()
    caps: Any = cast("dict[str, Any]", rule).get("caps", []) if isinstance(rule, dict) else None
    kind: Any = cast("dict[str, Any]", rule).get("type") if isinstance(rule, dict) else None
    if not isinstance(caps, list) or (caps and kind != "normalized_sum_with_caps"):
        raise RowError(
            "bad_rubric",
            f"got reward_aggregation {rule!r:.80}, wanted type normalized_sum_with_caps and a "
            "list of caps",
        )
    wanted = set(Cap.model_fields)
    for cap in cast("list[Any]", caps):
        if not isinstance(cap, dict) or set(cast("dict[str, Any]", cap)) != wanted:
            raise RowError("bad_rubric", f"got the cap {cap!r:.80}, wanted {sorted(wanted)}")
    return tuple(cast("list[dict[str, Any]]", caps))


# ------------------------------------------------------------------ rubrics inside a row
def nested_rubric(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object with the rubric that a row holds deeper down, or None.

    RARE's release keeps it in ``extra_info.criteria`` and DR Tulu in ``ground_truth``, each as
    JSON text (an object is taken too).
    """
    extra = _object(row.get("extra_info"))
    found = _object(extra.get("criteria")) if extra else None
    return found or _ground_truth(row)


def is_scored_to_two(row: dict[str, Any], nested: dict[str, Any] | None) -> bool:
    """Whether ``nested`` is DR Tulu's rubric, whose judge scores every criterion 0, 1 or 2."""
    return nested is not None and nested == _ground_truth(row)


def with_scale_to_two(criterion: Criterion) -> Criterion:
    """Return a DR Tulu criterion on its judge's scale.

    A penalty says what its levels mean: a judge that takes high scores for praise must not read it
    the other way round.
    """
    if criterion.max != 1:
        return criterion
    levels = None if criterion.weight > 0 else _PENALTY_LEVELS
    return criterion.model_copy(update={"max": 2, "levels": levels})


def _ground_truth(row: dict[str, Any]) -> dict[str, Any] | None:
    truth: Any = row.get("ground_truth")
    if isinstance(truth, list) and len(cast("list[Any]", truth)) == 1:
        truth = cast("list[Any]", truth)[0]
    return _object(truth)


def _object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


# ------------------------------------------------------------------ weights as maxima
_CHASING_KEYS = {"criterion", "weight"}
_LARGEST_POINTS = 10
"""Chasing the Tail weighs from 1 to 3; importances out of 100 are no points."""


def is_weighted_binary(entries: Any) -> bool:
    """Whether a row's rubric is Chasing the Tail's: ``{"criterion", "weight"}``, small integers."""
    if not isinstance(entries, list) or not entries:
        return False
    for entry in cast("list[Any]", entries):
        if not isinstance(entry, dict):
            return False
        fields = cast("dict[str, Any]", entry)
        weight = fields.get("weight")
        if not _CHASING_KEYS <= set(fields) <= {*_CHASING_KEYS, "local_id"}:
            return False
        if isinstance(weight, bool) or not isinstance(weight, int):
            return False
        if not 1 <= weight <= _LARGEST_POINTS:
            return False
    return True


def with_weight_as_max(criterion: Criterion) -> Criterion:
    """Return a weighted binary criterion as one of 0 or its weight (RARE appendix E.2).

    The levels tell the judge that nothing lies between; a score between them is read all the same.
    """
    top = int(criterion.weight)
    if top == 1:
        return criterion
    between = f"never given: a response that meets it only in part gets 0, all others {top}"
    levels = {0: "not met, or met only in part", **dict.fromkeys(range(1, top), between)}
    return criterion.model_copy(update={"max": top, "levels": levels | {top: "met in full"}})


def caps_in_row(fields: dict[str, Any] | None) -> tuple[Cap, ...]:
    """Return the caps of a row's nested rubric."""
    return tuple(
        Cap.model_validate(cap | {"criterion_id": clean_text(str(cap["criterion_id"]))})
        for cap in caps_of(fields or {})
    )
