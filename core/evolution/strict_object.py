"""A writer's reply that is one JSON object: found in the text, its keys and texts checked.

Nothing is guessed: an object has exactly the keys that are wanted, a text is plain and not empty.
Every refusal is a WriterReplyError that says got, wanted and where, since its text goes back to the
writer.
"""

import json
from collections.abc import Set
from typing import Any, cast
from unicodedata import category

from core.errors import WriterReplyError
from core.grading.reply_text import without_reasoning

MAX_CHARS = 4000
"""Longest text: a criterion that crowds the response out of the judge's context grades nothing."""


def json_object(text: str, finish_reason: str) -> dict[str, Any]:
    """Return the object of a reply.

    The whole text is tried first; the part from the first to the last brace is a fallback. What
    stands in reasoning is a draft: reasoning that never ends leaves nothing to read.
    """
    answer = without_reasoning(text, ()) or ""
    for candidate in (text, answer[answer.find("{") : answer.rfind("}") + 1]):
        try:
            value: Any = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return cast(dict[str, Any], value)
    cut = ", the reply was cut at its token limit" if finish_reason == "length" else ""
    raise WriterReplyError(f"got no JSON object that can be read{cut}; wanted one and nothing else")


def checked_object(value: Any, keys: Set[str], where: str) -> dict[str, Any]:
    """Return ``value`` as an object that has exactly these keys."""
    if not isinstance(value, dict):
        raise WriterReplyError(f"{where}: got {type(value).__name__}, wanted an object")
    found = cast(dict[str, Any], value)
    if found.keys() != keys:
        raise WriterReplyError(
            f"{where}: got the keys {sorted(found)}, wanted exactly {sorted(keys)}"
        )
    return found


def checked_text(value: Any, where: str) -> str:
    """Return ``value`` as a text without surrounding spaces, if it is plain and not empty."""
    if not isinstance(value, str) or not value.strip():
        raise WriterReplyError(f"{where}: wanted a text that is not empty")
    if len(value) > MAX_CHARS:
        raise WriterReplyError(f"{where}: got {len(value)} characters, wanted at most {MAX_CHARS}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise WriterReplyError(f"{where}: got half of a Unicode character, wanted valid text")
    if any(category(char) == "Cc" and char not in "\n\t" for char in value):
        raise WriterReplyError(f"{where}: got a control character, wanted plain text")
    return value.strip()
