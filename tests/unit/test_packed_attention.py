"""Attention by plain matrix products is attention."""

import torch

from actors.dense_attention import dense_attention, is_dense


def test_dense_attention_equals_causal_sdpa_in_value_and_gradient() -> None:
    """Four heads that share two keys, in float32."""
    torch.manual_seed(0)
    shapes = ((3, 4, 7, 8), (3, 2, 7, 8), (3, 2, 7, 8))
    inputs = [torch.randn(*shape, requires_grad=True) for shape in shapes]
    weights = torch.randn(shapes[0])
    plain = torch.nn.functional.scaled_dot_product_attention(
        *inputs, is_causal=True, scale=0.3, enable_gqa=True
    )
    (plain * weights).sum().backward()
    expected = [states.grad for states in inputs]
    for states in inputs:
        states.grad = None
    dense = dense_attention(*inputs, 0.3)
    (dense * weights).sum().backward()
    torch.testing.assert_close(dense, plain)
    for states, grad in zip(inputs, expected, strict=True):
        torch.testing.assert_close(states.grad, grad)


def test_only_short_sequences_in_bf16_on_a_cpu_are_dense() -> None:
    assert is_dense(torch.empty(2, 9, 100, 4, dtype=torch.bfloat16))
    assert not is_dense(torch.empty(2, 9, 100, 4))
    assert not is_dense(torch.empty(2, 9, 1000, 4, dtype=torch.bfloat16))
