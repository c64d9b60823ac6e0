"""RLER: an adaptive pool of criteria beside the initial ones (DR Tulu; RARE appendix A.2).

At each visit the writer sees all rollouts of the query, before any is judged, and adds criteria
that tell them apart: weight +1, or -1 for what a good response does not do. The group is judged
under initial, active and new criteria together, so new ones count at once. Afterwards the adaptive
criteria whose value is the same on all graded rollouts leave the pool, and of the rest those with
the largest deviation stay for the next visit. Initial criteria are always scored and never leave.
A criterion that left is remembered by the rubric's history, and is not taken up again.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from core.config_evolution import RlerConfig
from core.errors import WriterReplyError
from core.evolution.quotes import quotes_in
from core.evolution.rler_reply import PoolItem, RefusedItem, read_pool_reply
from core.evolution.similarity import content_words, normal_text
from core.grading.visible import visible_response
from core.records import (
    Completion,
    Evidence,
    Evolution,
    GradedGroup,
    GradedRollout,
    Rollout,
    RubricEdit,
    UngradedGroup,
)
from core.rubric import Criterion, Rubric, presence_levels
from core.writer_requests import PoolRequest

METHOD = "rler"

MIN_GRADED = 2
"""Fewer graded rollouts have no deviation."""

_MIRROR_OVERLAP = 0.85
_NEGATIONS = frozenset(
    ["no", "not", "never", "without", "avoid", "neither", "nor", "none", "cannot", "lack", "fail"]
)


def adaptive_criteria(rubric: Rubric, initial: Rubric) -> tuple[Criterion, ...]:
    """Return the criteria of the pool: those that the query did not begin with."""
    return tuple(c for c in rubric.criteria if c.id not in initial.ids)


def pool_request(group: UngradedGroup, rler: RlerConfig) -> PoolRequest:
    """Return what the writer is asked about a group that no judge has seen."""
    initial = group.query.rubric
    return PoolRequest(
        query_id=group.query.id,
        prompt=group.query.prompt_text,
        responses=tuple(visible_response(r.response) for r in group.rollouts),
        initial=initial.criteria,
        active=adaptive_criteria(group.rubric, initial),
        max_new=rler.max_new,
        is_negative_asked=rler.negative,
        max_points=rler.max_points,
    )


# ------------------------------------------------------------------ growing
def grown_rubric(
    group: UngradedGroup, reply: Completion, rler: RlerConfig, earlier: Sequence[Criterion]
) -> Evolution:
    """Return the rubric with the reply's new criteria appended, one edit for each item.

    ``earlier`` is every criterion that the query's rubric ever had: none is taken up again.
    Raises WriterReplyError when the reply is no answer at all.
    """
    if reply.failure is not None:
        raise WriterReplyError(f"the writer gave no reply: {reply.failure}")
    read = read_pool_reply(reply.text, reply.finish_reason, [r.response for r in group.rollouts])
    if read.problem:
        raise WriterReplyError(read.problem)
    refused = list(read.refused)
    taken: list[tuple[PoolItem, Criterion]] = []
    ids = fresh_ids("pool", group, (c.id for c in earlier))
    for item in read.items:
        known = (*group.rubric.criteria, *earlier, *(c for _, c in taken))
        reason = _refusal(item, known, num_taken=len(taken), rler=rler)
        if reason:
            refused.append(RefusedItem(item.text, reason))
        else:
            taken.append((item, _criterion(next(ids), item, rler)))
    edits = [_added(c, item.title, group.rollouts) for item, c in taken]
    edits += [_refused(item) for item in refused]
    if not taken:
        reason = "no new criterion is left" if refused else "the writer has no new criterion"
        return Evolution(rubric=group.rubric, edits=(*edits, _noop(reason)))
    rubric = group.rubric.with_criteria((*group.rubric.criteria, *(c for _, c in taken)))
    return Evolution(rubric=rubric, edits=tuple(edits))


def fresh_ids(prefix: str, group: UngradedGroup, taken_ids: Iterable[str]) -> Iterator[str]:
    """Yield ids of this visit that no criterion of the query, gold or rewarded, has or had."""
    gold = (c.id for c in group.query.gold)
    taken = {*group.query.rubric.ids, *group.rubric.ids, *gold, *taken_ids}
    number = 0
    while True:
        number += 1
        candidate = f"{prefix}_{group.draw.visit}_{number}"
        if candidate not in taken:
            yield candidate


def _refusal(
    item: PoolItem, known: Collection[Criterion], *, num_taken: int, rler: RlerConfig
) -> str:
    """Return why an item is not added; empty when it is."""
    if item.is_negative and not rler.negative:
        return "criteria of weight -1 are not asked for"
    same = next((c for c in known if normal_text(c.text) == normal_text(item.text)), None)
    if same is not None:
        return f"the same as {same.id!r}"
    others = [c for c in known if (c.weight < 0) != item.is_negative]
    mirrored = next((c for c in others if is_mirror(item.text, c.text)), None)
    if mirrored is not None:
        return f"the reverse of {mirrored.id!r}"
    if num_taken >= rler.max_new:
        return f"more than {rler.max_new} new criteria in one reply"
    return ""


def is_mirror(first: str, second: str) -> bool:
    """Return whether two texts say the same thing, negations aside."""
    a, b = content_words(first) - _NEGATIONS, content_words(second) - _NEGATIONS
    return bool(a and b) and len(a & b) / len(a | b) >= _MIRROR_OVERLAP


def _criterion(criterion_id: str, item: PoolItem, rler: RlerConfig) -> Criterion:
    return Criterion(
        id=criterion_id,
        text=item.text,
        max=rler.max_points,
        weight=-1.0 if item.is_negative else 1.0,
        levels=presence_levels(rler.max_points) if item.is_negative else None,
    )


# ------------------------------------------------------------------ pruning
def pruned_rubric(group: GradedGroup, rler: RlerConfig) -> Evolution:
    """Return the rubric for the next visit: of the pool only what tells these rollouts apart.

    Population deviation over the graded rollouts (RARE appendix A.2); of equal ones the newer
    stays. Where fewer than two rollouts are graded, see ``_unmeasured``.
    """
    pool = adaptive_criteria(group.rubric, group.query.rubric)
    graded = [r for r in group.rollouts if r.is_graded]
    if len(graded) < MIN_GRADED:
        reasons = _unmeasured(pool, group, rler)
    else:
        reasons = _least_telling(pool, graded, rler)
    if not reasons:
        return Evolution(rubric=group.rubric)
    edits = tuple(
        RubricEdit(method=METHOD, branch="pool", status="accepted", reason=reasons[c.id], old=c)
        for c in pool
        if c.id in reasons
    )
    kept = (c for c in group.rubric.criteria if c.id not in reasons)
    return Evolution(rubric=group.rubric.with_criteria(kept), edits=edits)


def _least_telling(
    pool: Sequence[Criterion], graded: Sequence[GradedRollout], rler: RlerConfig
) -> dict[str, str]:
    """Return why a criterion leaves: no deviation, or not one of the largest."""
    deviations = {
        c.id: deviation([_value(c, r.verdicts[c.id].score) for r in graded]) for c in pool
    }
    flat = {i for i, d in deviations.items() if d == 0}
    places = {c.id: place for place, c in enumerate(pool)}
    ranked = sorted(set(places) - flat, key=lambda i: (-round(deviations[i], 12), -places[i]))
    reasons = dict.fromkeys(flat, f"the same value on all {len(graded)} graded rollouts")
    for i in ranked[rler.max_active :]:
        reasons[i] = f"deviation {deviations[i]:.3g} is not among the {rler.max_active} largest"
    return reasons


def _unmeasured(pool: Sequence[Criterion], group: GradedGroup, rler: RlerConfig) -> dict[str, str]:
    """Return why a criterion leaves a pool whose deviations are not known.

    One that the judge cannot score although it scores others would leave every later group of the
    query ungraded (the released code counts its failures as equal zeros, so it leaves there too).
    Of the rest the older ones stay, up to the limit: they told rollouts apart before.
    """
    num_scores = {
        c.id: sum(r.verdicts[c.id].score is not None for r in group.rollouts)
        for c in group.rubric.criteria
    }
    is_judge_there = max(num_scores.values()) >= MIN_GRADED
    reasons: dict[str, str] = {}
    for c in pool:
        if is_judge_there and num_scores[c.id] < MIN_GRADED:
            reasons[c.id] = f"a score on only {num_scores[c.id]} of {len(group.rollouts)} rollouts"
    rest = [c.id for c in pool if c.id not in reasons]
    for i in rest[rler.max_active :]:
        reasons[i] = f"more than {rler.max_active}, and no deviation is known"
    return reasons


def _value(criterion: Criterion, score: float | None) -> float:
    """A response's value on one criterion, -1..1 (DR Tulu's released code)."""
    assert score is not None, criterion
    product = score / criterion.max * criterion.weight
    return product / max(criterion.weight, 1.0) if criterion.weight > 0 else product


def deviation(values: Sequence[float]) -> float:
    """Return the population deviation; exactly 0 for equal values."""
    if max(values) == min(values):
        return 0.0
    mean = sum(values) / len(values)
    return (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5


# ------------------------------------------------------------------ edits
def _added(criterion: Criterion, title: str, rollouts: Sequence[Rollout]) -> RubricEdit:
    """The accepted edit; what its text quotes is evidence where it stands in a rollout."""
    quotes = {
        r.index: quotes_in(f"{title}\n{criterion.text}", visible_response(r.response))
        for r in rollouts
    }
    quoting = tuple(index for index, found in quotes.items() if found)
    return RubricEdit(
        method=METHOD,
        branch="pool",
        status="accepted",
        new=criterion,
        evidence=Evidence(
            rollouts=quoting or tuple(r.index for r in rollouts),
            quotes=tuple(dict.fromkeys(q for found in quotes.values() for q in found)),
            analysis=title,
        ),
    )


def _refused(item: RefusedItem) -> RubricEdit:
    shown = f"{item.text[:80]!r}: " if item.text else ""
    return RubricEdit(
        method=METHOD, branch="pool", status="refused", reason=f"{shown}{item.reason}"
    )


def _noop(reason: str) -> RubricEdit:
    return RubricEdit(method=METHOD, branch="pool", status="noop", reason=reason)
