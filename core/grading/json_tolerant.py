"""Reads what models write instead of JSON into the tree of ``json_nodes``.

Comments, trailing commas, Python literals, other quotes, full-width punctuation, raw quotes and
newlines inside strings are understood. A place that makes no sense sets ``is_damaged``, after which
no number of the value may be trusted; nothing is guessed away and nothing is evaluated. Work is
linear in the text: depth and look-ahead are bounded (``Unreadable`` beyond).
"""

import re

from core.grading.json_nodes import MAX_DEPTH, Arr, Node, Obj, Pair, Scalar, Unreadable, unescaped

_MAX_LOOKAHEADS = 50_000

_SKIP = re.compile(r"(?:\s+|//[^\n]*|/\*[\s\S]{0,2000}?\*/|#[^\n]*)*")
_WORD = re.compile('[^,\uff0c{}\uff5b\uff5d\\[\\]\uff3b\uff3d\\n"\u201c\u201d]{1,200}')
_MORE_DIGITS = re.compile(r"[\d.]*")
_WORD_COMMENT = re.compile(r"\s*(?://|/\*|\s#).*", re.DOTALL)
_BARE_KEY = re.compile(
    "[^\\s\"'\u201c\u201d\u2018\u2019{}\\[\\],:\uff1a]"
    '[^"\u201c\u201d{}\\[\\],:\uff1a\\n]{0,300}?(?=\\s*[:\uff1a])'
)
_NEXT_KEY = re.compile(
    "[\"'\u201c\u201d\u201e\u2018\u300c][\\s\\S]{0,600}?[\"'\u201d\u201c\u2019\u300d]\\s*[:\uff1a]"
)
_NEXT_ITEM = re.compile(
    "[\"'\u201c\u201e\u2018\u300c{\\[\\]\uff3d\\d+-]|true|false|null|None|True|False|$"
)
_STRAY = re.compile('[^{}\\[\\],"\uff5b\uff5d\uff0c\u201c\u201d]+|[\\s\\S]')
_CLOSERS = {
    '"': '"\u201d',
    "'": "'\u2019",
    "\u201c": '\u201d\u201c"',
    "\u201d": '\u201d"',
    "\u201e": '\u201c\u201d"',
    "\u2018": "\u2019'",
    "\u300c": "\u300d",
    "`": "`",
}
_STRING_STOPS = {q: re.compile("[\\\\" + closers + "]") for q, closers in _CLOSERS.items()}
_OBJ_OPEN, _OBJ_CLOSE = "{\uff5b", "}\uff5d"
_ARR_OPEN, _ARR_CLOSE = "[\uff3b", "]\uff3d"
_COMMA, _COLON = ",\uff0c", ":\uff1a"


def starts_list(text: str, start: int) -> bool:
    """Return whether the bracket at ``start`` opens a list, not a tag such as ``[llm]``."""
    after = _SKIP.match(text, start + 1)
    assert after is not None
    following = text[after.end() : after.end() + 1]
    if not following:
        return False
    return following in _CLOSERS or following in "{\uff5b[-]\uff3d" or following.isdigit()


