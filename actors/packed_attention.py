"""Attention over packed rows: sequences stand one after another in a row, none sees another.

All layers but attention run on the packed tokens, so padding costs nothing there. Attention lays
the sequences out as a right-padded grid and calls causal SDPA: real tokens never attend to padding
on their right, so no mask is needed, and the cost is quadratic in the longest sequence and not in
the row. It works on CPU and GPU without a flash-attention package.
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
    packed_slots: Tensor,
    packed_shape: tuple[int, int],
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence; ``query`` [1, H, T, D] to output [1, T, H, D].

    ``packed_slots`` [T] is each token's place in the flattened grid of ``packed_shape``.
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
            _to_grid(query, packed_slots, packed_shape).to(dtype),
            _to_grid(key, packed_slots, packed_shape).to(dtype),
            _to_grid(value, packed_slots, packed_shape).to(dtype),
            is_causal=True,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        ).to(query.dtype)
    flat = out.transpose(1, 2).flatten(0, 1)
    return flat.index_select(0, packed_slots).unsqueeze(0), None


def _to_grid(states: Tensor, slots: Tensor, shape: tuple[int, int]) -> Tensor:
    """[1, H, T, D] packed to [B, H, L, D] padded on the right with zeros."""
    num_sequences, longest = shape
    tokens = states[0].transpose(0, 1)
    grid = tokens.new_zeros(num_sequences * longest, *tokens.shape[1:])
    grid = grid.index_copy(0, slots, tokens)
    return grid.unflatten(0, (num_sequences, longest)).transpose(1, 2)
