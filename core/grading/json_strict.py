"""Reads strict JSON into the tree of ``json_nodes``.

Differences from ``json.loads``: NaN and infinities are words, an unknown escape stays as written.
Anything else that is not JSON raises ``Unreadable``.
"""

import re

from core.grading.json_nodes import MAX_DEPTH, Arr, Node, Obj, Pair, Scalar, Unreadable, unescaped

_STRICT_SKIP = re.compile(r"[ \t\r\n]*")
_STRICT_STRING = re.compile(r'"([^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*)"')
_STRICT_WORD = re.compile(
    r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])|(?:true|false|null|NaN|-?Infinity)\b"
)


class StrictReader:
    """Reads strict JSON (NaN and infinities are words, unknown escapes are kept)."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at: int = at

    def skip(self) -> None:
        match = _STRICT_SKIP.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unreadable
        self.skip()
        char = self.text[self.at : self.at + 1]
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char == '"':
            return Scalar(unescaped(self._string()), is_string=True, is_last=False)
        match = _STRICT_WORD.match(self.text, self.at)
        if match is None:
            raise Unreadable
        self.at = match.end()
        return Scalar(match.group(0), is_string=False, is_last=False)

    def _string(self) -> str:
        match = _STRICT_STRING.match(self.text, self.at)
        if match is None:
            raise Unreadable
        self.at = match.end()
        return match.group(1)

    def _take(self, chars: str) -> str:
        """Skip blanks, take one of ``chars``."""
        self.skip()
        char = self.text[self.at : self.at + 1]
        if not char or char not in chars:
            raise Unreadable
        self.at += 1
        return char

    def _is_empty(self, closer: str) -> bool:
        self.at += 1
        self.skip()
        if self.text[self.at : self.at + 1] == closer:
            self.at += 1
            return True
        return False

    def _object(self, depth: int) -> Obj:
        pairs: list[Pair] = []
        if self._is_empty("}"):
            return Obj(())
        while True:
            self.skip()
            raw = self._string()
            self._take(":")
            pairs.append(Pair(unescaped(raw), raw, self.value(depth + 1)))
            if self._take(",}") == "}":
                return Obj(tuple(pairs))

    def _array(self, depth: int) -> Arr:
        items: list[Node] = []
        if self._is_empty("]"):
            return Arr(())
        while True:
            items.append(self.value(depth + 1))
            if self._take(",]") == "]":
                return Arr(tuple(items))


def read_strict(text: str) -> Node | None:
    """Return the value that all of ``text`` is; None if it is not strict JSON."""
    reader = StrictReader(text, 0)
    try:
        node = reader.value(0)
    except Unreadable:
        return None
    reader.skip()
    return node if reader.at == len(text) else None