class TolerantReader:
    """Reads what models write instead of JSON; see the module's contract."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at: int = at
        self.is_damaged = False
        self._end = len(text.rstrip())
        self._lookaheads = 0

    def value(self, depth: int, closer: str) -> Node:
        """Read the value at ``at``; ``closer`` closes the container around it."""
        if depth > MAX_DEPTH:
            raise Unreadable
        char = self._peek()
        if char and char in _OBJ_OPEN:
            return self._object(depth)
        if char and char in _ARR_OPEN:
            return self._array(depth, _ARR_CLOSE)
        if char == "(":
            return self._array(depth, ")")
        if char in _CLOSERS:
            raw = self._string("" if closer == _OBJ_CLOSE else closer)
            if raw is None:
                return Scalar("", is_string=True, is_last=True)
            return Scalar(unescaped(raw), is_string=True, is_last=self._is_at_end())
        return self._word()

    def _peek(self) -> str:
        match = _SKIP.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return self.text[self.at : self.at + 1]

    def _is_at_end(self) -> bool:
        return self.at >= self._end

    def _word(self) -> Scalar:
        match = _WORD.match(self.text, self.at)
        if match is None:
            self._stray()
            return Scalar("", is_string=False, is_last=self._is_at_end())
        text = match.group(0)
        if text.isdigit():  # a number without end makes no nonsense of what stands before it
            match = _MORE_DIGITS.match(self.text, self.at)
            assert match is not None
        comment = _WORD_COMMENT.search(text)
        self.at = match.end()
        if comment is not None:
            self.at = match.start() + comment.start()
            text = text[: comment.start()]
        if ")" in text and "(" not in text:
            self.at = match.start() + text.index(")")
            text = text[: text.index(")")]
        if self.at == match.start():  # a bracket that closes nothing, a comment that never ends
            self._stray()
        return Scalar(text.strip(), is_string=False, is_last=self._is_at_end())

    def _stray(self) -> None:
        """Step over what makes no sense, and remember that there was such a thing."""
        self.is_damaged = True
        match = _STRAY.match(self.text, self.at)
        self.at = len(self.text) if match is None else match.end()

    def _object(self, depth: int) -> Obj:
        self.at += 1
        pairs: list[Pair] = []
        while char := self._peek():
            if char in _OBJ_CLOSE:
                self.at += 1
                return Obj(tuple(pairs))
            if char in _COMMA:
                self.at += 1
            elif char in _OBJ_OPEN:
                pairs.append(Pair("", "", self.value(depth + 1, _OBJ_CLOSE)))
            else:
                self._pair(depth, pairs)
        return Obj(tuple(pairs), is_closed=False)

    def _pair(self, depth: int, pairs: list[Pair]) -> None:
        raw = self._key()
        if raw is None:
            return
        if self._peek() not in tuple(_COLON):
            if self.at < len(self.text):
                self._stray()
            return
        self.at += 1
        char = self._peek()
        if not char:
            pairs.append(Pair(unescaped(raw), raw, None))
        elif char in _COMMA or char in _OBJ_CLOSE:
            pairs.append(Pair(unescaped(raw), raw, Scalar("", is_string=False, is_last=False)))
        else:
            pairs.append(Pair(unescaped(raw), raw, self.value(depth + 1, _OBJ_CLOSE)))
            self._look_behind_value()

    def _look_behind_value(self) -> None:
        """A quote right behind a value, without a comma, ended a string that goes on."""
        after = self._after_blanks(self.at)
        if (
            self.text[after : after + 1] in tuple(_CLOSERS)
            and "\n" not in self.text[self.at : after]
        ):
            self.is_damaged = True

    def _key(self) -> str | None:
        if self.text[self.at] in _CLOSERS:
            return self._string(_COLON)
        match = _BARE_KEY.match(self.text, self.at)
        if match is None:
            self._stray()
            return None
        self.at = match.end()
        return match.group(0).strip()

    def _array(self, depth: int, closer: str) -> Arr:
        self.at += 1
        items: list[Node] = []
        while char := self._peek():
            if char in closer:
                self.at += 1
                return Arr(tuple(items))
            if char in _COMMA:
                self.at += 1
            else:
                items.append(self.value(depth + 1, closer))
        return Arr(tuple(items), is_closed=False)

    def _string(self, context: str) -> str | None:
        """Read a string; None if it never ends.

        A quote ends it only if what follows fits: a colon after a key (``context`` is the colons),
        the next key or the closing brace after an object's value (empty ``context``), the next item
        or the closing bracket after an item (``context`` is that bracket).
        """
        start = self.at + 1
        stops = _STRING_STOPS[self.text[self.at]]
        at = start
        while (stop := stops.search(self.text, at)) is not None:
            if stop.group(0) == "\\":
                at = stop.end() + 1
                continue
            if self._ends_string(stop.end(), context):
                self.at = stop.end()
                return self.text[start : stop.start()]
            at = stop.end()
        self.at = len(self.text)
        return None

    def _ends_string(self, after: int, context: str) -> bool:
        self._lookaheads += 1
        if self._lookaheads > _MAX_LOOKAHEADS:
            raise Unreadable
        following = self._after_blanks(after)
        char = self.text[following : following + 1]
        if not char:
            return True
        if context == _COLON:
            return char in _COLON
        closes = context or _OBJ_CLOSE
        if char in closes:
            return True
        if char in _COMMA:
            return self._fits_after_comma(self._after_blanks(following + 1), context)
        if context:  # a comma is missing between two tagged items
            return char in _CLOSERS and self.text[following + 1 : following + 2] == "["
        has_newline = "\n" in self.text[after:following]
        return has_newline and _NEXT_KEY.match(self.text, following) is not None

    def _fits_after_comma(self, at: int, context: str) -> bool:
        char = self.text[at : at + 1]
        if not char or char in (context or _OBJ_CLOSE):
            return True
        wanted = _NEXT_ITEM if context else _NEXT_KEY
        return wanted.match(self.text, at) is not None

    def _after_blanks(self, at: int) -> int:
        match = _SKIP.match(self.text, at)
        assert match is not None
        return match.end()
