"""Collects from one container of a reply what it says about which criterion.

A claim names a criterion by text or id, by an item's number, or by its place in a bare list.
Known wrappers (``scores``, ``evaluation``, ...) are opened; totals, weights, examples, quoted
answers and unknown keys are left alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.grading.json_nodes import Arr, Node, Obj, Pair, Scalar
from core.grading.json_strict import read_strict
from core.grading.names import Matcher, item_number
from core.grading.values import has_score_key, holds_score

_MAX_WRAPPERS = 6

_WRAPPER = re.compile(
    r"score|eval|grad(?:e|ing)|result|verdict|rating|rubric|criteri|judg|assess|check|final|output"
    r"|item|data$|json$|mark"
)
_NO_WRAPPER = re.compile(
    r"example|sample|quot|candidate|draft|previous|prior|before|old|weight|max|min|top|scale"
    r"|format|template|schema|total|sum|mean|average|overall|reason|note|comment|expla|respons"
    r"|answer|confidence|reference|expected"
)
_TEXT_FIELDS = (
    "criterion",
    "rubric",
    "criteria",
    "text",
    "name",
    "criterion_text",
    "rubric_text",
    "description",
    "question",
    "requirement",
    "check",
    "title",
    "item",
    "key",
    "label",
)
_NUMBER_FIELDS = (
    "id",
    "index",
    "number",
    "no",
    "num",
    "idx",
    "nr",
    "rubric_id",
    "criterion_id",
    "item_id",
    "rubric_index",
    "criterion_index",
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a reply says (``value``) about the criteria it names in one of three ways."""

    value: Node | None
    indices: frozenset[int] = frozenset()
    """Named by text or id."""
    rung: int = 0
    """How loosely the name matched; see ``Matcher``."""
    number: int | None = None
    """Named by an item's number, whose base is not known yet."""


