"""Reads one value of a judge's reply as a score on a scale, or says why it is none.

A score is a number, a numeric string, ``n/top`` or ``n out of top``, a percentage on a 0-1 scale,
or one of a few words on a 0-1 scale. Everything else is unscored: outside the scale is never
clamped, a range or a word is never interpreted, and a number between whole levels is not rounded.
"""

import math
import re
import unicodedata
from dataclasses import dataclass

from core.grading.json_nodes import Arr, Node, Obj, Scalar
from core.grading.json_strict import read_strict
from core.records import FailureKind

_NOISE = 1e-6
"""Rounding noise that is tolerated at the edges and at whole levels."""
_MAX_CHARS = 60
_MAX_NESTED = 3

_NUMBER = r"[+-]?\d{1,20}(?:\.\d{0,20})?(?:[eE][+-]?\d{1,4})?"
_PLAIN = re.compile(rf"(?:(?:level|score)\s*[:=]?\s*)?({_NUMBER})", re.IGNORECASE)
_OUT_OF = re.compile(rf"({_NUMBER})\s*(?:/|\s(?:out\s+)?of\s)\s*({_NUMBER})", re.IGNORECASE)
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_HUGE = re.compile(r"[+-]?\d{21,}(?:\.\d*)?")
_WORDS = {
    **dict.fromkeys(("true", "yes", "pass", "met", "correct"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "unmet", "incorrect"), 0.0),
}
_MARKUP = "*_`\"' \t\r\n\u201c\u201d\u2018\u2019"

