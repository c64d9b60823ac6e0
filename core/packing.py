"""A micro-batch as tensors: its sequences one after another in one row, without padding.

A prompt that several sequences begin with stands in the row once: a group's rollouts share all that
is computed token by token for it, and attention lays it out again for each (``sources``).
Positions restart at 0 in every sequence. Masks come from lengths, never from token ids, so an EOS
that equals the padding token trains. Only the states that predict response tokens are kept for the
head. An empty micro-batch becomes one masked token, so that its rank still runs a forward and a
backward pass beside the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:  # the row alone needs torch and nothing else
    from core.records import TrainingSample


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow:
    """One micro-batch. S tokens in all (a shared prompt's counted once), T of them trained."""

    input_ids: Tensor
    """[S]"""
    position_ids: Tensor
    """[S], from 0 in each sequence."""
    sources: Tensor
    """[num_sequences * longest], the place in the row of each token of the flattened grid of whole
    sequences; a sequence is padded on the right with its own last token."""
    slots: Tensor
    """[S], a place of each token in that grid: of a shared prompt's, in its first sequence."""
    shape: tuple[int, int]
    """(num_sequences, longest)"""
    predicts: Tensor
    """[T], places in the row whose state predicts the response tokens, in sample order."""
    targets: Tensor
    """[T], the response tokens."""
    rollout_logprobs: Tensor
    """[T]"""
    advantages: Tensor
    """[T]"""
    loss_mask: Tensor
    """[T], False only in the row that stands for an empty micro-batch."""

    def to(self, device: torch.device) -> "PackedRow":
        """Return the same row on ``device``."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        moved = {k: v.to(device) for k, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **moved)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one sample's tokens stand in the row."""

    prompt: range
    response: range

    @property
    def tokens(self) -> list[int]:
        """Of the whole sequence, in order."""
        return [*self.prompt, *self.response]


def pack_row(samples: "Sequence[TrainingSample]") -> PackedRow:
    """Lay the samples out in one row."""
    if not samples:
        return _empty_row()
    assert all(s.prompt_token_ids and s.token_ids for s in samples), "got an empty sequence"
    assert all(len(s.token_ids) == len(s.rollout_logprobs) for s in samples), "got unequal lengths"
    places, input_ids, position_ids = _laid_out(samples)
    sequences = [place.tokens for place in places]
    longest = max(map(len, sequences))
    slot_of: dict[int, int] = {}
    for row, tokens in enumerate(sequences):
        for column, token in enumerate(tokens):
            slot_of.setdefault(token, row * longest + column)
    predicts = (t for p in places for t in (p.prompt[-1], *p.response[:-1]))
    targets = list(chain.from_iterable(s.token_ids for s in samples))
    return PackedRow(
        input_ids=_ints(input_ids),
        position_ids=_ints(position_ids),
        sources=_ints(
            t for tokens in sequences for t in tokens + tokens[-1:] * (longest - len(tokens))
        ),
        slots=_ints(slot_of[token] for token in range(len(input_ids))),
        shape=(len(samples), longest),
        predicts=_ints(predicts),
        targets=_ints(targets),
        rollout_logprobs=_floats(chain.from_iterable(s.rollout_logprobs for s in samples)),
        advantages=_floats(chain.from_iterable([s.advantage] * len(s.token_ids) for s in samples)),
        loss_mask=torch.ones(len(targets), dtype=torch.bool),
    )


def _laid_out(samples: "Sequence[TrainingSample]") -> tuple[list[_Place], list[int], list[int]]:
    """Return each sample's place, and the row's token ids and positions."""
    places: list[_Place] = []
    input_ids: list[int] = []
    position_ids: list[int] = []
    prompts: dict[tuple[int, ...], range] = {}

    def add(tokens: Sequence[int], first_position: int) -> range:
        start = len(input_ids)
        input_ids.extend(tokens)
        position_ids.extend(range(first_position, first_position + len(tokens)))
        return range(start, len(input_ids))

    for sample in samples:
        key = tuple(sample.prompt_token_ids)
        if key not in prompts:
            prompts[key] = add(key, 0)
        places.append(_Place(prompts[key], add(sample.token_ids, len(key))))
    return places, input_ids, position_ids


def _empty_row() -> PackedRow:
    return PackedRow(
        input_ids=_ints([0]),
        position_ids=_ints([0]),
        sources=_ints([0]),
        slots=_ints([0]),
        shape=(1, 1),
        predicts=_ints([0]),
        targets=_ints([0]),
        rollout_logprobs=_floats([0.0]),
        advantages=_floats([0.0]),
        loss_mask=torch.zeros(1, dtype=torch.bool),
    )


def _ints(values: Iterable[int]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.long)


def _floats(values: Iterable[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float32)
