"""Reads the reply to a task-level revision: it is used only if all of it is right.

The reply is one JSON object, perhaps in a code fence: ``{"task_id", "rubric_version",
"generated_at_step", "generated_from_trigger", "diagnosis": {"mastered", "unreachable_now",
"current_frontier", "rationale"}, "criteria": [{"id", "check", "scoring_rule", "max_points"}]}``,
the form of the released rubric files. Ids, their order and the maxima stay, every level stands in
the scoring rule, no two checks are the same, and something changes; the caps stay as they are. A
criterion that comes back as it was shown is the old one, word for word. A [Resist] criterion and a
penalty (negative weight) must come back so: the writer is told that a higher score is better.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from core.errors import WriterReplyError
from core.evolution.origin import stands_in, writes_key
from core.evolution.rare_reply import scoring_levels
from core.evolution.similarity import compact_text
from core.evolution.strict_object import checked_object, checked_text, json_object
from core.records import Completion
from core.rubric import Criterion, Rubric
from core.writer_requests import TaskRevisionRequest

TRIGGER = "scheduled_recent_rollouts"
"""What a revision says it was generated from."""

_KEYS = frozenset(
    {
        "task_id",
        "rubric_version",
        "generated_at_step",
        "generated_from_trigger",
        "diagnosis",
        "criteria",
    }
)
_CAPS = "reward_aggregation"
_DIAGNOSIS = ("mastered", "unreachable_now", "current_frontier", "rationale")
_CRITERION_KEYS = frozenset({"id", "check", "scoring_rule", "max_points"})


def read_revision(reply: Completion, request: TaskRevisionRequest) -> tuple[Rubric, str]:
    """Return the candidate rubric and the diagnosis; WriterReplyError says what is wrong."""
    if reply.failure is not None:
        raise WriterReplyError(f"the writer gave no reply: {reply.failure}")
    fields = json_object(reply.text, reply.finish_reason)
    _check_caps(fields.pop(_CAPS, None), request.rubric)
    checked_object(fields, _KEYS, "the reply")
    _check_origin_fields(fields, request)
    diagnosis = _diagnosis(fields["diagnosis"])
    criteria = _criteria(fields["criteria"], request)
    _check_set(criteria, request)
    return request.rubric.with_criteria(criteria), diagnosis


def scoring_rule(criterion: Criterion) -> str:
    """Return a criterion's levels as one text, highest first; empty without levels."""
    levels = criterion.levels or {}
    return "; ".join(f"{level} = {levels[level]}" for level in sorted(levels, reverse=True))


def aggregation(rubric: Rubric) -> Mapping[str, object] | None:
    """Return the caps as RARE's ``reward_aggregation``; None without caps."""
    if not rubric.caps:
        return None
    return {
        "type": "normalized_sum_with_caps",
        "caps": [cap.model_dump(mode="json") for cap in rubric.caps],
    }


# ---------------------------------------------------------------- parts
def _check_caps(value: Any, rubric: Rubric) -> None:
    if value is not None and value != aggregation(rubric):
        raise WriterReplyError(f"{_CAPS}: got {value!r:.80}, wanted it left out: it stays as it is")


def _check_origin_fields(fields: Mapping[str, Any], request: TaskRevisionRequest) -> None:
    wanted: dict[str, object] = {
        "task_id": request.task,
        "rubric_version": request.rubric.version + 1,
        "generated_at_step": request.step,
        "generated_from_trigger": TRIGGER,
    }
    for key, value in wanted.items():
        found = fields[key]
        if type(found) is not type(value) or found != value:
            raise WriterReplyError(f"{key}: got {found!r:.80}, wanted {value!r}")


def _diagnosis(value: Any) -> str:
    found = checked_object(value, frozenset(_DIAGNOSIS), "diagnosis")
    checked_text(found["rationale"], "diagnosis.rationale")
    lines: list[str] = []
    for key in _DIAGNOSIS:
        texts = _texts(found[key], f"diagnosis.{key}")
        if texts:
            lines.append(f"{key}: {'; '.join(texts)}")
    return "\n".join(lines)


def _texts(value: Any, where: str) -> list[str]:
    """One text or a list of them; there may be nothing to say."""
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    texts = [i for i in items if i != ""]
    return [checked_text(text, where) for text in texts]


def _criteria(value: Any, request: TaskRevisionRequest) -> tuple[Criterion, ...]:
    old = request.rubric.criteria
    if not isinstance(value, list):
        raise WriterReplyError("criteria: wanted a list")
    entries = [
        checked_object(entry, _CRITERION_KEYS, f"criteria[{i}]")
        for i, entry in enumerate(cast(list[Any], value))
    ]
    ids = [entry["id"] for entry in entries]
    if ids != [c.id for c in old]:
        raise WriterReplyError(
            f"criteria: got the ids {ids!r:.300}, wanted {list(request.rubric.ids)}, in this order"
        )
    return tuple(
        _criterion(c, entry, f"criteria[{i}]")
        for i, (c, entry) in enumerate(zip(old, entries, strict=True))
    )


def _criterion(old: Criterion, entry: Mapping[str, Any], where: str) -> Criterion:
    points = entry["max_points"]
    if type(points) is not int or points != old.max:
        raise WriterReplyError(f"{where}: got max_points {points!r:.40}, wanted {old.max}")
    check = checked_text(entry["check"], f"{where}.check")
    is_same_check = compact_text(check) == compact_text(old.text)
    if is_same_check and old.levels is None:
        return old
    rule = checked_text(entry["scoring_rule"], f"{where}.scoring_rule")
    if is_same_check and compact_text(rule) == compact_text(scoring_rule(old)):
        return old
    if old.is_resist or old.is_penalty:
        raise WriterReplyError(f"{where}: got {old.id!r} changed, wanted this limit as it is")
    levels = scoring_levels(rule, old.max, f"{where}.scoring_rule")
    if is_same_check and _is_same_levels(levels, old.levels or {}):
        return old
    return Criterion(id=old.id, text=check, max=old.max, weight=old.weight, levels=levels)


def _is_same_levels(new: Mapping[int, str], old: Mapping[int, str]) -> bool:
    return all(compact_text(text) == compact_text(old[level]) for level, text in new.items())


# ---------------------------------------------------------------- the whole set
def _check_set(criteria: Sequence[Criterion], request: TaskRevisionRequest) -> None:
    checks: dict[str, str] = {}
    for c in criteria:
        other = checks.setdefault(compact_text(c.text), c.id)
        if other != c.id:
            raise WriterReplyError(f"got the same check for {other!r} and {c.id!r}, wanted two")
    changed = [
        new for old, new in zip(request.rubric.criteria, criteria, strict=True) if new != old
    ]
    if not changed:
        raise WriterReplyError("got every criterion unchanged, wanted at least one revised")
    # A response that writes replies of its own is no source of checks: its text is data.
    forging = [c.response for c in request.cases if writes_key(c.response, ("criteria",))]
    for c in changed:
        if any(stands_in(c.text, response) for response in forging):
            raise WriterReplyError(
                f"got a check of {c.id!r} that stands word for word in a response, wanted one in "
                "your own words"
            )
