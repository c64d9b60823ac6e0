"""How alike two criterion texts are: by their content words, without a model.

``similarity`` is the overlap of content words over the shorter text (a rewrite usually adds to the
old text); ``is_near_duplicate`` is strict: almost the same words, the same numbers and negations.
Scripts without spaces are compared by pairs of characters.
"""

import re
import unicodedata
from functools import cache

_TOKEN = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")
_FIXED_WORDS = """one two three four five six seven eight nine ten
    no not never without avoid neither nor none cannot"""
_BOILERPLATE = """a an the this that these those is are was be been does do did has have it its of
    to in on at for from by with as and or any all each every response responses answer answers
    text output should must whether criterion rubric llm resist"""

REWRITE_SIMILARITY = 0.34
"""Below this a text is too different to be a rewrite of another one."""

_DUPLICATE_JACCARD = 0.85


def normal_text(text: str) -> str:
    """Return the text in one Unicode form and case, with single spaces and no final period."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).rstrip(".\u3002 ")


def compact_text(text: str) -> str:
    """Return the text in one case without any white space."""
    return "".join(text.split()).casefold()


def content_words(text: str) -> frozenset[str]:
    """Return the words that carry the text's meaning; plural s is ignored."""
    tokens = set(_TOKEN.findall(normal_text(text)))
    content = tokens - _words(_BOILERPLATE) or tokens
    return frozenset(piece for token in content for piece in _pieces(token))


def _pieces(token: str) -> set[str]:
    pieces: set[str] = set()
    for run in _UNSPACED.findall(token):
        pieces.update({run} if len(run) == 1 else {run[i : i + 2] for i in range(len(run) - 1)})
    for word in _UNSPACED.split(token):
        if word:
            is_plural = len(word) > 3 and word.endswith("s") and not word.endswith("ss")
            pieces.add(word[:-1] if is_plural else word)
    return pieces


def similarity(first: str, second: str) -> float:
    """Return 0..1: the share of the shorter text's content words that the other one has too."""
    a, b = content_words(first), content_words(second)
    return len(a & b) / min(len(a), len(b)) if a and b else 0.0


def is_near_duplicate(first: str, second: str) -> bool:
    """Return whether two texts ask for the same thing in almost the same words."""
    if normal_text(first) == normal_text(second):
        return True
    a, b = content_words(first), content_words(second)
    if not a or not b or fixed_words(a) != fixed_words(b):
        return False
    return len(a & b) / len(a | b) >= _DUPLICATE_JACCARD


def fixed_words(words: frozenset[str]) -> frozenset[str]:
    """Return the words that turn a criterion into another one: numbers and negations."""
    fixed = _words(_FIXED_WORDS)
    return frozenset(w for w in words if w in fixed or any(char.isdigit() for char in w))


@cache
def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())
