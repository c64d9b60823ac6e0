"""From scored groups to the micro-batches of every rank: plain arithmetic on records.

``train_batch`` leaves out what must not train; ``mini_batches`` splits a batch by query, one
optimizer step each; ``early_passes`` finds what can be computed before the last groups have their
rewards; ``rank_micro_batches`` gives every rank the same number of micro-batches (some
may be empty), because ranks meet in collectives and one that has fewer would leave the others
waiting. All of it is deterministic, so each rank works out its own part from the whole batch.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, TypeVar

from core.records import ScoredGroup, ScoredRollout, TrainBatch, TrainingSample

MiniBatch = tuple[TrainingSample, ...]
MicroBatch = tuple[TrainingSample, ...]
T = TypeVar("T")

GRID_PLACES_PER_TOKEN = 4
"""Attention lays every sequence out whole, to the length of the longest: a row's grid has at most
so many times as many places as the token budget, since they take memory too."""
BUNDLES_PER_RANK = 4
"""Where several ranks share a mini-batch: small enough bundles that their loads come out even."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyPasses:
    """Groups whose forward and backward passes can be done before the step is complete."""

    batch: TrainBatch
    """Empty places for the groups that are late, and for those of later mini-batches."""
    num_tokens: int
    """Response tokens of the whole first mini-batch, late groups included: the token mean's
    denominator."""
    following: tuple[int, ...] = ()
    """Places of the late groups that may follow one by one, those with short responses first, since
    they are likely to be rewarded first. The last late group is left for the step itself."""


def train_batch(
    step: int,
    groups: Sequence[ScoredGroup],
    *,
    is_off_policy: bool,
    drop_flat_groups: bool,
    drop_truncated: bool = False,
) -> TrainBatch:
    """The step's batch: groups in draw order, without ungraded rollouts and masked groups.

    A group without spread stays (advantage 0: it counts in the KL term and in the token mean)
    unless ``drop_flat_groups``. A group that is left out stays as an empty place. With
    ``drop_truncated`` rollouts that the token limit cut are left out too.
    """
    ordered = sorted(groups, key=lambda group: group.draw.position)
    return TrainBatch(
        step=step,
        groups=tuple(_samples(group, drop_flat_groups, drop_truncated) for group in ordered),
        is_off_policy=is_off_policy,
    )


