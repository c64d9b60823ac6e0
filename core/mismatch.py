"""How far the learner's log-probs are from the rollout workers', as sums that ranks add up.

Both sides speak of the same weights when rollouts are on-policy, so the gap is numerics (another
kernel, another dtype); with older rollouts it is the policy's drift as well. Names follow verl's
``rollout_corr/*`` and ``training/rollout_probs_diff_*``.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from core.loss import k3

SUMS: tuple[str, ...] = ("tokens", "probs_diff", "probs_diff_sq", "kl", "k3_kl", "is", "is_sq")
MAXIMA: tuple[str, ...] = ("probs_diff_max", "is_max")


def mismatch_sums(
    learner_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, is_weights: Tensor | None
) -> dict[str, float]:
    """Sums and maxima of one micro-batch's tokens [T] (see ``SUMS`` and ``MAXIMA``)."""
    learner, rollout = learner_logprobs[mask], rollout_logprobs[mask]
    diff = (torch.exp(learner) - torch.exp(rollout)).abs()
    weights = is_weights[mask] if is_weights is not None else torch.zeros(0)
    return {
        "tokens": float(diff.numel()),
        "probs_diff": float(diff.sum()),
        "probs_diff_sq": float((diff * diff).sum()),
        "kl": float((rollout - learner).sum()),
        "k3_kl": float(k3(rollout, learner).sum()),
        "is": float(weights.sum()),
        "is_sq": float((weights * weights).sum()),
        "probs_diff_max": float(diff.max()) if diff.numel() else 0.0,
        "is_max": float(weights.max()) if weights.numel() else 0.0,
    }


def mismatch_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Metrics from the sums over all ranks; the importance weights' only if there are any."""
    num_tokens = sums.get("tokens", 0.0)
    if num_tokens == 0:
        return {}
    mean = sums["probs_diff"] / num_tokens
    variance = max(sums["probs_diff_sq"] / num_tokens - mean * mean, 0.0)
    metrics = {
        "training/rollout_probs_diff_mean": mean,
        "training/rollout_probs_diff_max": sums["probs_diff_max"],
        "training/rollout_probs_diff_std": math.sqrt(variance),
        "rollout_corr/kl": sums["kl"] / num_tokens,
        "rollout_corr/k3_kl": sums["k3_kl"] / num_tokens,
    }
    if sums["is_sq"] > 0:
        metrics["rollout_corr/rollout_is_mean"] = sums["is"] / num_tokens
        metrics["rollout_corr/rollout_is_max"] = sums["is_max"]
        metrics["rollout_corr/rollout_is_eff_sample_size"] = sums["is"] ** 2 / (
            num_tokens * sums["is_sq"]
        )
    return metrics
