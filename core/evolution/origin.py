"""Tells a writer's own text from one that it copied from a response.

A writer that quotes a response which writes sets or updates of its own, and gives none itself,
would else make the policy's text an edit. Compared by letters and digits alone, with JSON escapes
read and code fences taken out, as the readers of replies do: another spelling of the same text does
not hide it.
"""

import re
import unicodedata

from core.grading.json_nodes import unescaped

_FENCE = re.compile(r"```[\w-]*")


def stands_in(text: str, response: str) -> bool:
    """Return whether ``response`` holds the letters of ``text``, however they are spelled."""
    wanted = letters_of(text)
    return bool(wanted) and any(wanted in form for form in _forms(response))


def letters_of(text: str) -> str:
    """Return the letters and digits of ``text`` in one Unicode form and case."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in folded if char.isalnum())


def _forms(response: str) -> set[str]:
    """The letters of what readers may make of ``response``: as is, unescaped, without fences."""
    spellings = {response, unescaped(response)}
    spellings |= {_FENCE.sub("", spelling) for spelling in spellings}
    return {letters_of(spelling) for spelling in spellings}
