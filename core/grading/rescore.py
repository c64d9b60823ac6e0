"""Reads the reply of RARE's joint rescoring: some criteria on all responses of a group.

Tolerant about the wrapping (fences, reasoning, small JSON slips), strict about what the numbers
belong to: criteria by short id, rollouts by ``R0 ..`` (a list in rollout order is not enough).
Whatever is missing, doubled with different values or outside its levels is a failure, never a
score. A response that a reason quotes without escapes can bring scores of its own into the reply,
whose marks are then of another form than asked: names nobody asked for, a cell twice, a list where
none belongs, pieces outside of all objects. Such a reply counts for nothing. Never raises.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.grading.json_nodes import Arr, Node, Obj, Scalar
from core.grading.json_strict import read_strict
from core.grading.json_tree import Found, containers_in, strict_inside
from core.grading.prompt import rollout_ids, short_ids
from core.grading.reply import MAX_REPLY_CHARS, is_cut_off, printable, reply_failure, told_of_loop
from core.grading.reply_parts import has_loose_pieces, markup_free
from core.grading.reply_text import without_reasoning
from core.grading.values import Reading, Scale, merged, read_value
from core.records import Verdict
from core.rubric import Criterion

_WRAPPERS = ("criteria", "updates", "results", "scores", "rescored", "evaluation", "evaluations")
_ID_KEYS = ("id", "criterion_id", "criterion")
_ROLLOUT_KEYS = ("rollout_id", "rollout", "response_id", "id")
_CUT_BEFORE = Reading(None, "truncated", "the reply was cut before it")


@dataclass(frozen=True, slots=True)
class _Cell:
    """What the reply says about one rollout under one criterion id."""

    criterion: str
    rollout: str
    value: Node | None
    is_plain: bool = True
    """It and the entry it stands in have no list or object that was not asked for."""


_DOUBTFUL = Reading(
    None, "conflict", "the reply is not of the asked form: its scores may be quoted from a response"
)


def read_rescore(
    text: str, criteria: Sequence[Criterion], num_responses: int, finish_reason: str
) -> tuple[tuple[Verdict, ...], ...]:
    """Return ``verdicts[g][c]``: response g on criterion c, each a score or a failure."""
    failure = reply_failure(text, finish_reason)
    is_cut = is_cut_off(finish_reason)
    cells, is_strict = ([], True) if failure is not None else _cells(text, is_cut=is_cut)
    names = _names(criteria)
    rollouts = rollout_ids(num_responses)
    is_asked_form = all(
        c.is_plain and c.criterion in names and c.rollout in rollouts
        for c in (cells[:-1] if is_cut and cells[-1:] != [_FOREIGN] else cells)
    )
    silent = failure or (
        told_of_loop([_CUT_BEFORE], text)[0]
        if is_cut
        else Reading(None, "missing", "the reply has no verdict on it")
        if cells
        else Reading(None, "unparsable", f"no verdict in {text.strip()[:120]!r}")
    )
    said: dict[tuple[int, str], list[Reading]] = {}
    for cell in cells:
        index = names.get(cell.criterion)
        if index is not None:
            scale = Scale(0, criteria[index].max, is_integer=True)
            reading = read_value(cell.value, scale, is_cut=is_cut)
            said.setdefault((index, cell.rollout), []).append(reading)
    resolved = {place: merged(readings) for place, readings in said.items()}
    is_complete = is_strict or is_cut or len(resolved) == len(criteria) * num_responses
    is_agreed = not any(r.failure == "conflict" for r in resolved.values())
    if not (is_asked_form and is_agreed and is_complete):
        resolved, silent = {}, _DOUBTFUL
    return tuple(
        tuple(_verdict(c, resolved.get((i, rollout), silent)) for i, c in enumerate(criteria))
        for rollout in rollouts
    )


def _verdict(criterion: Criterion, reading: Reading) -> Verdict:
    return Verdict(
        criterion_id=criterion.id,
        score=reading.score,
        max=criterion.max,
        reason=printable(reading.reason if reading.score is not None else reading.detail),
        failure=reading.failure,
    )


_STRANGE = _Cell("", "", None, is_plain=False)
"""Stands for an item that belongs to no criterion or response."""
_FOREIGN = _Cell("", "foreign", None, is_plain=False)
"""One that holds lists or objects of its own: no cut makes that."""


def _names(criteria: Sequence[Criterion]) -> dict[str, int]:
    """Return what each criterion may be called: its short id, and its own if that is no other's."""
    short = {name: i for i, name in enumerate(short_ids(len(criteria)))}
    own = {c.id: i for i, c in enumerate(criteria)}
    return short if set(own) & set(short) else {**own, **short}