class ClaimCollector:
    """Walks one container; ``claims`` is what it found."""

    def __init__(self, matcher: Matcher, num_criteria: int) -> None:
        self.claims: list[Claim] = []
        self.is_doubtful = False
        """A score of nobody stands beside the scores of criteria: an unescaped quote of the graded
        text does that, and then no score can be told from a forged one."""
        self._matcher = matcher
        self._num_criteria = num_criteria

    def walk(self, node: Node, *, may_be_bare: bool, depth: int = 0) -> None:
        """Collect the claims of ``node``; ``may_be_bare``: a list of plain values is a verdict."""
        if depth > _MAX_WRAPPERS:
            return
        if isinstance(node, Obj):
            self._walk_object(node, may_be_bare=may_be_bare, depth=depth)
        elif isinstance(node, Arr):
            self._walk_array(node, may_be_bare=may_be_bare, depth=depth)
        elif node.is_string and (inner := read_strict(node.text.strip())) is not None:
            self.walk(inner, may_be_bare=may_be_bare, depth=depth + 1)

    def _walk_object(self, node: Obj, *, may_be_bare: bool, depth: int) -> None:
        matches = [self._matcher.match(p.key, p.raw_key) for p in node.pairs]
        if not any(m is not None for m in matches) and self._claim_item(node):
            return
        if self._claim_parallel_lists(node):
            return
        for pair, match in zip(node.pairs, matches, strict=True):
            if match is not None:
                self.claims.append(Claim(pair.value, match.indices, match.rung))
            elif (number := item_number(pair.key)) is not None:
                self.claims.append(Claim(pair.value, number=number))
            elif any(m is not None for m in matches) and _is_strange(pair):
                self.is_doubtful = True
            elif pair.value is not None and _is_wrapper(pair):
                self.walk(pair.value, may_be_bare=may_be_bare, depth=depth + 1)

    def _claim_item(self, node: Obj) -> bool:
        """Read ``{"criterion": ..., "score": ...}``; false if ``node`` is not such an object."""
        fields = {p.key.strip().casefold(): p.value for p in reversed(node.pairs)}
        texts = [fields[f] for f in _TEXT_FIELDS if f in fields]
        numbers = [fields[f] for f in _NUMBER_FIELDS if f in fields]
        if not (texts or numbers) or not (has_score_key(node) or not node.is_closed):
            return False
        named = [t.text for t in [*texts, *numbers] if isinstance(t, Scalar)]
        matches = [m for m in map(self._matcher.match, named) if m is not None]
        if matches:
            common = matches[0].indices
            for other in matches[1:]:
                common = common & other.indices
            self.claims.append(Claim(node, common, max(m.rung for m in matches)))
            return True
        is_number = [item_number(text) for text in named]
        if named and all(n is not None for n in is_number) and len(set(is_number)) == 1:
            self.claims.append(Claim(node, number=is_number[0]))
        return True

    def _claim_parallel_lists(self, node: Obj) -> bool:
        """Read ``{"criteria": [texts], "scores": [values]}``; the texts name the values."""
        arrays = [p.value for p in node.pairs if isinstance(p.value, Arr) and _is_wrapper(p)]
        named = [a for a in arrays if self._names_in(a)]
        if not named:
            return False
        values = [a for a in arrays if a not in named and _is_plain_list(a)]
        names = named[0].items
        if len(named) == 1 and len(values) == 1 and len(values[0].items) == len(names):
            for name, value in zip(names, values[0].items, strict=True):
                match = self._matcher.match(name.text) if isinstance(name, Scalar) else None
                if match is not None:
                    self.claims.append(Claim(value, match.indices, match.rung))
        return True

    def _names_in(self, node: Arr) -> bool:
        return any(
            isinstance(i, Scalar) and i.is_string and self._matcher.match(i.text) is not None
            for i in node.items
        )

    def _walk_array(self, node: Arr, *, may_be_bare: bool, depth: int) -> None:
        if not node.items:
            return
        if all(isinstance(i, Arr) and self._is_named_pair(i) for i in node.items):
            for item in node.items:
                assert isinstance(item, Arr)
                self._claim_named_pair(item)
            return
        is_nameless = all(isinstance(i, Obj) and self._is_nameless(i) for i in node.items)
        if is_nameless or _is_plain_list(node):
            if may_be_bare and node.is_closed and len(node.items) == self._num_criteria:
                self._claim_places(node.items)
            return
        for item in node.items:
            if isinstance(item, Obj):
                self._walk_object(item, may_be_bare=False, depth=depth + 1)

    def _claim_places(self, items: Sequence[Node]) -> None:
        for place, item in enumerate(items):
            self.claims.append(Claim(item, frozenset({place})))

    def _is_nameless(self, node: Obj) -> bool:
        keys = [p.key.strip().casefold() for p in node.pairs]
        has_name = any(k in _TEXT_FIELDS or k in _NUMBER_FIELDS for k in keys)
        matches = any(self._matcher.match(p.key, p.raw_key) is not None for p in node.pairs)
        return has_score_key(node) and not has_name and not matches

    def _is_named_pair(self, node: Arr) -> bool:
        first = node.items[0] if len(node.items) == 2 else None
        return isinstance(first, Scalar) and self._matcher.match(first.text) is not None

    def _claim_named_pair(self, node: Arr) -> None:
        first = node.items[0]
        assert isinstance(first, Scalar)
        match = self._matcher.match(first.text)
        if match is not None:
            self.claims.append(Claim(node.items[1], match.indices, match.rung))


def _is_strange(pair: Pair) -> bool:
    """Whether a pair beside criteria is neither one of them nor a known remark: a score of nobody,
    or a container under a name that means nothing."""
    if holds_score(pair.value):
        return True
    key = pair.key.strip().casefold()
    is_known = _WRAPPER.search(key) is not None or _NO_WRAPPER.search(key) is not None
    return isinstance(pair.value, Obj) and bool(pair.value.pairs) and not is_known


def _is_wrapper(pair: Pair) -> bool:
    key = pair.key.strip().casefold()
    if not key:
        return isinstance(pair.value, Obj)
    return _WRAPPER.search(key) is not None and _NO_WRAPPER.search(key) is None


def _is_plain_list(node: Arr) -> bool:
    return all(isinstance(i, Scalar) for i in node.items)
