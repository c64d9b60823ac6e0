"""Reads a judge's reply into verdicts. Never raises, never guesses.

Unscored is a state of its own: not 0, not a default, not a clamped number. Two different values for
one criterion make it unscored. In a cut reply what is complete counts, what stands last does not.
Where several objects stand in prose (one may be quoted from the response being graded), only what
all of them say counts. Which text belongs to which criterion is decided in ``reply_parts``,
``claims`` and ``names``, what a value means in ``values``.
"""

from collections.abc import Sequence
from typing import Literal

from core.grading.claims import Claim
from core.grading.reply_parts import Asked, asked_by_id, asked_by_text, parts_of
from core.grading.reply_text import is_error_text, is_refusal, runs_in_circles
from core.grading.values import Reading, Scale, merged, read_value
from core.records import FailureKind, Verdict
from core.rubric import Criterion

MAX_REPLY_CHARS = 2_000_000
_MAX_REASON_CHARS = 2_000

_CUT = ("length", "max_tokens", "abort")
_WITHOUT_REPLY: dict[str, FailureKind] = {
    "content_filter": "filtered",
    "error": "unavailable",
    "timeout": "timeout",
}


def read_verdicts(
    text: str,
    criteria: Sequence[Criterion],
    finish_reason: str,
    *,
    template: Literal["ids", "verbatim"],
) -> tuple[Verdict, ...]:
    """Return one verdict a criterion, in their order: a score or a failure kind. Never raises."""
    if not criteria:
        return ()
    if template == "ids":
        asked = asked_by_id(criteria)
    else:
        scales = [Scale(0, c.max, is_integer=True) for c in criteria]
        asked = asked_by_text([c.text for c in criteria], scales)
    readings = read_scores(text, asked, finish_reason)
    return tuple(
        Verdict(
            criterion_id=c.id,
            score=r.score,
            max=c.max,
            reason=printable(r.reason if r.score is not None else r.detail),
            failure=r.failure,
        )
        for c, r in zip(criteria, readings, strict=True)
    )


def read_scores(text: str, asked: Asked, finish_reason: str) -> tuple[Reading, ...]:
    """Return one reading a criterion, in their order. Never raises."""
    count = len(asked.scales)
    is_cut = is_cut_off(finish_reason)
    failure = reply_failure(text, finish_reason)
    if failure is not None:
        return (failure,) * count
    split = parts_of(text, asked, is_cut=is_cut)
    if split is None:
        return (Reading(None, "truncated", "the reasoning never ends"),) * count
    parts = [_resolved(claims, asked, is_cut=split.is_cut) for claims in split.claims]
    bearing = [p for p in parts if any(_is_verdict(r) for r in p.values())] or parts[:1]
    silent = _silent_reading(text, has_parts=any(bearing), is_cut=split.is_cut)
    readings = [_agreed([p.get(i) for p in bearing], silent) for i in range(count)]
    if is_cut:
        return told_of_loop(readings, text)
    if asked.is_zero_number_wrong and not split.is_strict and _shows_a_shift(readings):
        return (_SHIFTED,) * count
    return tuple(readings)


_SHIFTED = Reading(
    None,
    "conflict",
    "the reply is no JSON and not one verdict a criterion: a quote may have ended"
    " a string early, and then scores stand under other names",
)


def _shows_a_shift(readings: Sequence[Reading]) -> bool:
    """Whether some criteria have a score while others have none or several."""
    kinds = {r.failure for r in readings}
    return None in kinds and bool(kinds & {"missing", "conflict", "truncated", "unparsable"})


def printable(text: str) -> str:
    """Return ``text`` bounded and without characters that break files (surrogates, zero bytes)."""
    short = text[:_MAX_REASON_CHARS].replace("\0", "").replace("\ufffd", "?")
    return short.encode("utf-8", "replace").decode("utf-8")


def is_cut_off(finish_reason: str) -> bool:
    """Return whether the reply ended before the model was done."""
    return finish_reason in _CUT


def told_of_loop(readings: Sequence[Reading], text: str) -> tuple[Reading, ...]:
    """Return the readings of a cut reply; where it ran in circles, what it lacks says so."""
    if not runs_in_circles(text):
        return tuple(readings)
    loop = Reading(None, "truncated", f"it said {text[-8:]!r} over and over until it was cut")
    return tuple(loop if r.failure == "truncated" else r for r in readings)


