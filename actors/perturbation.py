"""Noise on the policy's weights for the start-up self-check, and its exact removal.

Equal weights on both sides would hide a rollout worker that kept an old layer, so the check runs on
weights that no worker has ever had. Rank and ZeRO stage make no difference: every rank draws the
same noise for the whole parameter, and a sharded parameter is gathered for the change.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn


class Perturbation:
    """Keeps the true weights while noisy ones stand in their place."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def add(self, model: nn.Module, scale: float, seed: int) -> None:
        """Add normal noise of ``scale`` times each parameter's own root mean square."""
        assert not self._kept, "the weights are perturbed already"
        generator = torch.Generator().manual_seed(seed)
        for name, param in _parameters(model):
            with _whole(param):
                self._kept[name] = param.detach().clone()
                size = param.detach().float().square().mean().sqrt().item()
                noise = torch.randn(param.shape, generator=generator, dtype=torch.float32)
                param.data.add_(noise.to(param.device, param.dtype), alpha=scale * size)

    def remove(self, model: nn.Module) -> None:
        """Put the weights from before back, bit for bit."""
        for name, param in _parameters(model):
            with _whole(param):
                param.data.copy_(self._kept[name])
        self._kept = {}


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    yield from model.named_parameters()


def _whole(param: nn.Parameter) -> AbstractContextManager[object]:
    """The whole parameter inside the block, written back to its shards at the end (stage 3)."""
    if not hasattr(param, "ds_id"):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters([param], modifier_rank=0)
