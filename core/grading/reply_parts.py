"""Splits a judge's reply into the parts that hold a verdict, and collects what each part claims.

The whole text is tried as JSON first, then what follows the reasoning, then the containers found in
the text, at last labelled lines. Objects that stand alone, one after the other, are one part;
objects in prose are one part each. What a sentence introduces as the graded text's own is left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.grading.claims import Claim, ClaimCollector
from core.grading.json_nodes import Arr, Node, Obj, Scalar
from core.grading.json_strict import read_strict
from core.grading.json_tree import Found, containers_in, strict_inside
from core.grading.names import Matcher, item_number
from core.grading.prompt import short_ids
from core.grading.reply_text import first_reasoning_end, without_reasoning
from core.grading.values import Scale
from core.rubric import Criterion

_MARKUP = re.compile(r"```[\w-]*|\bjson\b|[\s,;*\ufeff`]+", re.IGNORECASE)
_LABEL = re.compile(r"(?:rubric|criterion|item|question)\s*#?\d{1,3}\s*[:.)-]", re.IGNORECASE)
_QUOTED = re.compile(
    r"\b(?:candidate|response|answer|reply|student|assistant|policy)\b[^.!?\n]{0,60}\b(?:clos|wrote"
    r"|writ|sa(?:ys|id)|stat|end|claim|contain|includ|output|print|append|quot|paste|embed|insert"
    r"|add|grades itself|graded itself|gave itself|gives itself)[^.!?]{0,60}\Z",
    re.IGNORECASE,
)
_QUOTE_REACH = 200
_CLOSERS = re.compile("[}\uff5d]")
_LINE = re.compile(r"(.{1,2000})(?:[:=\uff1a\u2192]|->)\s*([^:=\uff1a\u2192]{1,60})")
_BULLET = re.compile(r"^\s*[-*\u2022]\s+")
_MAX_LINES = 200
_MAX_LINE_CHARS = 2_500
_LOOSEST_LINE_RUNG = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reply is about: how each criterion may be named, and its scale."""

    matcher: Matcher
    names: tuple[str, ...]
    scales: tuple[Scale, ...]
    is_zero_number_wrong: bool = False
    """The criteria were asked by ids that begin at 1: a reply that uses 0 counts otherwise."""


def asked_by_text(texts: Sequence[str], scales: Sequence[Scale]) -> Asked:
    """Return what is asked when the criteria's texts are the keys."""
    return Asked(Matcher([(t,) for t in texts], texts, texts), tuple(texts), tuple(scales))


def asked_by_id(criteria: Sequence[Criterion]) -> Asked:
    """Return what is asked when ``c1, c2, ...`` are the keys; a unique text is understood too.

    The criteria's own ids are names as well, but only if none of them looks like a short id.
    """
    ids = short_ids(len(criteria))
    owns = [c.id for c in criteria]
    may_use_own = not any(item_number(own) is not None for own in owns)
    names = [
        (short, own, c.text) if may_use_own else (short, c.text)
        for short, own, c in zip(ids, owns, criteria, strict=True)
    ]
    texts = [c.text for c in criteria]
    scales = tuple(Scale(0, c.max, is_integer=True) for c in criteria)
    return Asked(Matcher(names, texts, ids), tuple(texts), scales, is_zero_number_wrong=True)


@dataclass(frozen=True, slots=True)
class Parts:
    """The claims of each part of a reply."""

    claims: list[list[Claim]]
    is_cut: bool
    """What stands last may be incomplete: the reply was cut, or its last container is open."""
    is_strict: bool = True
    """Every container is strict JSON: which text belongs to which string is certain."""


