"""Online Rubrics: criteria from pairs of a current and a control rollout, for one step only.

The current rollout of an index is paired with the control rollout of that index; which one is
shown first is decided by a hash, half of the pairs either way. Each pair gives candidates, one
merge unites those of all pairs, and the group is judged in the same step under the initial criteria
and the merged ones (Rezaei et al., 2025, as a released reimplementation has it). Nothing
accumulates: the next visit begins with the initial criteria again, and its version says which local
criteria went.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.errors import WriterReplyError
from core.evolution.online_reply import OnlineItem, OnlineReply, read_merge_reply, read_pair_reply
from core.evolution.rler import fresh_ids
from core.evolution.similarity import REWRITE_SIMILARITY, normal_text, similarity
from core.grading.visible import visible_response
from core.records import Completion, EditStatus, Evidence, Evolution, RubricEdit, UngradedGroup
from core.rubric import Criterion
from core.writer_requests import MergeRequest, PairRequest, WeightedText

METHOD = "online_rubrics"

MAX_WEIGHT = 100.0
"""Largest weight of a new criterion, or the largest of the existing ones if that is more: one new
criterion must not outweigh a rubric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A current rollout beside a control rollout."""

    index: int
    """Of both in their groups."""
    request: PairRequest
    response: str
    """The current rollout's visible part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A criterion that a pair asks for."""

    index: int
    """Of the pair."""
    text: str
    weight: float
    quote: str
    """Words of the current rollout; empty when what was quoted does not stand there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """What all pairs of a group gave."""

    items: tuple[Candidate, ...] = ()
    failures: tuple[str, ...] = ()
    """One sentence for each pair without a usable reply."""
    refused: tuple[str, ...] = ()
    """One sentence for each item that cannot be used."""

    @property
    def pairs(self) -> tuple[int, ...]:
        """The pairs that gave some."""
        return tuple(sorted({c.index for c in self.items}))


def rollout_pairs(group: UngradedGroup) -> tuple[Pair, ...]:
    """Return the pairs of a group, by index; a rollout without a partner is in none."""
    current = {r.index: visible_response(r.response) for r in group.rollouts}
    control = {r.index: visible_response(r.response) for r in group.control}
    paired = sorted(set(current) & set(control))
    first = _current_first(group, paired)
    pairs: list[Pair] = []
    for index in paired:
        ours, theirs = current[index], control[index]
        a, b = (ours, theirs) if index in first else (theirs, ours)
        request = PairRequest(
            query_id=group.query.id,
            prompt=group.query.prompt_text,
            existing=group.query.rubric.criteria,
            response_a=a,
            response_b=b,
        )
        pairs.append(Pair(index=index, request=request, response=ours))
    return tuple(pairs)


def _current_first(group: UngradedGroup, indices: Sequence[int]) -> frozenset[int]:
    """The half of the pairs that show the current rollout as A: the same again after a resume."""

    def rank(index: int) -> bytes:
        text = f"{group.query.id}\x00{group.draw.visit}\x00{index}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    return frozenset(sorted(indices, key=rank)[: len(indices) // 2])


# ------------------------------------------------------------------ candidates
def read_candidates(pairs: Sequence[Pair], replies: Sequence[Completion]) -> Candidates:
    """Return what the replies give, without what an initial criterion says already."""
    items: list[Candidate] = []
    failures: list[str] = []
    refused: list[str] = []
    for pair, reply in zip(pairs, replies, strict=True):
        existing = pair.request.existing
        if reply.failure is not None:
            failures.append(f"pair {pair.index}: the writer gave no reply: {reply.failure}")
            continue
        read = read_pair_reply(
            reply.text,
            reply.finish_reason,
            (pair.request.response_a, pair.request.response_b),
            max_weight=max_weight(existing),
        )
        if read.problem:
            failures.append(f"pair {pair.index}: {read.problem}")
        refused += [f"pair {pair.index}: {r.text[:80]!r}: {r.reason}" for r in read.refused]
        for item in read.items:
            same = _same(item.text, existing)
            if same:
                refused.append(f"pair {pair.index}: {item.text[:80]!r}: the same as {same!r}")
            else:
                items.append(_candidate(pair, item))
    return Candidates(items=tuple(items), failures=tuple(failures), refused=tuple(refused))


def max_weight(existing: Sequence[Criterion]) -> float:
    """Return the largest weight that a new criterion may have."""
    return max(MAX_WEIGHT, *(c.weight for c in existing))


def merge_request(group: UngradedGroup, candidates: Candidates) -> MergeRequest | None:
    """Return what the writer is asked; None when fewer than two pairs gave candidates."""
    if len(candidates.pairs) < 2:
        return None
    return MergeRequest(
        query_id=group.query.id,
        prompt=group.query.prompt_text,
        existing=group.query.rubric.criteria,
        candidates=tuple(WeightedText(text=c.text, weight=c.weight) for c in candidates.items),
    )


def read_merge(reply: Completion, request: MergeRequest) -> OnlineReply:
    """Return the merged criteria; raises WriterReplyError when the reply is no merge."""
    if reply.failure is not None:
        raise WriterReplyError(f"the writer did not merge: {reply.failure}")
    read = read_merge_reply(
        reply.text,
        reply.finish_reason,
        num_candidates=len(request.candidates),
        max_weight=max_weight(request.existing),
    )
    if read.problem:
        raise WriterReplyError(f"the writer did not merge: {read.problem}")
    return read


def unmerged(candidates: Candidates) -> OnlineReply:
    """Return the candidates as they are: those of the only pair that gave some, or none."""
    return OnlineReply(tuple(OnlineItem(c.text, c.weight) for c in candidates.items))


def _candidate(pair: Pair, item: OnlineItem) -> Candidate:
    quote = item.quote if item.quote and item.quote in pair.response else ""
    return Candidate(index=pair.index, text=item.text, weight=item.weight, quote=quote)


def _same(text: str, criteria: Sequence[Criterion]) -> str:
    wanted = normal_text(text)
    return next((c.id for c in criteria if normal_text(c.text) == wanted), "")


# ------------------------------------------------------------------ the rubric of this step
def local_rubric(
    group: UngradedGroup,
    merged: OnlineReply,
    candidates: Candidates,
    *,
    taken_ids: Iterable[str] = (),
) -> Evolution:
    """Return the initial criteria and the merged ones as the next version, with all edits.

    Unchanged when there is nothing new and the rubric in force is the initial set. ``taken_ids``
    are ids that a new criterion must not take.
    """
    initial = group.query.rubric.criteria
    ids = fresh_ids("local", group, taken_ids)
    edits: list[RubricEdit] = []
    new: dict[str, Criterion] = {}
    for item in merged.items:
        key = normal_text(item.text)
        if key in new or _same(item.text, initial):
            continue
        new[key] = Criterion(id=next(ids), text=item.text, weight=item.weight)
        edits.append(_added(new[key], candidates))
    gone = [c for c in group.rubric.criteria if c not in initial]
    edits += [_gone(c) for c in gone]
    refused = (*candidates.refused, *(f"{r.text[:80]!r}: {r.reason}" for r in merged.refused))
    edits += [_not_made("refused", reason) for reason in refused]
    edits += [_not_made("failed", reason) for reason in candidates.failures]
    if not new and not candidates.failures:
        edits.append(_not_made("noop", "no pair has a new criterion"))
    criteria = (*initial, *new.values())
    if criteria == group.rubric.criteria:
        return Evolution(rubric=group.rubric, edits=tuple(edits))
    return Evolution(rubric=group.rubric.with_criteria(criteria), edits=tuple(edits))


def _added(criterion: Criterion, candidates: Candidates) -> RubricEdit:
    evidence = _evidence(criterion.text, candidates)
    return RubricEdit(
        method=METHOD, branch="pool", status="accepted", new=criterion, evidence=evidence
    )


def _gone(criterion: Criterion) -> RubricEdit:
    return RubricEdit(
        method=METHOD, branch="pool", status="accepted", reason="its step is over", old=criterion
    )


def _not_made(status: EditStatus, reason: str) -> RubricEdit:
    return RubricEdit(method=METHOD, branch="pool", status=status, reason=reason)


def _evidence(text: str, candidates: Candidates) -> Evidence:
    """What the candidates that a merged criterion stands for rest on: the likest ones."""
    exact = [c for c in candidates.items if normal_text(c.text) == normal_text(text)]
    alike = [c for c in candidates.items if similarity(c.text, text) >= REWRITE_SIMILARITY]
    sources = exact or alike or list(candidates.items)
    return Evidence(
        rollouts=tuple(sorted({c.index for c in sources})),
        quotes=tuple(dict.fromkeys(c.quote for c in sources if c.quote)),
    )