def reply_failure(text: str, finish_reason: str) -> Reading | None:
    """Return why nothing at all can be read from this reply, if so."""
    if finish_reason in _WITHOUT_REPLY:
        kind = _WITHOUT_REPLY[finish_reason]
        return Reading(None, kind, f"the reply ended with {finish_reason!r}")
    if len(text) > MAX_REPLY_CHARS:
        return Reading(None, "unparsable", f"got {len(text)} characters, wanted a short reply")
    if not text.strip():
        kind = "truncated" if finish_reason in _CUT else "unparsable"
        blanks = f": {len(text)} blanks" if text else ""
        return Reading(None, kind, f"the reply is empty{blanks}")
    if is_error_text(text):
        return Reading(None, "unavailable", f"got an error text: {text.strip()[:120]!r}")
    return None


def _silent_reading(text: str, *, has_parts: bool, is_cut: bool) -> Reading:
    """Return the reading of a criterion that the reply does not name."""
    if is_cut:
        return Reading(None, "truncated", "the reply was cut before it")
    if has_parts:
        return Reading(None, "missing", "the reply has no verdict on it")
    if is_refusal(text):
        return Reading(None, "refused", f"got {text.strip()[:120]!r}")
    return Reading(None, "unparsable", f"no verdict in {text.strip()[:120]!r}")


def _is_verdict(reading: Reading) -> bool:
    """Whether a part that says this takes part in the decision; an echoed format does not."""
    return reading.score is not None or reading.failure in ("out_of_scale", "conflict")


def _agreed(readings: Sequence[Reading | None], silent: Reading) -> Reading:
    """Return what all parts of the reply say about one criterion."""
    said = [r for r in readings if r is not None]
    if not said:
        return silent
    if len(said) < len(readings):
        return Reading(None, "conflict", "only some of several objects in the reply name it")
    return merged(said)


def _resolved(claims: Sequence[Claim], asked: Asked, *, is_cut: bool) -> dict[int, Reading]:
    """Return what one part of a reply says, by criterion index."""
    said: dict[int, list[tuple[int, Reading]]] = {}
    base = _number_base(claims, asked)
    for claim in claims:
        targets = sorted(claim.indices)
        if claim.number is not None:
            targets = [] if base is None else [claim.number - base]
        for index in targets:
            reading = read_value(claim.value, asked.scales[index], is_cut=is_cut)
            said.setdefault(index, []).append((claim.rung, reading))
    if asked.is_zero_number_wrong and any(c.number == 0 for c in claims):
        wrong = Reading(None, "conflict", "the reply counts from 0, the ids count from 1")
        return dict.fromkeys(range(len(asked.scales)), wrong)
    resolved = {index: _strictest(readings) for index, readings in said.items()}
    return _with_shared_verdicts(resolved, asked)


def _number_base(claims: Sequence[Claim], asked: Asked) -> int | None:
    """Return the number of the first item, 0 or 1; None unless the numbers leave no doubt."""
    numbers = {c.number for c in claims if c.number is not None}
    count = len(asked.scales)
    if not numbers or max(numbers) > count or numbers >= {0, count}:
        return None
    if 0 in numbers:
        return 0
    return 1 if count in numbers else None


def _strictest(readings: Sequence[tuple[int, Reading]]) -> Reading:
    """Merge what the best-matching keys say with every score of looser ones."""
    best = min(rung for rung, _ in readings)
    counted = [r for rung, r in readings if rung == best]
    looser = [r for rung, r in readings if rung > best and r.score is not None]
    return merged([*counted, *looser])


def _with_shared_verdicts(resolved: dict[int, Reading], asked: Asked) -> dict[int, Reading]:
    """Make criteria of one text, which can have only one verdict, agree."""
    shared: dict[int, Reading] = {}
    for index in resolved:
        twins = [resolved[t] for t in sorted(asked.matcher.twins(index)) if t in resolved]
        agreed = merged(twins)
        shared[index] = resolved[index] if agreed.failure != "conflict" else agreed
    return shared
