"""What of a reply is verdict text: reasoning cut off, refusals, loops and error texts recognised.

Only what stands after the reasoning counts, and reasoning that never ends leaves nothing. A tag
inside a criterion's text ("No <think> tags appear") is not reasoning. All patterns are linear.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence

from core.grading.json_tree import containers_in

_OPEN = re.compile(
    r"<\s?(?:think|thinking|thought|reasoning|reflection|scratchpad)\s?>|\[THINK\]|\u25c1think\u25b7",
    re.IGNORECASE,
)
_CLOSE = re.compile(
    r"<\s?/\s?(?:think|thinking|thought|reasoning|reflection|scratchpad)\s?>|\[/THINK\]"
    r"|\u25c1/think\u25b7|<\|channel\|>\s*final\s*<\|message\|>",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\s*(?:\[(?:error|failed|timeout)\b|(?:error|exception|traceback)\b\s*[:(]"
    r"|http(?:/\S+)? ?[45]\d\d\b)",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\b(?:i['\u2019]?m sorry|i apologi[sz]e|i (?:can(?:no|['\u2019])t|am unable|am not able"
    r"|won['\u2019]t|will not|must decline)|as an ai\b"
    r"|unable to (?:help|assist|comply|evaluate|grade))",
    re.IGNORECASE,
)
_LOOKED_AT = 600
_LOOP_CHARS = 160
_LONGEST_PERIOD = 40


def without_reasoning(text: str, names: Sequence[str]) -> str | None:
    """Return the part of ``text`` after the reasoning; None if the reasoning never ends.

    ``names`` are the texts that the reply may use as keys: tags inside them do not count, nor do
    tags inside the strings of strict JSON (a reason may quote the graded text).
    """
    if _OPEN.search(text) is None and _CLOSE.search(text) is None:
        return text
    spans = _name_spans(text, [n for n in names if _OPEN.search(n) or _CLOSE.search(n)])
    spans += [(f.start, f.end) for f in containers_in(text) if f.is_strict]
    spans.sort()
    closes = [m.end() for m in _CLOSE.finditer(text) if not _is_inside(m, spans)]
    start = closes[-1] if closes else 0
    if any(not _is_inside(m, spans) for m in _OPEN.finditer(text, start)):
        return None
    return text[start:]


def first_reasoning_end(text: str) -> int:
    """Return where the first closing tag of ``text`` ends; 0 if there is none."""
    match = _CLOSE.search(text)
    return 0 if match is None else match.end()


def is_error_text(text: str) -> bool:
    """Return whether a client's or server's error message stands where a reply should."""
    return _ERROR.match(text) is not None


def is_refusal(text: str) -> bool:
    """Return whether a reply without verdicts begins by declining."""
    return _REFUSAL.search(text[:_LOOKED_AT]) is not None


def runs_in_circles(text: str) -> bool:
    """Return whether a reply ends in a short piece said over and over: blanks, or one token.

    Models do so until their token limit, most of all where white space is free in a schema.
    """
    tail = text[-_LOOP_CHARS:]
    if len(tail) < _LOOP_CHARS:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, _LONGEST_PERIOD + 1))


def _name_spans(text: str, names: Sequence[str]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for name in names:
        at = text.find(name)
        while at >= 0:
            spans.append((at, at + len(name)))
            at = text.find(name, at + len(name))
    return spans


def _is_inside(match: re.Match[str], spans: Sequence[tuple[int, int]]) -> bool:
    """Whether one of the sorted ``spans`` holds the match (nested ones: the outermost is asked)."""
    at = bisect_right(spans, (match.start(), len(match.string) + 1)) - 1
    return any(spans[i][1] >= match.end() for i in range(max(at - 1, 0), at + 1))
