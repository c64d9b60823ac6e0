"""Log-probs of chosen tokens without the whole [tokens, vocabulary] matrix.

The vocabulary rows of ``chunk`` positions exist at one time: each chunk runs under activation
checkpointing, so the backward pass builds its rows again. Logits are divided by the sampling
temperature, since rollout log-probs are of the distribution that was sampled from. Arithmetic
after the head is float32 whatever the autocast dtype.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor
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
        return _row_logprobs(head(hidden_chunk), target_chunk, temperature)

    logprobs: list[Tensor] = []
    entropy: list[Tensor] = []
    for start in range(0, targets.shape[0], chunk):
        part = (hidden[start : start + chunk], targets[start : start + chunk])
        values = _recomputed(rows, *part) if torch.is_grad_enabled() else rows(*part)
        logprobs.append(values[0])
        entropy.append(values[1])
    return TokenLogprobs(torch.cat(logprobs), torch.cat(entropy))


def _recomputed(
    rows: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], hidden: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """``rows(hidden, targets)`` whose inner tensors are built again in the backward pass."""
    return cast(
        tuple[Tensor, Tensor],
        checkpoint(rows, hidden, targets, use_reentrant=False, preserve_rng_state=False),
    )


def _row_logprobs(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """``log p(target)`` and entropy of each row of ``logits`` [T, V]."""
    scaled = logits.float() / temperature if temperature != 1.0 else logits.float()
    log_total = torch.logsumexp(scaled, dim=-1)
    chosen = scaled.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        rows = scaled.detach()
        mean_logit = (torch.exp(rows - log_total.detach().unsqueeze(-1)) * rows).sum(-1)
        entropy = log_total.detach() - mean_logit
    return chosen - log_total, entropy
