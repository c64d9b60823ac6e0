"""Attention over packed rows: sequences stand one after another in a row, none sees another.

All layers but attention run on the packed tokens, so padding costs nothing there and a prompt that
a group shares is computed once. Attention lays the sequences out as a right-padded grid, each with
its own copy of the prompt's states, and is causal: real tokens never attend to padding on their
right, so no mask is needed, and the cost is quadratic in the longest sequence and not in the row.
Each token's output is taken from one place; the gradient of a shared key or value is the sum over
its copies. It works on CPU and GPU without a flash-attention package.
``register()`` makes it known to transformers as ``PACKED_ATTENTION``.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from actors.dense_attention import dense_attention, is_dense

PACKED_ATTENTION = "ratchet_packed"


def register() -> None:
    """Make the attention selectable by ``attn_implementation=PACKED_ATTENTION``."""
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of matrix products with ``tensor``: autocast's where it is on."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


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
    # Rotary embeddings in float32 make float32 queries and keys, also under autocast.
    dtype = compute_dtype(query)
    grids = (_to_grid(s.to(dtype), packed_sources, packed_shape) for s in (query, key, value))
    with torch.autocast(query.device.type, enabled=False):
        out = _attended(
            *grids,
            scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        )
    flat = out.transpose(1, 2).flatten(0, 1)
    return flat.index_select(0, packed_slots).unsqueeze(0), None


def _to_grid(states: Tensor, sources: Tensor, shape: tuple[int, int]) -> Tensor:
    """[1, H, T, D] packed to [B, H, L, D]; padding has the state of a sequence's last token."""
    grid = states[0].transpose(0, 1).index_select(0, sources)
    return grid.unflatten(0, shape).transpose(1, 2)


def _attended(query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> Tensor:
    """Causal attention of a grid: ``query`` [B, H, L, D], ``key`` and ``value`` [B, K, L, D]."""
    if is_dense(query):
        return dense_attention(query, key, value, scale)
    dtype = query.dtype
    if query.device.type == "cpu":
        # The bf16 kernel's backward pass is two to three times slower than the float32 one.
        query, key, value = query.float(), key.float(), value.float()
    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    ).to(dtype)
