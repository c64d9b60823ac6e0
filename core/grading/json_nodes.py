"""The tree that a reply's JSON-like values are read into.

It keeps what ``json.loads`` throws away and a verdict needs: repeated keys, a key as it was spelled
before its escapes, and whether something stands last before a cut. Numbers stay text.
"""

import re
from dataclasses import dataclass

MAX_DEPTH = 40
"""Deeper containers are not read."""

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Unreadable(Exception):
    """The grammar is broken at this place, or a limit was reached."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, number or word, as text."""

    text: str
    is_string: bool
    is_last: bool
    """Nothing but blanks follows in the whole text: where it was cut, this may be incomplete."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with its value; ``value`` is None where the text ends before one."""

    key: str
    raw_key: str
    """As written between the quotes."""
    value: "Node | None"


@dataclass(frozen=True, slots=True)
class Obj:
    """An object; its pairs in order, repeated keys kept. ``is_closed`` is false at a cut."""

    pairs: tuple[Pair, ...]
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Arr:
    """An array. ``is_closed`` is false at a cut."""

    items: tuple["Node", ...]
    is_closed: bool = True


Node = Scalar | Obj | Arr


def unescaped(raw: str) -> str:
    """Return a string literal's content with its escapes decoded; unknown ones stay as they are."""
    if "\\" not in raw:
        return raw
    decoded = _ESCAPE.sub(_decoded_escape, raw)
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _decoded_escape(match: re.Match[str]) -> str:
    if match.group(1) is not None:
        return chr(int(match.group(1), 16))
    char = match.group(2)
    if char in _ESCAPES:
        return _ESCAPES[char]
    return char if char in "\"'\\/" else match.group(0)
