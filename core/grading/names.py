"""Tells which criterion a key of a judge's reply names, if that is certain.

Rungs, strictest first: the exact text; the same after Unicode form, case, spacing, bullets,
numbering, quotes, HTML entities, invisible marks and final punctuation; the same without its
``[tag]``; a shortened or slightly changed text that fits one criterion only and cannot have changed
its meaning. A key that fits criteria with different texts names none of them.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.grading.near_names import is_shortened, is_slightly_changed

_INVISIBLE = re.compile("[\ufe00-\ufe0f\u00ad]")
_QUOTES = str.maketrans(
    dict.fromkeys('"`\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2032\u2033', "'")
)
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"))
_LEAD = re.compile(
    r"^(?:[-*\u2022\u25cf\u25aa\u00b7\u2013+>#]+\s+|\(?\d{1,3}\s?[.):\u3001]\s*(?=\D)"
    r"|(?:rubric|criterion|item|question|c|q|r)\s*[#_-]?\d{1,3}\s*[.):-]\s+)"
)
_TAG = re.compile(r"^\[([a-z]{2,12})\]\s*")
_ENDS = " \t'*_~.\u3002!\uff01?\uff1f:;,\uff0c\uff1b\uff1a\u061f"
_INDEX = re.compile(
    r"(?:rubric|criterion|criteria|item|question|no|number|score|id|c|q|r)?[\s_.#:-]*(\d{1,3})"
)

LOOSEST_RUNG = 3

_MAX_NEAR_KEYS = 300
"""Keys of one reply that are compared word by word; later ones must match more strictly."""


@dataclass(frozen=True, slots=True)
class Match:
    """The criteria (indices) that a key names, and how loosely; none when it is ambiguous."""

    indices: frozenset[int]
    rung: int


class Matcher:
    """Matches keys against the criteria of one request.

    ``names[i]`` are the texts that may stand for criterion i, ``near[i]`` the one among them that
    may be shortened or slightly changed (never an id). Criteria of one ``classes`` value are one
    and the same to the judge and share what is said about them.
    """

    def __init__(
        self, names: Sequence[Sequence[str]], near: Sequence[str], classes: Sequence[str]
    ) -> None:
        self._exact = _index((n, i) for i, group in enumerate(names) for n in group)
        self._plain = _index((plain_text(n), i) for i, group in enumerate(names) for n in group)
        self._untagged: dict[str, set[int]] = {}
        self._tags: dict[int, str] = {}
        self._near = [(i, split_tag(plain_text(n))) for i, n in enumerate(near)]
        for i, group in enumerate(names):
            for name in group:
                tag, body = split_tag(plain_text(name))
                self._untagged.setdefault(body, set()).add(i)
                self._tags[i] = tag or self._tags.get(i, "")
        self._classes = list(classes)
        self._longest_key = 200 + 8 * max(len(n) for group in names for n in group)
        self._known: dict[tuple[str, str], Match | None] = {}

    def match(self, key: str, raw_key: str = "") -> Match | None:
        """Return what ``key`` names; None if it resembles no criterion."""
        if (key, raw_key) not in self._known:
            self._known[(key, raw_key)] = self._match(key, raw_key)
        return self._known[(key, raw_key)]

    def _match(self, key: str, raw_key: str) -> Match | None:
        for spelled in (raw_key, key):
            if spelled in self._exact:
                return self._unique(self._exact[spelled], 0)
        if len(key) > self._longest_key:
            return None
        plain = plain_text(key)
        for spelled in (plain_text(raw_key) if raw_key else plain, plain):
            if spelled in self._plain:
                return self._unique(self._plain[spelled], 1)
        tag, body = split_tag(plain)
        untagged = self._untagged.get(body, set())
        if fitting := {i for i in untagged if not tag or self._tags[i] in ("", tag)}:
            return self._unique(fitting, 2)
        if len(self._known) > _MAX_NEAR_KEYS:
            return None
        return self._near_match(
            tag, body, has_ellipsis=key.rstrip(" *_'\"").endswith(("...", "\u2026"))
        )

    def _near_match(self, tag: str, body: str, *, has_ellipsis: bool) -> Match | None:
        fitting = {
            i
            for i, (own_tag, own) in self._near
            if (not tag or own_tag in ("", tag))
            and (
                is_shortened(body, own, has_ellipsis=has_ellipsis)
                or (not has_ellipsis and is_slightly_changed(body, own))
            )
        }
        return self._unique(fitting, LOOSEST_RUNG) if fitting else None

    def _unique(self, indices: set[int], rung: int) -> Match:
        texts = {self._classes[i] for i in indices}
        return Match(frozenset(indices) if len(texts) == 1 else frozenset(), rung)

    def twins(self, index: int) -> frozenset[int]:
        """Return all criteria that share the verdict of criterion ``index``, itself included."""
        own = self._classes[index]
        return frozenset(i for i, text in enumerate(self._classes) if text == own)


def plain_text(text: str) -> str:
    """Return ``text`` without what a judge changes when it copies (see the module's contract)."""
    plain = unicodedata.normalize("NFKC", html.unescape(text))
    plain = "".join(
        " " if unicodedata.category(ch) == "Cc" else ch
        for ch in _INVISIBLE.sub("", plain)
        if unicodedata.category(ch) not in ("Cf", "Cs")
    )
    plain = unicodedata.normalize("NFKC", plain.casefold()).translate(_QUOTES).translate(_DASHES)
    plain = " ".join(plain.split())
    return _stripped(plain)


def _stripped(plain: str) -> str:
    """Strip markup, bullets, numbering and final punctuation, before and after a tag."""
    before = None
    while plain != before:
        before = plain
        plain = _LEAD.sub("", plain.lstrip(" *_~'"), count=1).rstrip(_ENDS)
    if (tag := _TAG.match(plain)) is not None:
        return tag.group(0).strip() + " " + _stripped(plain[tag.end() :])
    return plain


def split_tag(plain: str) -> tuple[str, str]:
    """Return the tag (without brackets, or "") and the rest of a text from ``plain_text``."""
    match = _TAG.match(plain)
    return ("", plain) if match is None else (match.group(1), plain[match.end() :])


def item_number(key: str) -> int | None:
    """Return the number of a key that is nothing but an item's number, such as ``rubric_2``."""
    plain = unicodedata.normalize("NFKC", key).casefold().strip(" *_`'\"[]().:#")
    match = _INDEX.fullmatch(plain)
    return None if match is None else int(match.group(1))


def _index(entries: Iterable[tuple[str, int]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, index in entries:
        found.setdefault(name, set()).add(index)
    return found
