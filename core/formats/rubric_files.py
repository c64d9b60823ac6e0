"""One rubric as a JSON value or text: a file that gives all queries of a task their rubric.

Three shapes: our own list of criteria (or ``{"criteria": [...], "caps": [...]}``); the object of
RARE's release, ``{"criteria": [{"id", "check", "scoring_rule", "max_points"}],
"reward_aggregation": {"caps": [...]}}``, whose level texts stand in the scoring rule; and MPO's
text file of ``<item>`` blocks, each scored 0 to 5. Read strictly: nothing is guessed.
"""

import re
from typing import Any, cast

from pydantic import ValidationError

from core.clean_text import clean_text, clean_value
from core.formats.checklists import level_texts
from core.formats.rows import RowError
from core.rubric import Cap, Criterion, Rubric
from core.validation import first_problem

_RARE_KEYS = {"id", "check", "scoring_rule", "max_points"}
_MPO_ITEM = re.compile(r"<item>(.*?)</item>", re.DOTALL)
_MPO_TOP = 5
"""Highest score of an item in MPO's released rubrics."""


def read_rubric(value: Any, *, needs_levels: bool = True) -> Rubric:
    """Return the rubric of a JSON value as version 0; raises RowError with what is wrong.

    ``needs_levels``: a RARE criterion must define every level from 0 to its maximum; without it,
    such a criterion keeps its scoring rule as part of its text.
    """
    fields = cast("dict[str, Any]", value if isinstance(value, dict) else {"criteria": value})
    entries: Any = fields.get("criteria")
    if not isinstance(entries, list) or not entries:
        raise RowError("no_rubrics", "got no list of criteria, wanted at least one criterion")
    items = cast("list[Any]", entries)
    is_rare = any(isinstance(c, dict) and "check" in c for c in items)
    if is_rare:
        criteria: Any = [_rare_criterion(c, needs_levels) for c in items]
        return _checked({"criteria": criteria, "caps": caps_of(fields)})
    extra = sorted(set(fields) - {"criteria", "caps", "version"})
    if extra:
        raise RowError("invalid", f"got the unknown key {extra[0]!r:.40}, wanted criteria and caps")
    return _checked({"criteria": items, "caps": fields.get("caps", [])})


def read_mpo_rubric(text: str) -> Rubric:
    """Return the rubric of MPO's ``evaluation_rubric_iter_k.txt``; RowError without items."""
    items = [clean_text(item).strip() for item in _MPO_ITEM.findall(text)]
    if not all(items) or not items:
        raise RowError("no_rubrics", "got no <item> with text, wanted <rubric><item>...</item>")
    return Rubric(
        criteria=tuple(
            Criterion(id=f"c{number}", text=item, max=_MPO_TOP)
            for number, item in enumerate(items, start=1)
        )
    )


def _checked(tree: dict[str, Any]) -> Rubric:
    try:
        return Rubric.model_validate(clean_value(tree))
    except ValidationError as error:
        raise RowError("invalid", first_problem(error)) from error


def _rare_criterion(value: Any, needs_levels: bool) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(cast("dict[str, Any]", value)) >= _RARE_KEYS:
        raise RowError("bad_rubric", f"got {value!r:.80}, wanted the keys {sorted(_RARE_KEYS)}")
    fields = cast("dict[str, Any]", value)
    name, top, rule = fields["id"], fields["max_points"], fields["scoring_rule"]
    if not isinstance(name, str) or not isinstance(fields["check"], str):
        raise RowError("bad_rubric", f"criterion {name!r:.40}: wanted texts as id and check")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise RowError("bad_rubric", f"criterion {name!r:.40}: got max_points {top!r:.20}, wanted "
                       "a whole number from 1")  # fmt: skip
    levels = level_texts(rule, top)
    if levels is not None:
        return {"id": name, "text": fields["check"], "max": top, "levels": levels}
    if needs_levels:
        raise RowError(
            "bad_rubric",
            f"criterion {name!r:.40}: got a scoring_rule that does not define each level "
            f"0..{top}, wanted texts like '1 = ...; 0 = ...'",
        )
    text = f"{fields['check']}\n{rule}" if isinstance(rule, str) else fields["check"]
    return {"id": name, "text": text, "max": top}


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
