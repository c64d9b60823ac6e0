"""Decides whether a key is a shortened or slightly changed criterion text, meaning kept.

Only changes that cannot turn a statement around are allowed: an article more or less, an inflected
ending, a typing slip inside a long word, an accent, and in Japanese another spelling in kana.
Numbers, negations and every other word must be the same and in the same order.
Texts come from ``names.plain_text`` (case-folded, one space between words).
"""

import re
import unicodedata
from difflib import SequenceMatcher

_ARTICLES = frozenset({"a", "an", "the"})
_ENDINGS = ("s", "es", "'s", "s'", "'")
_MIN_PREFIX = 10
_MIN_PREFIX_DENSE = 5
_MIN_SLIP_WORD = 7
_MAX_CHANGED_WORDS = 2
_MAX_CHARS = 600

_DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_KANA_ONLY = re.compile("[\u3040-\u309f\u30a0-\u30ff]*")
_DENSE_NEGATIONS = (
    "\u306a\u3044", "\u306a\u304f", "\u306a\u304b", "\u306a\u3057", "\u306a\u3057\u3067", "\u305a",
    "\u306c", "\u307e\u305b\u3093", "\u307e\u3044", "\u3093", "\u3067\u304d", "\u4e0d", "\u6ca1",
    "\u6c92", "\u65e0", "\u7121", "\u975e", "\u672a", "\u5426", "\u522b", "\u52ff", "\u7981",
    "\u907f",
)  # fmt: skip
_NUMERALS = frozenset(
    "0123456789\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u767e\u5343\u4e07\u4e24\u534a\u591a\u5c11\u4e0a\u4e0b\u524d\u5f8c\u540e"
)


def is_shortened(key: str, text: str, *, has_ellipsis: bool) -> bool:
    """Return whether ``key`` is the beginning of ``text``, long enough to be meant as such.

    Without an ellipsis the key must hold most of the text and end where a word does not.
    """
    least = _MIN_PREFIX_DENSE if _DENSE.search(key) else _MIN_PREFIX
    if len(key) < least or len(key) >= len(text) or not text.startswith(key):
        return False
    if has_ellipsis:
        return True
    is_inside_word = key[-1].isalnum() and text[len(key)].isalnum() and not _DENSE.search(key[-1])
    return is_inside_word and 2 * len(key) >= len(text)


def is_slightly_changed(key: str, text: str) -> bool:
    """Return whether ``key`` differs from ``text`` only in ways that keep its meaning."""
    if not key or max(len(key), len(text)) > _MAX_CHARS:
        return False
    if _DENSE.search(text):
        return _is_respelled(key, text)
    words, own = key.split(), text.split()
    changed = 0
    for op, a, b, c, d in SequenceMatcher(None, words, own, autojunk=False).get_opcodes():
        if op == "equal":
            continue
        left, right = words[a:b], own[c:d]
        if not _is_harmless(left, right):
            return False
        changed += max(len(left), len(right))
    return changed <= _MAX_CHANGED_WORDS and 3 * changed <= len(own)


def _is_harmless(left: list[str], right: list[str]) -> bool:
    left = [w for w in left if w not in _ARTICLES]
    right = [w for w in right if w not in _ARTICLES]
    if len(left) != len(right):
        return False
    return all(_is_same_word(a, b) for a, b in zip(left, right, strict=True))


def _is_same_word(a: str, b: str) -> bool:
    a, b = a.strip(",;:'()"), b.strip(",;:'()")
    if a == b:
        return True
    if any(ch.isdigit() for ch in a + b):
        return False
    if _without_accents(a) == _without_accents(b) and a.isascii() != b.isascii():
        return True
    short, long = sorted((a, b), key=len)
    if a.replace("'", "") == b.replace("'", "") and not long.endswith("n't"):
        return long.endswith(("'s", "s'"))
    if len(short) >= 3 and long.startswith(short) and long[len(short) :] in _ENDINGS:
        return True
    return _is_slip(short, long)


def _is_slip(short: str, long: str) -> bool:
    """One letter doubled, or two neighbours swapped, behind the first letters of a long word."""
    if len(short) < _MIN_SLIP_WORD or not (short + long).isalpha() or short[:2] != long[:2]:
        return False
    at = next((i for i, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    if len(long) == len(short) + 1:
        return long[at] == long[at - 1] and long[at + 1 :] == short[at:]
    swapped = short[:at] + short[at : at + 2][::-1] + short[at + 2 :]
    return len(long) == len(short) and swapped == long


def _is_respelled(key: str, text: str) -> bool:
    if any(key.count(n) != text.count(n) for n in _DENSE_NEGATIONS):
        return False
    if sorted(filter(_NUMERALS.__contains__, key)) != sorted(filter(_NUMERALS.__contains__, text)):
        return False
    matcher = SequenceMatcher(None, key, text, autojunk=False)
    if matcher.ratio() < 0.8:
        return False
    return all(
        op == "equal" or _is_kana_spelling(key[a:b], text[c:d])
        for op, a, b, c, d in matcher.get_opcodes()
    )


def _is_kana_spelling(left: str, right: str) -> bool:
    """A long-vowel mark more or less, or the same word in kana and in one Chinese character."""
    if {left, right} <= {"", "\u30fc"}:
        return True
    kana, other = (left, right) if _KANA_ONLY.fullmatch(left) else (right, left)
    is_one_character = len(other) == 1 and _DENSE.fullmatch(other) is not None
    return bool(kana) and _KANA_ONLY.fullmatch(kana) is not None and is_one_character


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
