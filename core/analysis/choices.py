"""Reads a reply that chooses: one JSON object whose fields each name one of the allowed answers.

Tolerant about the wrapping (fences, prose, reasoning before it), strict about the content. A field
that is missing, says something else, or is said in two ways makes the whole reply unread, with the
reason: an unread reply is asked for again or is missing, and never a default.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.evolution.reply_object import field_of, objects_with
from core.grading.json_nodes import Obj, Scalar
from core.grading.schema import closed_object

YES_NO = ("yes", "no")

_TRUTH = {"true": "yes", "false": "no"}
_MAX_REASON_CHARS = 400


def choice_schema(fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the schema of a reply: a reason first, then each field with its answers."""
    choices = {name: {"type": "string", "enum": list(said)} for name, said in fields.items()}
    return closed_object({"reason": {"type": "string"}, **choices})


def read_choices(
    text: str, finish_reason: str, fields: Mapping[str, Sequence[str]]
) -> dict[str, str] | str:
    """Return each field's answer and ``reason``, or a sentence that says why they are not known."""
    found = objects_with(text, finish_reason, tuple(fields))
    if isinstance(found, str):
        return found
    read = [_read(holder, fields) for holder in found]
    good = [r for r in read if isinstance(r, dict)]
    if not good:
        return next(r for r in read if isinstance(r, str))
    answers = {tuple(r[name] for name in fields) for r in good}
    if len(answers) > 1 or len(good) < len(read):
        return "the reply answers in two different ways"
    return good[0]


def _read(holder: Obj, fields: Mapping[str, Sequence[str]]) -> dict[str, str] | str:
    answers: dict[str, str] = {}
    for name, allowed in fields.items():
        node = field_of(holder, (name,))
        if not isinstance(node, Scalar) or node.is_last:
            return f"the reply has no {name!r} that can be read"
        word = node.text.strip()
        known = {a.casefold(): a for a in allowed}
        answer = known.get(word.casefold()) or known.get(_TRUTH.get(word.casefold(), ""))
        if answer is None:
            return f"got {name}={word[:60]!r}, wanted one of {', '.join(allowed)}"
        answers[name] = answer
    reason = field_of(holder, ("reason", "why"))
    text = reason.text if isinstance(reason, Scalar) else ""
    return {**answers, "reason": " ".join(text.split())[:_MAX_REASON_CHARS]}