def early_passes(
    step: int,
    ready: Mapping[int, ScoredGroup],
    late: Mapping[int, ScoredGroup],
    *,
    is_off_policy: bool,
    num_mini_batches: int,
    drop_truncated: bool = False,
) -> EarlyPasses | None:
    """What can train while the rewards of ``late`` are still being made; None when nothing can.

    ``ready`` and ``late`` are by draw position and make up a whole step; a late group is scored as
    if its edit came to nothing. The gradient of a mini-batch is a sum over its samples,
    so its passes may be done in two parts, as long as the denominator is known at the first: every
    rollout of a late group must have a reward already. Only the first mini-batch is begun, since
    no optimizer step may be done before the whole step is there.
    """
    first = range((len(ready) + len(late)) // num_mini_batches)
    scored = {p: late.get(p) or ready[p] for p in first}
    if any(r.reward is None for p in first if p in late for r in late[p].rollouts):
        return None
    samples = {p: _samples(group, False, drop_truncated) for p, group in scored.items()}
    early = {p for p in first if p in ready and samples[p]}
    if not early or not any(samples[p] for p in first if p in late):
        return None
    places = range(len(ready) + len(late))
    groups = tuple(samples[p] if p in early else () for p in places)
    waiting = sorted(
        (p for p in first if p in late and samples[p]),
        key=lambda p: (max(len(sample.token_ids) for sample in samples[p]), p),
    )
    return EarlyPasses(
        batch=TrainBatch(step=step, groups=groups, is_off_policy=is_off_policy),
        num_tokens=sum(num_response_tokens(part) for part in samples.values()),
        following=tuple(waiting[:-1]),
    )


def following_pass(
    early: EarlyPasses, place: int, group: ScoredGroup, *, drop_truncated: bool = False
) -> EarlyPasses:
    """The passes of one late group, rewarded by now, of a step that ``early`` began."""
    samples = _samples(group, False, drop_truncated)
    groups = tuple(samples if p == place else () for p in range(len(early.batch.groups)))
    return replace(early, batch=replace(early.batch, groups=groups), following=())


def mini_batches(batch: TrainBatch, num: int) -> tuple[MiniBatch, ...]:
    """Split by query, in order, into ``num`` parts whose numbers of groups differ by at most 1."""
    total = len(batch.groups)
    bounds = [total * i // num for i in range(num + 1)]
    return tuple(
        tuple(sample for group in batch.groups[start:end] for sample in group)
        for start, end in pairwise(bounds)
    )


def without_groups(batch: TrainBatch, places: Set[int]) -> TrainBatch:
    """The same batch with empty places instead of these groups."""
    groups = tuple(() if i in places else group for i, group in enumerate(batch.groups))
    return replace(batch, groups=groups)


def rank_micro_batches(
    samples: MiniBatch, *, world_size: int, token_budget: int
) -> tuple[tuple[MicroBatch, ...], ...]:
    """``[rank][micro-batch]``: every rank has the same number; an empty one is ``()``.

    A row holds a prompt once, so samples with the same prompt stay together in bundles: as large as
    a row on one rank, on several small enough that their loads come out even (with many ranks and
    few groups a prompt is then computed on more than one). Bundles go, longest first, to the rank
    with the fewest tokens; each rank packs its own by first fit decreasing.
    """
    limit = token_budget
    if world_size > 1:
        limit = min(limit, num_row_tokens(samples) // (BUNDLES_PER_RANK * world_size))
    shares: list[list[_Item[MicroBatch]]] = [[] for _ in range(world_size)]
    loads = [0] * world_size
    items = [_bundle_item(bundle) for bundle in bundles(samples, limit)]
    for item in sorted(items, key=lambda item: item.tokens, reverse=True):
        rank = loads.index(min(loads))
        shares[rank].append(item)
        loads[rank] += item.tokens
    packed = [_packed(share, token_budget) for share in shares]
    most = max(len(part) for part in packed)
    return tuple(part + ((),) * (most - len(part)) for part in packed)


def bundles(samples: Sequence[TrainingSample], limit: int) -> list[MicroBatch]:
    """Samples of one prompt together, in bundles of at most ``limit`` tokens of a row.

    A longer sample is a bundle alone.
    """
    by_prompt: dict[tuple[int, ...], list[TrainingSample]] = {}
    for sample in samples:
        by_prompt.setdefault(tuple(sample.prompt_token_ids), []).append(sample)
    return [
        tuple(bundle)
        for prompt, same in by_prompt.items()
        for bundle in _first_fit(
            [_Item(s, len(s.token_ids), 1, num_tokens(s)) for s in same],
            limit - len(prompt),
            GRID_PLACES_PER_TOKEN * limit,
        )
    ]


def num_row_tokens(samples: Sequence[TrainingSample]) -> int:
    """Tokens of a packed row of these samples: every prompt once, and the responses."""
    prompts = {tuple(sample.prompt_token_ids) for sample in samples}
    return sum(map(len, prompts)) + num_response_tokens(samples)


def num_tokens(sample: TrainingSample) -> int:
    """Tokens of prompt plus response."""
    return len(sample.prompt_token_ids) + len(sample.token_ids)


def num_response_tokens(samples: Sequence[TrainingSample]) -> int:
    """Tokens that train: the denominator of the token mean."""
    return sum(len(sample.token_ids) for sample in samples)


def _samples(
    group: ScoredGroup, drop_flat_groups: bool, drop_truncated: bool
) -> tuple[TrainingSample, ...]:
    kept = [r for r in group.rollouts if r.reward is not None and r.graded.rollout.token_ids]
    is_flat = all(r.advantage == 0.0 for r in kept)
    if group.is_masked or (drop_flat_groups and is_flat):
        return ()
    return tuple(_sample(r) for r in kept if not (drop_truncated and r.graded.rollout.is_cut))


def _sample(scored: ScoredRollout) -> TrainingSample:
    rollout = scored.graded.rollout
    return TrainingSample(
        query_id=rollout.query_id,
        index=rollout.index,
        prompt_token_ids=rollout.prompt_token_ids,
        token_ids=rollout.token_ids,
        rollout_logprobs=rollout.rollout_logprobs,
        advantage=scored.advantage,
    )


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    """Something to pack."""

    value: T
    tokens: int
    """That it adds to a row."""
    num_sequences: int
    longest: int
    """Tokens of its longest sequence, prompt included."""


def _bundle_item(bundle: MicroBatch) -> _Item[MicroBatch]:
    return _Item(bundle, num_row_tokens(bundle), len(bundle), max(map(num_tokens, bundle)))


def _packed(share: Sequence[_Item[MicroBatch]], token_budget: int) -> tuple[MicroBatch, ...]:
    rows = _first_fit(share, token_budget, GRID_PLACES_PER_TOKEN * token_budget)
    return tuple(tuple(sample for bundle in row for sample in bundle) for row in rows)


def _first_fit(items: Sequence[_Item[T]], limit: int, most_places: int) -> list[list[T]]:
    """First fit decreasing under ``limit`` tokens and a grid of ``most_places``; an item over them
    is alone. Ties stay in their order."""
    bins: list[list[_Item[T]]] = []

    def fits(packed: Sequence[_Item[T]]) -> bool:
        places = sum(i.num_sequences for i in packed) * max(i.longest for i in packed)
        return sum(i.tokens for i in packed) <= limit and places <= most_places

    for item in sorted(items, key=lambda item: item.tokens, reverse=True):
        place = next((i for i, packed in enumerate(bins) if fits([*packed, item])), None)
        if place is None:
            bins.append([item])
        else:
            bins[place].append(item)
    return [[item.value for item in packed] for packed in bins]
