"""Reads a RARE writer's reply and checks it whole: it is used only if all of it is right.

The reply is one JSON object, ``{"updates": [...]}``, perhaps in a code fence:
``{"id", "polarity", "diagnosis": {"difference", "best_rollout_ids", "weaker_rollout_ids",
"learning_direction", "nonredundancy"}, "rubric": {"id", "check", "max_points", "scoring_rule"}}``,
with exactly these keys, in the order of the saturated ids. Rollouts are named R0, R1, ... by their
place in the group. Every refusal is a WriterReplyError that says got, wanted and where, since its
text goes back to the writer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from core.errors import WriterReplyError
from core.evolution.origin import stands_in, writes_key
from core.evolution.similarity import compact_text
from core.evolution.strict_object import checked_object, checked_text, json_object
from core.rubric import Criterion
from core.writer_requests import ReplacementRequest

Polarity = Literal["negative", "positive"]

_LEVEL = re.compile(r"(?<!\d)(\d+)\s*[=\uff1d]")
_MAX_DIGITS = 9
_SEPARATORS = " \t\r\n;\uff1b,\uff0c"

_UPDATE_KEYS = frozenset({"id", "polarity", "diagnosis", "rubric"})
_DIAGNOSIS_KEYS = frozenset(
    {
        "difference",
        "best_rollout_ids",
        "weaker_rollout_ids",
        "learning_direction",
        "nonredundancy",
    }
)
_RUBRIC_KEYS = frozenset({"id", "check", "max_points", "scoring_rule"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """One checked replacement."""

    criterion: Criterion
    """Id, maximum and weight of the old one; new text and levels."""
    polarity: Polarity
    difference: str
    learning_direction: str
    nonredundancy: str
    best: tuple[int, ...]
    """Places of rollouts in the group."""
    weaker: tuple[int, ...]


def read_updates(
    text: str, finish_reason: str, request: ReplacementRequest
) -> tuple[Replacement, ...]:
    """Return the replacements of a reply; WriterReplyError when any part of it is wrong."""
    updates = _updates(json_object(text, finish_reason))
    if len(updates) != request.num_updates:
        raise WriterReplyError(
            f"got {len(updates)} updates, wanted exactly {request.num_updates}, chosen among "
            f"{list(request.saturated_ids)}"
        )
    replacements = tuple(
        _replacement(update, f"updates[{i}]", request) for i, update in enumerate(updates)
    )
    _check_ids([r.criterion.id for r in replacements], request)
    _check_polarities([r.polarity for r in replacements], request)
    _check_redundancy([r.criterion for r in replacements], request)
    _check_origin([r.criterion for r in replacements], request)
    return replacements


def scoring_levels(scoring_rule: str, maximum: int, where: str) -> dict[int, str]:
    """Return the text of each level 0..maximum of a rule such as ``1 = ...; 0 = ...``."""
    marks = list(_LEVEL.finditer(scoring_rule))
    found = [int(mark.group(1)[:_MAX_DIGITS]) for mark in marks]
    if sorted(found) != list(range(maximum + 1)):
        raise WriterReplyError(
            f"{where}: got the levels {found}, wanted each of 0..{maximum} once, "
            'written as "1 = ...; 0 = ..."'
        )
    ends = [mark.start() for mark in marks[1:]] + [len(scoring_rule)]
    levels: dict[int, str] = {}
    for level, mark, end in zip(found, marks, ends, strict=True):
        levels[level] = scoring_rule[mark.end() : end].strip(_SEPARATORS)
        if not levels[level]:
            raise WriterReplyError(f"{where}: got no text for level {level}, wanted one")
    return levels


# ---------------------------------------------------------------- shape
def _updates(reply: dict[str, Any]) -> list[Any]:
    updates = checked_object(reply, frozenset({"updates"}), "the reply")["updates"]
    if not isinstance(updates, list):
        raise WriterReplyError("updates: wanted a list")
    return cast(list[Any], updates)


def _rollouts(value: Any, where: str, num_rollouts: int) -> tuple[int, ...]:
    ids = {f"R{i}": i for i in range(num_rollouts)}
    items = cast(list[Any], value) if isinstance(value, list) else None
    if items is None or any(not isinstance(i, str) or i not in ids for i in items):
        raise WriterReplyError(
            f"{where}: got {value!r:.80}, wanted ids among R0..R{num_rollouts - 1}"
        )
    return tuple(dict.fromkeys(ids[i] for i in items))


# ---------------------------------------------------------------- one update
def _replacement(value: Any, where: str, request: ReplacementRequest) -> Replacement:
    update = checked_object(value, _UPDATE_KEYS, where)
    diagnosis = checked_object(update["diagnosis"], _DIAGNOSIS_KEYS, f"{where}.diagnosis")
    rubric = checked_object(update["rubric"], _RUBRIC_KEYS, f"{where}.rubric")
    num_rollouts = len(request.responses)
    best = _rollouts(diagnosis["best_rollout_ids"], f"{where}.best_rollout_ids", num_rollouts)
    weaker = _rollouts(diagnosis["weaker_rollout_ids"], f"{where}.weaker_rollout_ids", num_rollouts)
    both = sorted(set(best) & set(weaker))
    if both:
        raise WriterReplyError(f"{where}: got R{both[0]} as best and as weaker, wanted one of them")
    texts = {
        key: checked_text(diagnosis[key], f"{where}.diagnosis.{key}")
        for key in ("difference", "learning_direction", "nonredundancy")
    }
    return Replacement(
        criterion=_criterion(checked_text(update["id"], f"{where}.id"), rubric, where, request),
        polarity=_polarity(update["polarity"], where, request),
        best=best,
        weaker=weaker,
        **texts,
    )


def _criterion(
    criterion_id: str, rubric: dict[str, Any], where: str, request: ReplacementRequest
) -> Criterion:
    if criterion_id not in request.saturated_ids:
        raise WriterReplyError(
            f"{where}: got the id {criterion_id!r}, wanted one of {list(request.saturated_ids)}"
        )
    old = request.rubric.criterion(criterion_id)
    if rubric["id"] != criterion_id:
        raise WriterReplyError(
            f"{where}: got the rubric id {rubric['id']!r}, wanted {criterion_id!r}"
        )
    points = rubric["max_points"]
    if type(points) is not int or points != old.max:
        raise WriterReplyError(f"{where}: got max_points {points!r}, wanted {old.max}")
    rule = checked_text(rubric["scoring_rule"], f"{where}.rubric.scoring_rule")
    return Criterion(
        id=old.id,
        text=checked_text(rubric["check"], f"{where}.rubric.check"),
        max=old.max,
        weight=old.weight,
        levels=scoring_levels(rule, old.max, f"{where}.rubric.scoring_rule"),
    )


def _polarity(value: Any, where: str, request: ReplacementRequest) -> Polarity:
    allowed = ("negative", "positive") if request.polarity == "mixed" else (request.polarity,)
    if value not in allowed:
        raise WriterReplyError(
            f"{where}: got the polarity {str(value)[:40]!r}, wanted {' or '.join(allowed)}"
        )
    return cast(Polarity, value)


# ---------------------------------------------------------------- all updates
def _check_ids(ids: Sequence[str], request: ReplacementRequest) -> None:
    if len(set(ids)) != len(ids):
        raise WriterReplyError(f"got the ids {list(ids)}, wanted each once")
    in_order = [i for i in request.saturated_ids if i in ids]
    if list(ids) != in_order:
        raise WriterReplyError(f"got the ids in the order {list(ids)}, wanted {in_order}")


def _check_polarities(polarities: Sequence[Polarity], request: ReplacementRequest) -> None:
    if request.polarity == "mixed" and len(polarities) >= 2 and len(set(polarities)) < 2:
        raise WriterReplyError(
            f"got {len(polarities)} updates that are all {polarities[0]}, wanted at least one "
            "negative and one positive"
        )


def _check_redundancy(new: Sequence[Criterion], request: ReplacementRequest) -> None:
    """Each replacement differs from the old one, all others and each other, spaces aside."""
    existing = {c.id: c for c in request.rubric.criteria}
    for i, criterion in enumerate(new):
        others = [*existing.values(), *new[:i]]
        same = next((other for other in others if _is_same(criterion, other)), None)
        if same is not None:
            raise WriterReplyError(
                f"got a replacement of {criterion.id!r} that says the same as {same.id!r}, "
                "wanted a check that no criterion makes yet"
            )


def _check_origin(new: Sequence[Criterion], request: ReplacementRequest) -> None:
    """A response that writes replies of its own is no source of checks: its text is data."""
    forging = [r for r in request.responses if writes_key(r, ("updates",))]
    for criterion in new:
        if any(stands_in(criterion.text, response) for response in forging):
            raise WriterReplyError(
                f"got a replacement of {criterion.id!r} that stands word for word in a response, "
                "wanted a check in your own words"
            )


def _is_same(new: Criterion, other: Criterion) -> bool:
    """Same check and same levels; a criterion without levels is compared by its check alone."""
    if compact_text(new.text) != compact_text(other.text):
        return False
    return other.levels is None or _levels_text(new) == _levels_text(other)


def _levels_text(criterion: Criterion) -> str:
    levels = criterion.levels or {}
    return "\n".join(f"{level}={compact_text(levels[level])}" for level in sorted(levels))
