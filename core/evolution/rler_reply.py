"""Reads RLER's reply: ``{"question", "positive_rubrics": [{"description", "title"}],
"negative_rubrics": [...]}`` (the format of DR Tulu's released code).

Tolerant about the wrapping and about items: each stands for itself, and one without a usable text
is left out with its reason. Empty lists are an answer; a reply in which neither list can be found,
or in which two objects say different things, is none. Never raises.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core.evolution.origin import stands_in, writes_key
from core.evolution.reply_object import field_of, items_of, objects_with, text_of
from core.evolution.similarity import normal_text
from core.grading.json_nodes import Node, Obj, Scalar

MAX_CHARS = 1000
"""Longest criterion text: one that crowds the response out of the judge's context grades
nothing."""

_POSITIVE = ("positive_rubrics", "positive_rubric", "positive_criteria", "positives", "positive")
_NEGATIVE = ("negative_rubrics", "negative_rubric", "negative_criteria", "negatives", "negative")
_NAMES = (*_POSITIVE, *_NEGATIVE)
_TEXT_NAMES = ("description", "criterion", "rubric", "text")
_TITLE_NAMES = ("title", "name")


@dataclass(frozen=True, slots=True)
class PoolItem:
    """One criterion that the writer wants to add."""

    text: str
    title: str
    is_negative: bool
    """What a good response does not do: weight -1."""


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item that is not used, with what was read of it."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class PoolReply:
    """What a reply gives; with a ``problem`` it gives nothing."""

    items: tuple[PoolItem, ...] = ()
    refused: tuple[RefusedItem, ...] = ()
    problem: str = ""
    """Why nothing could be read; empty when the reply was an answer."""


def read_pool_reply(text: str, finish_reason: str, responses: Sequence[str]) -> PoolReply:
    """Return the items of a reply to the request that showed these responses."""
    found = objects_with(text, finish_reason, _NAMES)
    if isinstance(found, str):
        return PoolReply(problem=found)
    forging = forging_responses(responses, _NAMES)
    replies = tuple(dict.fromkeys(_read(holder, forging) for holder in found))
    bearing = [r for r in replies if r.items] or list(replies[:1])
    if len(bearing) > 1:
        return PoolReply(problem=f"got {len(bearing)} objects with different lists, wanted one")
    return bearing[0]


def forging_responses(responses: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """Return the responses that write replies of their own: they are no source of criteria."""
    return tuple(r for r in responses if writes_key(r, names))


def text_problem(text: str, forging: Sequence[str]) -> str:
    """Return why a criterion's text cannot be used; empty when it can."""
    if not text:
        return "it has no text"
    if len(text) > MAX_CHARS:
        return f"got {len(text)} characters, wanted at most {MAX_CHARS}"
    if any(stands_in(text, response) for response in forging):
        return "it stands word for word in a response that imitates a reply"
    return ""


def _read(holder: Obj, forging: Sequence[str]) -> PoolReply:
    items: dict[str, PoolItem] = {}
    refused: list[RefusedItem] = []
    listed = [
        (node, is_negative)
        for names, is_negative in ((_POSITIVE, False), (_NEGATIVE, True))
        for node in items_of(holder, names)
    ]
    for node, is_negative in listed:
        item = _item(node, is_negative)
        reason = text_problem(item.text, forging)
        if not reason and normal_text(item.text) in items:
            reason = "the reply has it twice"
        if reason:
            refused.append(RefusedItem(item.text, reason))
        else:
            items[normal_text(item.text)] = item
    return PoolReply(tuple(items.values()), tuple(refused))


def _item(node: Node, is_negative: bool) -> PoolItem:
    text = text_of(node if isinstance(node, Scalar) else field_of(node, _TEXT_NAMES))
    return PoolItem(text, text_of(field_of(node, _TITLE_NAMES)), is_negative)
