"""Tells a writer's own text from one that it copied from a response.

A writer that quotes a response which writes sets or updates of its own, and gives none itself,
would else make the policy's text an edit. Compared by letters and digits alone, with JSON escapes
read and code fences taken out, as the readers of replies do: another spelling of the same text does
not hide it.
"""

import re
import unicodedata
from collections.abc import Collection

from core.grading.json_nodes import unescaped

_FENCE = re.compile(r"```[\w-]*")
_AFTER_KEY = "[\"'`\u201d\u2019]{0,2}\\s{0,20}:"
"""What follows the name of a key, after compatibility normalisation."""


def stands_in(text: str, response: str) -> bool:
    """Return whether ``response`` holds the letters of ``text``, however they are spelled."""
    wanted = letters_of(text)
    return bool(wanted) and any(wanted in form for form in _forms(response))


def writes_key(response: str, names: Collection[str]) -> bool:
    """Return whether ``response`` writes one of these keys of a reply, quoted or bare."""
    spelled = "|".join(re.escape(name).replace("_", r"[\s_-]{0,5}") for name in names)
    pattern = re.compile(f"(?:{spelled}){_AFTER_KEY}", re.IGNORECASE)
    return any(
        pattern.search(unicodedata.normalize("NFKC", text)) is not None
        for text in (response, unescaped(response))
    )


def letters_of(text: str) -> str:
    """Return the letters and digits of ``text`` in one Unicode form and case."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in folded if char.isalnum())


def _forms(response: str) -> set[str]:
    """The letters of what readers may make of ``response``: as is, unescaped, without fences."""
    spellings = {response, unescaped(response)}
    spellings |= {_FENCE.sub("", spelling) for spelling in spellings}
    return {letters_of(spelling) for spelling in spellings}
