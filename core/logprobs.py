"""Log-probs of chosen tokens without the whole [tokens, vocabulary] matrix.

The vocabulary rows of ``chunk`` positions exist at one time: each chunk runs under activation
checkpointing, so the backward pass builds its rows again. Logits are divided by the sampling
temperature, since rollout log-probs are of the distribution that was sampled from. Arithmetic
after the head is float32 whatever the autocast dtype.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]


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
    for start in range(0, targets.shape[0], chunk):
        part = (hidden[start : start + chunk], targets[start : start + chunk])
        parts.append(_recomputed(rows, *part) if torch.is_grad_enabled() else rows(*part))
    return TokenLogprobs(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))


class RowLogprobs(Function):
    """``log p(target)`` [T] and entropy [T] of rows of logits [T, V]; gradient of the first only.

    Written out because a row is wide: the exponentials are made once for both results, and the
    gradient ``(onehot - p) / temperature`` is built in one matrix.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies."""
        # Two float32 matrices and no more: a third would be the largest tensor of a training step.
        shifted = logits.to(torch.float32, copy=True)
        if temperature != 1.0:
            shifted.div_(temperature)
        largest = shifted.max(dim=-1, keepdim=True).values
        shifted.sub_(largest)
        exps = shifted.exp()
        totals = exps.sum(dim=-1)
        log_totals = torch.log(totals)
        chosen = shifted.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        dots = torch.bmm(exps.unsqueeze(1), shifted.unsqueeze(2)).flatten()
        entropy = log_totals - dots / totals
        ctx.save_for_backward(logits, targets, log_totals + largest.squeeze(-1))
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return chosen - log_totals, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Gradient of the logits."""
        logits, targets, log_totals = ctx.saved_tensors
        scale = grads[0].float().unsqueeze(-1) / ctx.temperature
        grad = logits.float()
        if ctx.temperature != 1.0:
            grad = grad / ctx.temperature
        elif grad is logits:
            grad = grad.clone()
        grad.sub_(log_totals.unsqueeze(-1)).exp_().mul_(-scale)
        grad.scatter_add_(-1, targets.unsqueeze(-1), scale)
        return grad.to(logits.dtype), None, None


def _recomputed(
    rows: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], hidden: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """``rows(hidden, targets)`` whose inner tensors are built again in the backward pass."""
    return cast(
        tuple[Tensor, Tensor],
        checkpoint(rows, hidden, targets, use_reentrant=False, preserve_rng_state=False),
    )
