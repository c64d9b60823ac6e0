"""JSON schemas of the replies that judges are asked for, for engines with structured output.

The reason stands before the score (a score written first would be justified afterwards), levels are
enumerated, other keys are refused. ``core/grading/reply.py`` and ``rescore.py`` read the replies;
they do not rely on the schema having been enforced.
"""

from collections.abc import Sequence
from typing import Any

from core.grading.prompt import Style, rollout_ids, short_ids
from core.rubric import Criterion


def judge_schema(criteria: Sequence[Criterion], style: Style) -> dict[str, Any]:
    """Return the schema of a reply to ``judge_prompt`` with these criteria."""
    if style == "verbatim":
        return closed_object({c.text: _string_levels(c.max) for c in criteria})
    names = short_ids(len(criteria))
    return closed_object(
        {
            name: closed_object({"reason": {"type": "string"}, "score": _levels(c.max)})
            for name, c in zip(names, criteria, strict=True)
        }
    )


def rescore_schema(criteria: Sequence[Criterion], num_responses: int) -> dict[str, Any]:
    """Return the schema of a reply to ``rescore_prompt`` with these criteria and responses.

    One entry shape serves all criteria, so the levels reach up to the largest maximum; the reader
    holds each score against its own criterion.
    """
    score = closed_object(
        {
            "rollout_id": {"type": "string", "enum": list(rollout_ids(num_responses))},
            "reason": {"type": "string"},
            "score": _levels(max((c.max for c in criteria), default=1)),
        }
    )
    entry = closed_object(
        {
            "id": {"type": "string", "enum": list(short_ids(len(criteria)))},
            "scores": _list_of(score, num_responses),
        }
    )
    return closed_object({"criteria": _list_of(entry, len(criteria))})


def closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(items: dict[str, Any], count: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": count, "maxItems": count}


def _levels(top: int) -> dict[str, Any]:
    return {"type": "integer", "enum": list(range(top + 1))}


def _string_levels(top: int) -> dict[str, Any]:
    return {"type": "string", "enum": [str(level) for level in range(top + 1)]}