def _cells(text: str, *, is_cut: bool) -> tuple[list[_Cell], bool]:
    """Return all cells of the one container that holds some; none if two containers do.

    Beside them whether that container is strict JSON: where it is not, a quote may have ended a
    string early, and a score may then stand under another response's name.
    """
    whole = read_strict(text.strip(" \t\r\n\ufeff"))
    if isinstance(whole, Obj | Arr):
        return _cells_of(whole), True
    body = without_reasoning(text[:MAX_REPLY_CHARS], ())
    if body is None:
        return [], True
    found = list(containers_in(body))
    holding = [
        (cells, f.is_strict)
        for f in found
        if not f.is_damaged and (cells := _cells_with_inner(body, f))
    ]
    is_preceded = bool(found) and bool(markup_free(body[: found[0].start]))
    if len(holding) != 1 or (is_cut and is_preceded):
        return [], True  # the judge's own scores may have been still to come
    cells, is_strict = holding[0]
    if has_loose_pieces(body, found):
        cells = [replace(c, is_plain=False) for c in cells]
    return cells, is_strict


def _cells_with_inner(body: str, found: Found) -> list[_Cell]:
    """Return a container's cells; of a broken one those that stand whole inside it too.

    A quote that was opened and never closed takes in the judge's own scores: two different scores
    of one cell then show it.
    """
    cells = _cells_of(found.node)
    if found.is_strict or not cells:
        return cells
    inside = strict_inside(body, found)
    if inside is None:
        return [_STRANGE, *cells]
    inner = [c for node in inside for c in _cells_of(node) if c not in (_STRANGE, _FOREIGN)]
    places = {(c.criterion, c.rollout) for c in cells}
    if any((c.criterion, c.rollout) not in places for c in inner):
        return [_STRANGE, *cells]
    return inner + cells


def _cells_of(node: Node) -> list[_Cell]:
    """Return the cells of one container; none when all it holds is strange."""
    cells = list(_walk(node))
    return cells if any(c not in (_STRANGE, _FOREIGN) for c in cells) else []


def _walk(node: Node, depth: int = 0) -> Iterator[_Cell]:
    if depth > 3:
        return
    if isinstance(node, Arr):
        for item in node.items:
            yield from _walk(item, depth + 1) if isinstance(item, Obj) else (_STRANGE,)
    elif isinstance(node, Obj):
        name, scores = _text(node, _ID_KEYS), _field(node, "scores")
        if name and scores is not None:
            others = [p.value for p in node.pairs if p.value is not scores]
            is_plain = not any(isinstance(v, Obj | Arr) for v in others)
            for cell in _criterion_cells(name, scores):
                yield cell if is_plain else replace(cell, is_plain=False)
            return
        for pair in node.pairs:
            if pair.key.casefold() in _WRAPPERS and pair.value is not None:
                yield from _walk(pair.value, depth + 1)
            elif isinstance(pair.value, Obj | Arr):
                yield _STRANGE


def _criterion_cells(name: str, scores: Node) -> Iterator[_Cell]:
    if isinstance(scores, Obj):
        for pair in scores.pairs:
            yield _Cell(name, _rollout(pair.key), pair.value, _holds_no_container(pair.value))
    elif isinstance(scores, Arr):
        for item in scores.items:
            rollout = _text(item, _ROLLOUT_KEYS) if isinstance(item, Obj) else ""
            if rollout:
                yield _Cell(name, _rollout(rollout), item, _holds_no_container(item))
            else:
                yield (
                    _STRANGE if isinstance(item, Scalar) or _holds_no_container(item) else _FOREIGN
                )


def _holds_no_container(value: Node | None) -> bool:
    if not isinstance(value, Obj):
        return True
    return not any(isinstance(p.value, Obj | Arr) for p in value.pairs)


def _rollout(name: str) -> str:
    return name.strip().upper()


def _field(node: Obj, key: str) -> Node | None:
    values = [p.value for p in node.pairs if p.key.casefold() == key]
    return values[0] if len(values) == 1 else None


def _text(node: Obj, keys: Sequence[str]) -> str:
    for key in keys:
        value = _field(node, key)
        if isinstance(value, Scalar):
            return value.text.strip()
    return ""
