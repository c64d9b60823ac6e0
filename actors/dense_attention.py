"""Causal attention by plain matrix products, for short sequences in bf16 on a CPU.

torch's fused CPU kernel spends most of its time in a slow backward pass. Here all scores of a
layer stand in memory at one time and every product is one batched call: twice as fast. Scores and
their gradient are float32, since both are differences of large numbers; probabilities and the
products with them are in the inputs' dtype, and each layer keeps them for its backward pass. That
is FlashAttention's (arXiv 2205.14135, appendix B.4) in one block.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

MOST_SCORES = 2**23
"""Most scores of a layer: 32 MiB in float32 for the time of its pass, and 16 MiB in bf16 until its
backward pass."""


def is_dense(query: Tensor) -> bool:
    """Whether queries [B, H, L, D] are of the kind that this is for."""
    batch, heads, longest, _ = query.shape
    num_scores = batch * heads * longest**2
    is_bf16_on_cpu = query.device.type == "cpu" and query.dtype == torch.bfloat16
    return is_bf16_on_cpu and num_scores <= MOST_SCORES


def dense_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """``query`` [B, H, L, D], ``key`` and ``value`` [B, K, L, D] (H a multiple of K) to a query's
    shape."""
    batch, heads, longest, width = query.shape
    groups, repeats = batch * key.shape[1], heads // key.shape[1]
    function = cast(Any, _Dense)  # torch leaves ``apply`` untyped
    out = function.apply(
        query.reshape(groups, repeats * longest, width),
        key.reshape(groups, longest, width),
        value.reshape(groups, longest, width),
        scale,
    )
    return out.reshape(query.shape)


class _Dense(Function):
    """On ``query`` [N, R * L, D], ``key`` and ``value`` [N, L, D]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        repeats, longest = query.shape[1] // key.shape[1], key.shape[1]
        future = torch.full((longest, longest), float("-inf")).triu(1).repeat(repeats, 1)
        scores = torch.bmm(query.float(), key.float().transpose(1, 2)).mul_(scale).add_(future)
        probs = torch.softmax(scores, dim=-1).to(query.dtype)
        out = torch.bmm(probs, value)
        ctx.save_for_backward(query, key, value, probs, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, probs, out = ctx.saved_tensors
        grad = grads[0].contiguous()
        with torch.autocast(query.device.type, enabled=False):
            grad_value = torch.bmm(probs.transpose(1, 2), grad)
            grad_probs = torch.bmm(grad.float(), value.float().transpose(1, 2))
            means = (grad.float() * out.float()).sum(dim=-1, keepdim=True)
            grad_scores = grad_probs.sub_(means).mul_(probs).mul_(ctx.scale).to(query.dtype)
            grad_query = torch.bmm(grad_scores, key)
            grad_key = torch.bmm(grad_scores.transpose(1, 2), query)
        return grad_query, grad_key, grad_value, None
