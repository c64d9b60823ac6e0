"""Finds the JSON-like values in a model's reply.

Each value is first read as strict JSON; only where that fails the tolerant reader takes over, and
only for replies of a length that a judge or writer can need. Every character is looked at a bounded
number of times.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from core.grading.json_nodes import Arr, Obj, Unreadable
from core.grading.json_strict import StrictReader
from core.grading.json_tolerant import TolerantReader, starts_list

MAX_TOLERANT_CHARS = 200_000
"""A reply that is not strict JSON and longer than this is not read."""

_MAX_BROKEN_INSIDE = 64
"""Openers inside a container that open no strict JSON; more of them and nothing is certain."""

_OPENERS = re.compile("[{\\[\uff5b\uff3b]")


@dataclass(frozen=True, slots=True)
class Found:
    """A container that stands in a text at ``start:end``."""

    node: Obj | Arr
    start: int
    end: int
    is_damaged: bool
    """Part of it made no sense: none of its numbers can be trusted."""
    is_strict: bool = False
    """It is strict JSON: what its strings hold is certain."""


def containers_in(text: str) -> Iterator[Found]:
    """Yield the outermost objects and arrays of ``text``, in order."""
    position = 0
    while (opener := _OPENERS.search(text, position)) is not None:
        found = _found_at(text, opener.start())
        if found is None:
            position = opener.end()
            continue
        yield found
        position = found.end


def strict_inside(text: str, found: Found) -> list[Obj | Arr] | None:
    """Return the outermost strict containers inside one that is not strict itself.

    A container that was opened in a quote and never closed takes in what follows: what stands
    whole inside it may be the author's own. None when it holds too much that is neither.
    """
    inside: list[Obj | Arr] = []
    num_broken = 0
    position = found.start + 1
    while (opener := _OPENERS.search(text, position, found.end)) is not None:
        strict = StrictReader(text, opener.start())
        try:
            node = strict.value(0)
        except Unreadable:
            num_broken += 1
            position = opener.end()
            if num_broken > _MAX_BROKEN_INSIDE:
                return None
            continue
        assert isinstance(node, Obj | Arr)
        inside.append(node)
        position = strict.at
    return inside


def _found_at(text: str, start: int) -> Found | None:
    strict = StrictReader(text, start)
    try:
        node = strict.value(0)
    except Unreadable:
        return _tolerant_at(text, start)
    assert isinstance(node, Obj | Arr)
    return Found(node, start, strict.at, is_damaged=False, is_strict=True)


def _tolerant_at(text: str, start: int) -> Found | None:
    """Read what opens at ``start``; None for a bracket of prose, such as ``[llm]``."""
    if text[start] in "[\uff3b" and not starts_list(text, start):
        return None
    if len(text) > MAX_TOLERANT_CHARS:
        return Found(Obj((), is_closed=False), start, len(text), is_damaged=True)
    reader = TolerantReader(text, start)
    try:
        node = reader.value(0, closer="")
    except Unreadable:
        return Found(Obj((), is_closed=False), start, len(text), is_damaged=True)
    assert isinstance(node, Obj | Arr)
    return Found(node, start, reader.at, reader.is_damaged)