def parts_of(text: str, asked: Asked, *, is_cut: bool) -> Parts | None:
    """Return the claims of each part of the reply; None if its reasoning never ends."""
    for start in dict.fromkeys((0, first_reasoning_end(text))):
        whole = read_strict(text[start:].strip(" \t\r\n\ufeff"))
        if isinstance(whole, Scalar) and whole.is_string:
            whole = read_strict(whole.text.strip())
        if isinstance(whole, Obj | Arr):
            return Parts([_claims(whole, asked, may_be_bare=True)], is_cut)
    body = without_reasoning(text, asked.names)
    if body is None:
        return None
    found = list(containers_in(body))
    if is_cut and found and markup_free(body[found[-1].end :]):
        return Parts([], is_cut)  # the verdict may have been still to come
    is_cut = is_cut or any(not f.node.is_closed for f in found)
    is_strict = all(f.is_strict for f in found)
    outside = _outside(body, found)
    if has_loose_pieces(body, found):
        # What looks like the verdict may be quoted from the graded text.
        return Parts(
            [[replace(c, value=_UNREADABLE) for c in _claims_of_all(body, found, asked)]], is_cut
        )
    if not _CLOSERS.sub("", outside):
        return Parts([_claims_of_all(body, found, asked)], is_cut, is_strict)
    if len(found) > 1 and not found[-1].node.is_closed:
        return Parts([], is_cut)  # a later object, perhaps the verdict, was cut
    kept = [f for i, f in enumerate(found) if not _is_quoted(body, found, i)]
    parts = [c for f in kept if (c := _claims_of_all(body, [f], asked, may_be_bare=False))]
    if len(parts) > 1 and any(c.value is _UNREADABLE for part in parts for c in part):
        return Parts([], is_cut)  # the verdict may be the one that cannot be read
    return Parts(parts or _line_parts(body, asked), is_cut, is_strict)


def _claims_of_all(
    body: str, found: Sequence[Found], asked: Asked, *, may_be_bare: bool = True
) -> list[Claim]:
    """Return the claims of containers, those that stand whole inside a broken one included."""
    claims: list[Claim] = []
    is_only = len(found) == 1 and may_be_bare
    for f in found:
        own = _claims(f.node, asked, may_be_bare=is_only or isinstance(f.node, Obj))
        inside = [] if f.is_strict else strict_inside(body, f)
        inner = [c for node in inside or [] for c in _claims(node, asked, may_be_bare=False)]
        is_certain = not f.is_damaged and inside is not None
        claims += own + inner if is_certain else [replace(c, value=_UNREADABLE) for c in own]
    return claims


_UNREADABLE = Scalar("", is_string=False, is_last=False)


def _claims(node: Node, asked: Asked, *, may_be_bare: bool) -> list[Claim]:
    collector = ClaimCollector(asked.matcher, len(asked.scales))
    collector.walk(node, may_be_bare=may_be_bare)
    if collector.is_doubtful:
        return [replace(c, value=_UNREADABLE) for c in collector.claims]
    return collector.claims


def markup_free(text: str) -> str:
    """Return ``text`` without fences, labels and separators: what is left is prose."""
    return _MARKUP.sub("", _LABEL.sub("", text))


def _outside(body: str, found: Sequence[Found]) -> str:
    """Return the prose around the containers."""
    ends = [0, *(f.end for f in found)]
    starts = [*(f.start for f in found), len(body)]
    return "".join(markup_free(body[a:b]) for a, b in zip(ends, starts, strict=True))


def has_loose_pieces(body: str, found: Sequence[Found]) -> bool:
    """Whether pieces of an object stand in the prose: quotes in a string were not escaped."""
    outside = _outside(body, found)
    return bool(found and _CLOSERS.search(outside) and _CLOSERS.sub("", outside))


def _is_quoted(body: str, found: Sequence[Found], index: int) -> bool:
    """Whether the sentence before a container gives it as the graded text's own."""
    start = found[index].start
    begin = max(found[index - 1].end if index else 0, start - _QUOTE_REACH)
    return _QUOTED.search(body[begin:start]) is not None


def _line_parts(body: str, asked: Asked) -> list[list[Claim]]:
    """Read ``text: value`` lines; one line of another kind, and none of them counts."""
    lines = [line for line in body.split("\n") if _MARKUP.sub("", line)]
    if not lines or len(lines) > _MAX_LINES or max(map(len, lines)) > _MAX_LINE_CHARS:
        return []
    claims: list[Claim] = []
    for line in lines:
        match = _LINE.fullmatch(_BULLET.sub("", line).strip())
        if match is None:
            return []
        value = Scalar(match.group(2).strip(), is_string=False, is_last=line is lines[-1])
        name = asked.matcher.match(match.group(1).strip())
        number = item_number(match.group(1))
        if name is not None and name.rung <= _LOOSEST_LINE_RUNG:
            claims.append(Claim(value, name.indices, name.rung))
        elif name is None and number is not None:
            claims.append(Claim(value, number=number))
        else:
            return []
    return [claims]
