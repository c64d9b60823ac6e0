"""GRPO's loss on response tokens, as sums that a caller divides once by the mini-batch's tokens.

All tensors are flat, [T]: the response tokens of some packed sequences. Which log-probs the ratio
compares with ("old") is the learner's rule: those of the rollout while rollouts are on-policy;
with off-policy data the proximal ones (the learner's own before its first optimizer step), and
the gap between rollout and proximal policy becomes a truncated importance weight.
The token mean is over all response tokens of the mini-batch on all ranks, tokens with advantage 0
included; a masked token is in neither sum nor count, and no NaN passes a mask.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.config import LearnerConfig

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here, so that no exponential overflows."""
MAX_TOKEN_KL = 10.0
"""Largest k3 estimate of one token (verl's ``low_var_kl``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossInputs:
    """What the loss is made of; every tensor [T]."""

    learner_logprobs: Tensor
    """With gradient."""
    old_logprobs: Tensor
    advantages: Tensor
    loss_mask: Tensor
    """bool: the tokens that train."""
    is_weights: Tensor | None = None
    """Truncated importance weights; None when rollouts are on-policy."""
    ref_logprobs: Tensor | None = None
    """None leaves the KL term out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSums:
    """Sums over the tokens that train; only ``loss`` has a gradient."""

    loss: Tensor
    pg_loss: Tensor
    kl_loss: Tensor
    ppo_kl: Tensor
    """old - learner log-probs."""
    clipped: Tensor
    """Tokens whose clipped surrogate was the larger one."""
    clipped_lower: Tensor
    """Tokens with a negative advantage that the dual clip bounded."""
    num_tokens: Tensor


def grpo_loss(inputs: LossInputs, config: LearnerConfig) -> LossSums:
    """Clipped surrogate with dual clip plus ``kl_coef`` times k3 to the reference policy.

    Surrogate: PPO's ``max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))``; for negative
    advantages at most ``-A dual_clip`` (dual-clip PPO, arXiv 1912.09729).
    """
    mask = inputs.loss_mask
    advantages = _kept(inputs.advantages, mask)
    learner = _kept(inputs.learner_logprobs, mask)
    old = _kept(inputs.old_logprobs, mask)
    ratio = torch.exp((learner - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))

    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    surrogate = torch.maximum(plain, clipped)
    bound = -advantages * config.dual_clip
    is_negative = advantages < 0
    pg = torch.where(is_negative, torch.minimum(surrogate, bound), surrogate)
    if inputs.is_weights is not None:
        pg = pg * _kept(inputs.is_weights, mask).detach()

    kl = torch.zeros_like(pg)
    if inputs.ref_logprobs is not None:
        kl = k3(learner, _kept(inputs.ref_logprobs, mask))
    loss = pg + config.kl_coef * kl
    return LossSums(
        loss=_sum(loss, mask),
        pg_loss=_sum(pg, mask).detach(),
        kl_loss=_sum(kl, mask).detach(),
        ppo_kl=_sum(old - learner, mask).detach(),
        clipped=_sum((clipped > plain).to(pg.dtype), mask),
        clipped_lower=_sum(((surrogate > bound) & is_negative).to(pg.dtype), mask),
        num_tokens=mask.sum(),
    )


def k3(learner_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Low-variance estimate of KL(learner || reference): ``exp(d) - d - 1``, d = ref - learner.

    Schulman, "Approximating KL divergence" (2020): unbiased and never negative.
    """
    gap = (ref_logprobs - learner_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (torch.exp(gap) - gap - 1.0).clamp(max=MAX_TOKEN_KL)


def truncated_is_weights(
    proximal_logprobs: Tensor, rollout_logprobs: Tensor, is_clamp: float
) -> Tensor:
    """``min(exp(proximal - rollout), is_clamp)`` a token (truncated importance sampling)."""
    gap = (proximal_logprobs - rollout_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.exp(gap).clamp(max=is_clamp).detach()


def token_mean(total: Tensor, num_tokens: int) -> Tensor:
    """``total / num_tokens``; exactly 0, with a gradient of 0, when there is no token."""
    return total / num_tokens if num_tokens > 0 else total * 0.0


def _kept(values: Tensor, mask: Tensor) -> Tensor:
    """Masked places become 0 before any arithmetic, so that NaN there has no gradient either."""
    return torch.where(mask, values, torch.zeros_like(values))


def _sum(values: Tensor, mask: Tensor) -> Tensor:
    return _kept(values, mask).sum()
