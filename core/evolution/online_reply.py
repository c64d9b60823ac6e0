"""Reads the two replies of Online Rubrics.

A pair's: ``{"analysis", "new_criteria": [{"quote", "criterion", "weight"}]}``; the merge's:
``{"analysis", "final_criteria": [{"criterion", "weight"}]}``. Weights are whole numbers from 1 to a
limit. Each item stands for itself, and one that cannot be used is left out with its reason. A merge
may only merge: more items than candidates, or none at all, are no merge. Never raises.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.evolution.reply_object import field_of, items_of, objects_with, text_of
from core.evolution.rler_reply import RefusedItem, forging_responses, text_problem
from core.evolution.similarity import normal_text
from core.grading.json_nodes import Node, Obj, Scalar

_NEW = ("new_criteria", "new_criterion", "new_rubrics")
_FINAL = ("final_criteria", "final_criterion", "final_rubrics", "merged_criteria")
_TEXT_NAMES = ("criterion", "description", "text", "rubric")
_WEIGHT_NAMES = ("weight", "points", "importance")
_QUOTE_NAMES = ("quote", "evidence")
_WEIGHT = re.compile(r"\+?(\d{1,7})(?:\.0{0,7})?")
_MAX_QUOTE_CHARS = 2000


@dataclass(frozen=True, slots=True)
class OnlineItem:
    """One criterion of a reply."""

    text: str
    weight: float
    quote: str = ""
    """As given; whether it stands in a response is the reader's to find out."""


@dataclass(frozen=True, slots=True)
class OnlineReply:
    """What a reply gives; with a ``problem`` it gives nothing."""

    items: tuple[OnlineItem, ...] = ()
    refused: tuple[RefusedItem, ...] = ()
    problem: str = ""


def read_pair_reply(
    text: str, finish_reason: str, responses: Sequence[str], *, max_weight: float
) -> OnlineReply:
    """Return the criteria of one pair's reply."""
    forging = forging_responses(responses, (*_NEW, *_FINAL))
    return _read(text, finish_reason, _NEW, forging, max_weight)


def read_merge_reply(
    text: str, finish_reason: str, *, num_candidates: int, max_weight: float
) -> OnlineReply:
    """Return the merged criteria; that each is a merge of candidates cannot be proven."""
    reply = _read(text, finish_reason, _FINAL, (), max_weight)
    if reply.problem:
        return reply
    if len(reply.items) > num_candidates:
        return OnlineReply(
            problem=f"got {len(reply.items)} merged criteria from {num_candidates} candidates, "
            "wanted at most that many"
        )
    if not reply.items:
        return OnlineReply(
            problem=f"got no criterion that can be used from {num_candidates} candidates"
        )
    return reply


def _read(
    text: str,
    finish_reason: str,
    names: Sequence[str],
    forging: Sequence[str],
    max_weight: float,
) -> OnlineReply:
    found = objects_with(text, finish_reason, names)
    if isinstance(found, str):
        return OnlineReply(problem=found)
    replies = tuple(dict.fromkeys(_read_object(o, names, forging, max_weight) for o in found))
    bearing = [r for r in replies if r.items] or list(replies[:1])
    if len(bearing) > 1:
        return OnlineReply(problem=f"got {len(bearing)} objects with different lists, wanted one")
    return bearing[0]


def _read_object(
    holder: Obj, names: Sequence[str], forging: Sequence[str], max_weight: float
) -> OnlineReply:
    items: dict[str, OnlineItem] = {}
    refused: list[RefusedItem] = []
    for node in items_of(holder, names):
        text = text_of(node if isinstance(node, Scalar) else field_of(node, _TEXT_NAMES))
        weight = _weight(field_of(node, _WEIGHT_NAMES))
        reason = text_problem(text, forging)
        if not reason and (weight is None or not 1 <= weight <= max_weight):
            reason = f"wanted a weight that is a whole number from 1 to {max_weight:g}"
        if not reason and normal_text(text) in items:
            continue
        if reason or weight is None:
            refused.append(RefusedItem(text, reason))
        else:
            items[normal_text(text)] = OnlineItem(text, weight, _quote(node))
    return OnlineReply(tuple(items.values()), tuple(refused))


def _weight(node: Node | None) -> float | None:
    """Return a whole number, also one written as a string; None for anything else."""
    match = _WEIGHT.fullmatch(node.text.strip()) if isinstance(node, Scalar) else None
    return float(match.group(1)) if match else None


def _quote(node: Node) -> str:
    value = field_of(node, _QUOTE_NAMES)
    if not isinstance(value, Scalar) or not value.is_string:
        return ""
    return value.text.strip()[:_MAX_QUOTE_CHARS]
