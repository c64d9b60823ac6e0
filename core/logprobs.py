"""Log-probs of chosen tokens without the whole [tokens, vocabulary] matrix.

The vocabulary rows of ``chunk`` positions exist at one time: each chunk but the last runs under
activation checkpointing, so the backward pass builds its rows again. It begins with the last one,
whose rows are kept. Logits are divided by the sampling
temperature, since rollout log-probs are of the distribution that was sampled from. Arithmetic
after the head is float32 whatever the autocast dtype.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

CPU_BLOCK_ELEMENTS = 2**19
"""Of one float32 matrix at a time: two of them stay in the cache of a few cores."""
GPU_BLOCK_ELEMENTS = 2**27


class TokenLogprobs(NamedTuple):
    """What the policy says about chosen tokens."""

    logprobs: Tensor
    """[T], natural log."""
    entropy: Tensor
    """[T], of the distribution at each position; without gradient."""


def chunked_logprobs(
    hidden: Tensor,
    targets: Tensor,
    head: Callable[[Tensor], Tensor],
    *,
    temperature: float,
    chunk: int,
) -> TokenLogprobs:
    """Log-probs of ``targets`` [T] given the states ``hidden`` [T, D] that predict them."""

    def rows(hidden_chunk: Tensor, target_chunk: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(hidden_chunk)
        function = cast(Any, RowLogprobs)  # torch leaves ``apply`` untyped
        return function.apply(logits, target_chunk, temperature)

    parts: list[tuple[Tensor, Tensor]] = []
    num_tokens = targets.shape[0]
    for start in range(0, num_tokens, chunk):
        part = (hidden[start : start + chunk], targets[start : start + chunk])
        is_recomputed = torch.is_grad_enabled() and start + chunk < num_tokens
        parts.append(_recomputed(rows, *part) if is_recomputed else rows(*part))
    return TokenLogprobs(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))


class RowLogprobs(Function):
    """``log p(target)`` [T] and entropy [T] of rows of logits [T, V]; gradient of the first only.

    Written out because a row is wide: the float32 matrices exist for a block of rows at a time (on
    CPU one that stays in its cache), the exponentials are made once for both results, and the
    gradient ``(onehot - p) / temperature`` is built in one matrix.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies."""
        parts = [_forward_block(logits[b], targets[b], temperature) for b in _blocks(logits)]
        logprobs, entropy, log_totals = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(logits, targets, log_totals)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Gradient of the logits."""
        logits, targets, log_totals = ctx.saved_tensors
        scale = grads[0].float().unsqueeze(-1) / ctx.temperature
        result = torch.empty_like(logits)
        for part in _blocks(logits):
            grad = logits[part].to(torch.float32, copy=True)
            if ctx.temperature != 1.0:
                grad.div_(ctx.temperature)
            grad.sub_(log_totals[part].unsqueeze(-1)).exp_().mul_(-scale[part])
            grad.scatter_add_(-1, targets[part].unsqueeze(-1), scale[part])
            result[part] = grad
        return result, None, None


def _forward_block(
    logits: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs, entropies and the logarithms of the rows' totals."""
    shifted = logits.to(torch.float32, copy=True)
    if temperature != 1.0:
        shifted.div_(temperature)
    largest = shifted.max(dim=-1, keepdim=True).values
    shifted.sub_(largest)
    chosen = shifted.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    exps = shifted.exp()
    totals = exps.sum(dim=-1)
    log_totals = torch.log(totals)
    entropy = log_totals - shifted.mul_(exps).sum(dim=-1) / totals
    return chosen - log_totals, entropy, log_totals + largest.squeeze(-1)


def _blocks(logits: Tensor) -> list[slice]:
    limit = CPU_BLOCK_ELEMENTS if logits.device.type == "cpu" else GPU_BLOCK_ELEMENTS
    rows = max(1, limit // logits.shape[1])
    return [slice(start, start + rows) for start in range(0, logits.shape[0], rows)]


def _recomputed(
    rows: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], hidden: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """``rows(hidden, targets)`` whose inner tensors are built again in the backward pass."""
    return cast(
        tuple[Tensor, Tensor],
        checkpoint(rows, hidden, targets, use_reentrant=False, preserve_rng_state=False),
    )
