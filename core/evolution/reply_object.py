"""Finds the JSON objects that a writer was asked for, by the names of their fields.

The whole reply is tried as strict JSON first; code fences, prose around it, reasoning before it and
small slips of JSON are understood. Only what stands outside the reasoning counts, a container that
makes no sense in part is left out, and of a cut reply only what is closed. Nothing raises: a reply
without such an object gives a sentence that says why.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from core.evolution.final_items import is_placeholder, one_line
from core.grading.json_nodes import Arr, Node, Obj, Scalar
from core.grading.json_strict import read_strict
from core.grading.json_tree import containers_in
from core.grading.reply import is_cut_off, reply_failure
from core.grading.reply_text import is_refusal, without_reasoning

_MAX_WRAPPERS = 3
_SEPARATORS = re.compile(r"[\s\-]+")
_NOTHING = ("", "null", "none")


def objects_with(text: str, finish_reason: str, names: Collection[str]) -> tuple[Obj, ...] | str:
    """Return each different object that has a field of one of these names, or why there is none."""
    failure = reply_failure(text, finish_reason)
    if failure is not None:
        return failure.detail
    whole = read_strict(text.strip(" \t\r\n\ufeff"))
    if isinstance(whole, Scalar) and whole.is_string:
        whole = read_strict(whole.text.strip())
    if isinstance(whole, Obj | Arr):
        found = list(_holders(whole, names))
    else:
        body = without_reasoning(text, ())
        if body is None:
            return "the reasoning never ends, so there is no reply"
        found = [
            o for f in containers_in(body) if not f.is_damaged for o in _holders(f.node, names)
        ]
    return tuple(dict.fromkeys(found)) or _why_nothing(text, finish_reason, names)


def _why_nothing(text: str, finish_reason: str, names: Collection[str]) -> str:
    if is_cut_off(finish_reason):
        return "the reply was cut at its token limit before an object that can be read"
    if is_refusal(text):
        return f"the writer declined: {one_line(text[:120])!r}"
    wanted = " or ".join(sorted(names))
    return f"got no JSON object that can be read, wanted one with {wanted}"


def _holders(node: Node, names: Collection[str], depth: int = 0) -> Iterator[Obj]:
    """Yield the outermost objects that have one of the fields, a few wrappers deep."""
    if depth > _MAX_WRAPPERS or isinstance(node, Scalar):
        return
    if isinstance(node, Arr):
        inner: Sequence[Node | None] = node.items
    elif any(_name(p.key) in names for p in node.pairs):
        yield node
        return
    else:
        inner = [p.value for p in node.pairs]
    for value in inner:
        if value is not None:
            yield from _holders(value, names, depth + 1)


def items_of(holder: Obj, names: Collection[str]) -> tuple[Node, ...]:
    """Return the complete items of the lists under these names; one item without a list counts."""
    items: list[Node] = []
    for pair in holder.pairs:
        if _name(pair.key) not in names or pair.value is None:
            continue
        items += pair.value.items if isinstance(pair.value, Arr) else (pair.value,)
    return tuple(item for item in items if not _is_open(item) and not _is_nothing(item))


def field_of(item: Node, names: Sequence[str]) -> Node | None:
    """Return the value of an object's first field that has one of these names, in their order."""
    if isinstance(item, Obj):
        for name in names:
            for pair in item.pairs:
                if _name(pair.key) == name and pair.value is not None:
                    return pair.value
    return None


def text_of(node: Node | None) -> str:
    """Return a string's content on one line; empty for anything else and for a placeholder."""
    if not isinstance(node, Scalar) or not node.is_string:
        return ""
    line = one_line(node.text)
    return "" if is_placeholder(line) else line


def _name(key: str) -> str:
    return _SEPARATORS.sub("_", key.strip().casefold())


def _is_open(item: Node) -> bool:
    return item.is_last if isinstance(item, Scalar) else not item.is_closed


def _is_nothing(item: Node) -> bool:
    if not isinstance(item, Scalar) or item.is_string:
        return False
    return item.text.strip().casefold() in _NOTHING
