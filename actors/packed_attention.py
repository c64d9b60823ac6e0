"""Attention over packed rows: sequences stand one after another in a row, none sees another.

All layers but attention run on the packed tokens, so padding costs nothing there and a prompt that
a group shares is computed once. Attention lays the sequences out as a right-padded grid, each with
its own copy of the prompt's states, and calls causal SDPA: real tokens never attend to padding on
their right, so no mask is needed, and the cost is quadratic in the longest sequence and not in the
row. Each token's output is taken from one place; the gradient of a shared key or value is the sum
over its copies. It works on CPU and GPU without a flash-attention package.
``register()`` makes it known to transformers as ``PACKED_ATTENTION``.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

PACKED_ATTENTION = "ratchet_packed"


def register() -> None:
    """Make the attention selectable by ``attn_implementation=PACKED_ATTENTION``."""
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed_sources: Tensor,
    packed_slots: Tensor,
    packed_shape: tuple[int, int],
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence; ``query`` [1, H, T, D] to output [1, T, H, D].

    ``packed_sources`` has the token at each place of the flattened grid of ``packed_shape``, and
    ``packed_slots`` [T] the place that each token's output is taken from.
    """
    if sliding_window is not None and sliding_window < packed_shape[1]:
        raise ValueError(
            f"got a sequence of {packed_shape[1]} tokens for a model with a sliding window of "
            f"{sliding_window}, wanted full attention: lower policy.max_model_len"
        )
    # On CPU the bf16 kernel's backward pass is two to three times slower than the float32 one.
    dtype = torch.float32 if query.device.type == "cpu" else query.dtype
    with torch.autocast(query.device.type, enabled=False):
        out = torch.nn.functional.scaled_dot_product_attention(
            _to_grid(query.to(dtype), packed_sources, packed_shape),
            _to_grid(key.to(dtype), packed_sources, packed_shape),
            _to_grid(value.to(dtype), packed_sources, packed_shape),
            is_causal=True,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        ).to(query.dtype)
    flat = out.transpose(1, 2).flatten(0, 1)
    return flat.index_select(0, packed_slots).unsqueeze(0), None


def _to_grid(states: Tensor, sources: Tensor, shape: tuple[int, int]) -> Tensor:
    """[1, H, T, D] packed to [B, H, L, D]; on the right of a sequence stands token 0's state."""
    grid = states[0].transpose(0, 1).index_select(0, sources)
    return grid.unflatten(0, shape).transpose(1, 2)