_SCORE_KEYS = (
    "score",
    "value",
    "grade",
    "rating",
    "verdict",
    "result",
    "level",
    "points",
    "mark",
    "met",
    "satisfied",
    "pass",
    "passed",
    "answer",
    "decision",
    "judgment",
    "judgement",
)
_TOP_KEYS = ("max", "max_score", "maxscore", "max_points", "out_of", "maximum", "scale_max")
_REASON_KEYS = (
    "reason",
    "reasoning",
    "explanation",
    "justification",
    "rationale",
    "comment",
    "evidence",
    "analysis",
    "feedback",
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The scores that one criterion allows."""

    min: float = 0.0
    max: float = 1.0
    is_integer: bool = True

    @property
    def is_yes_no(self) -> bool:
        """Whether words such as "yes" mean a score on it."""
        return self.min == 0 and self.max == 1


@dataclass(frozen=True, slots=True)
class Reading:
    """What a value says: a score, or a failure with a detail for the one more try."""

    score: float | None
    failure: FailureKind | None = None
    detail: str = ""
    reason: str = ""


def read_value(node: Node | None, scale: Scale, *, is_cut: bool) -> Reading:
    """Return the reading of ``node``; what stands last in a cut text is not read."""
    return _read(node, scale, is_cut, depth=0)


def has_score_key(node: Obj) -> bool:
    """Return whether the object holds a score under one of the usual names."""
    return any(_plain_key(p.key) in _SCORE_KEYS for p in node.pairs)


def holds_score(node: Node | None, depth: int = 0) -> bool:
    """Return whether a score stands under one of the usual names anywhere in a container."""
    if depth > _MAX_NESTED:
        return False
    if isinstance(node, Arr):
        return any(holds_score(item, depth + 1) for item in node.items)
    if not isinstance(node, Obj):
        return False
    return has_score_key(node) or any(holds_score(p.value, depth + 1) for p in node.pairs)


def _read(node: Node | None, scale: Scale, is_cut: bool, depth: int) -> Reading:
    if node is None:
        return Reading(None, "truncated", "the reply ends before the value")
    if depth > _MAX_NESTED:
        return Reading(None, "unparsable", "the value is nested too deeply")
    if isinstance(node, Scalar):
        if is_cut and node.is_last:
            return Reading(None, "truncated", "the reply ends in or right after the value")
        return _read_scalar(node, scale, is_cut, depth)
    if isinstance(node, Obj):
        return _read_object(node, scale, is_cut, depth)
    return _read_array(node, scale, is_cut, depth)


def _read_scalar(node: Scalar, scale: Scale, is_cut: bool, depth: int) -> Reading:
    if node.is_string and node.text.lstrip()[:1] in ("{", "["):
        inner = read_strict(node.text.strip())
        if inner is not None:
            return _read(inner, scale, is_cut, depth + 1)
    return read_text(node.text, scale)


def read_text(text: str, scale: Scale) -> Reading:
    """Return the reading of a number or word given as text."""
    shown = text.strip()[:_MAX_CHARS]
    plain = _ascii_digits(unicodedata.normalize("NFKC", text[: 4 * _MAX_CHARS])).strip(_MARKUP)
    if len(text) > 4 * _MAX_CHARS or (len(plain) > _MAX_CHARS and not _HUGE.fullmatch(plain)):
        return Reading(None, "unparsable", "got a long text, wanted a number")
    if scale.is_yes_no and plain.casefold() in _WORDS:
        return _in_scale(_WORDS[plain.casefold()], scale, shown)
    if (match := _PLAIN.fullmatch(plain)) is not None:
        return _in_scale(float(match.group(1)), scale, shown)
    if (match := _OUT_OF.fullmatch(plain)) is not None:
        if abs(float(match.group(2)) - scale.max) > _NOISE:
            return _out_of_scale(shown, scale)
        return _in_scale(float(match.group(1)), scale, shown)
    if (match := _PERCENT.fullmatch(plain)) is not None:
        value = float(match.group(1)) / 100.0
        return _in_scale(value, scale, shown) if scale.is_yes_no else _out_of_scale(shown, scale)
    if _HUGE.fullmatch(plain):
        return _out_of_scale(shown, scale)
    return Reading(None, "unparsable", f"got {shown!r}, wanted a number")


def _in_scale(value: float, scale: Scale, shown: str) -> Reading:
    if not math.isfinite(value) or not scale.min - _NOISE <= value <= scale.max + _NOISE:
        return _out_of_scale(shown, scale)
    if scale.is_integer:
        if abs(value - round(value)) > _NOISE:
            return Reading(None, "out_of_scale", f"got {shown!r}, wanted a whole level")
        value = float(round(value))
    return Reading(min(max(value, scale.min), scale.max) + 0.0)


def _out_of_scale(shown: str, scale: Scale) -> Reading:
    return Reading(
        None, "out_of_scale", f"got {shown!r}, wanted a number from {scale.min:g} to {scale.max:g}"
    )


def _read_object(node: Obj, scale: Scale, is_cut: bool, depth: int) -> Reading:
    by_key: dict[str, list[Node | None]] = {}
    for pair in node.pairs:
        by_key.setdefault(_plain_key(pair.key), []).append(pair.value)
    for key in _TOP_KEYS:
        for top in by_key.get(key, []):
            if isinstance(top, Scalar) and not _is_number(top.text, scale.max):
                return _out_of_scale(f"a score out of {top.text[:20]}", scale)
    readings = {
        key: [_read(v, scale, is_cut, depth + 1) for v in by_key[key]]
        for key in _SCORE_KEYS
        if key in by_key
    }
    if not readings:
        return Reading(None, "missing" if node.is_closed else "truncated", "no score in the object")
    if any(holds_score(v) for key, vs in by_key.items() if key not in _SCORE_KEYS for v in vs):
        return Reading(None, "conflict", "another score stands inside the object")
    reason = _reason(by_key)
    first = next(iter(readings.values()))
    others = [r for rs in readings.values() for r in rs if r.score is not None]
    chosen = merged([*first, *(r for r in others if r not in first)])
    return Reading(chosen.score, chosen.failure, chosen.detail, reason)


def merged(readings: list[Reading]) -> Reading:
    """Return the one reading that all of ``readings`` agree on, else a conflict."""
    scores = {r.score for r in readings}
    if len(scores) == 1:
        return readings[0]
    values = ", ".join("no score" if s is None else f"{s:g}" for s in sorted(scores, key=str))
    return Reading(None, "conflict", f"got different values for it: {values}")


def _read_array(node: Arr, scale: Scale, is_cut: bool, depth: int) -> Reading:
    """Read ``[score]`` or ``[score, comment]``; any other list is no score."""
    first = node.items[0] if 1 <= len(node.items) <= 2 else None
    if not isinstance(first, Scalar):
        return Reading(None, "unparsable", "got a list, wanted a number")
    if len(node.items) == 2:
        comment = node.items[1]
        if first.is_string or not (isinstance(comment, Scalar) and comment.is_string):
            return Reading(None, "unparsable", "got a list, wanted a number")
    return _read(first, scale, is_cut, depth + 1)


def _reason(by_key: dict[str, list[Node | None]]) -> str:
    for key in _REASON_KEYS:
        for value in by_key.get(key, []):
            if isinstance(value, Scalar):
                return value.text
    return ""


def _plain_key(key: str) -> str:
    return key.strip().casefold().replace(" ", "_").replace("-", "_")


def _is_number(text: str, wanted: float) -> bool:
    match = _PLAIN.fullmatch(text.strip())
    return match is None or abs(float(match.group(1)) - wanted) <= _NOISE


def _ascii_digits(text: str) -> str:
    return "".join(
        str(unicodedata.decimal(ch)) if unicodedata.decimal(ch, None) is not None else ch
        for ch in text
    )
