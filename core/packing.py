"""A micro-batch as tensors: its sequences one after another in one row, without padding.

Positions restart at 0 in every sequence. Masks come from lengths, never from token ids, so an EOS
that equals the padding token trains. Only the states that predict response tokens are kept for the
head. An empty micro-batch becomes one masked token, so that its rank still runs a forward and a
backward pass beside the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # the row alone needs torch and nothing else
    from core.records import TrainingSample


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow:
    """One micro-batch. S tokens in all, T of them response tokens."""

    input_ids: Tensor
    """[S]"""
    position_ids: Tensor
    """[S], from 0 in each sequence."""
    slots: Tensor
    """[S], place of each token in the flattened [num_sequences, longest] grid of sequences."""
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
        return PackedRow(
            input_ids=self.input_ids.to(device),
            position_ids=self.position_ids.to(device),
            slots=self.slots.to(device),
            shape=self.shape,
            predicts=self.predicts.to(device),
            targets=self.targets.to(device),
            rollout_logprobs=self.rollout_logprobs.to(device),
            advantages=self.advantages.to(device),
            loss_mask=self.loss_mask.to(device),
        )


def pack_row(samples: "Sequence[TrainingSample]") -> PackedRow:
    """Lay the samples out in one row."""
    if not samples:
        return _empty_row()
    assert all(s.prompt_token_ids and s.token_ids for s in samples), "got an empty sequence"
    assert all(len(s.token_ids) == len(s.rollout_logprobs) for s in samples), "got unequal lengths"
    lengths = [len(s.prompt_token_ids) + len(s.token_ids) for s in samples]
    longest = max(lengths)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    predicts = chain.from_iterable(
        range(start + len(s.prompt_token_ids) - 1, start + length - 1)
        for s, start, length in zip(samples, starts, lengths, strict=True)
    )
    targets = list(chain.from_iterable(s.token_ids for s in samples))
    return PackedRow(
        input_ids=_ints(chain.from_iterable((*s.prompt_token_ids, *s.token_ids) for s in samples)),
        position_ids=_ints(chain.from_iterable(range(length) for length in lengths)),
        slots=_ints(
            chain.from_iterable(range(i * longest, i * longest + n) for i, n in enumerate(lengths))
        ),
        shape=(len(samples), longest),
        predicts=_ints(predicts),
        targets=_ints(targets),
        rollout_logprobs=_floats(chain.from_iterable(s.rollout_logprobs for s in samples)),
        advantages=_floats(chain.from_iterable([s.advantage] * len(s.token_ids) for s in samples)),
        loss_mask=torch.ones(len(targets), dtype=torch.bool),
    )


def _empty_row() -> PackedRow:
    return PackedRow(
        input_ids=_ints([0]),
        position_ids=_ints([0]),
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
