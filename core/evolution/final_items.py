"""Checks the items of a writer's set and brings them into the form in which they are stored.

``[llm] text`` or ``[Resist] text``, one line, single spaces; repeated and blank items go. Anything
doubtful raises ``ItemError``: the set is then refused whole.
"""

import re
import unicodedata
from collections.abc import Sequence

from core.grading.names import plain_text, split_tag
from core.rubric import TAGS

_TAG_BY_NAME = {"llm": TAGS["llm"], "resist": TAGS["resist"]}
_LEAD = re.compile(r"^(?:[-*\u2022]\s+|\(?\d{1,3}[.):]\s*(?=\[|\*\*\[))+")
_TAGGED = re.compile(r"^(?:\*\*)?\[\s*([^\[\]]{1,40}?)\s*\](?:\*\*)?\s*(.*)$")
_PLACEHOLDER = re.compile(
    r"(?:[.\u2026?_\-\u2013\u2014*]+|<[^<>]*>|\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]"
    r"|(?:(?:your|new|the|a|an|another|existing|current|first|second|rewritten|revised|updated|added"
    r"|patched|optional|some|more|other|remaining|unchanged)\s)*"
    r"(?:criterion|criteria|rubrics?|items?|text|questions?)"
    r"(?:\s(?:text|here|goes here|\d+|[a-z]))*"
    r"|tbd|todo|n/?a|placeholder|x{3,}|lorem ipsum|etc|(?:same|as)\b.{0,12}(?:above|before))"
    r"[\s.\u2026]*",
    re.IGNORECASE,
)


class ItemError(ValueError):
    """An item that makes the whole set unusable."""


def tagged_items(
    raw_items: Sequence[str], current: Sequence[str], *, max_items: int, max_chars: int
) -> tuple[str, ...]:
    """Return the items in stored form; raises ItemError with the reason for a refusal."""
    items: dict[str, str] = {}
    for raw in raw_items:
        item = _stored_form(raw, current)
        if item is None:
            continue
        if len(item) > max_chars:
            raise ItemError(f"got an item of {len(item)} characters, wanted at most {max_chars}")
        items.setdefault(item.casefold().rstrip(" .\u3002"), item)
    if not items:
        raise ItemError("got an empty set, wanted at least one criterion")
    if len(items) > max_items:
        raise ItemError(f"got {len(items)} items, wanted at most {max_items}")
    return tuple(items.values())


def is_placeholder(text: str) -> bool:
    """Return whether ``text`` only stands where a criterion should."""
    return _PLACEHOLDER.fullmatch(text) is not None


def _stored_form(raw: str, current: Sequence[str]) -> str | None:
    """Return ``[tag] text``; None for a blank item."""
    line = _LEAD.sub("", one_line(raw)).strip()
    if not line:
        return None
    match = _TAGGED.match(line)
    tag = _TAG_BY_NAME.get(match.group(1).casefold()) if match is not None else None
    text = line
    if match is not None:
        text = match.group(2).strip()
        if tag is None:
            raise ItemError(f"got the tag [{match.group(1)}], wanted [llm] or [Resist]")
        if not text:
            return None
        text = _without_second_tag(tag, text, current)
    if is_placeholder(text):
        raise ItemError(f"got the placeholder {text[:60]!r}, wanted a criterion")
    if tag is None:
        tag = _known_tag(text, current)
    return f"{tag} {text}"


def _without_second_tag(tag: str, text: str, current: Sequence[str]) -> str:
    """Return the text without its tag written twice; a current text may begin with a tag."""
    second = _TAGGED.match(text)
    other = _TAG_BY_NAME.get(second.group(1).casefold()) if second is not None else None
    if second is None or other is None or f"{tag} {text}" in map(one_line, current):
        return text
    if other != tag or not second.group(2).strip():
        raise ItemError(f"got the tags {tag} and {other} before one text, wanted one of them")
    return second.group(2).strip()


def _known_tag(text: str, current: Sequence[str]) -> str:
    """Return the tag of the current criterion with this text."""
    wanted = plain_text(text)
    tags = {tag for tag, body in map(split_tag, map(plain_text, current)) if body == wanted}
    if len(tags) != 1 or not tags <= set(_TAG_BY_NAME):
        raise ItemError(f"got {text[:60]!r} without a tag, wanted [llm] or [Resist] before it")
    return _TAG_BY_NAME[tags.pop()]


def one_line(text: str) -> str:
    """Return ``text`` on one line with single spaces, without control characters."""
    kept = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    safe = kept.encode("utf-8", "replace").decode("utf-8")
    return " ".join(safe.split())
