"""Our learner alone on a GPU: tokens a second, memory, share of the chip's bf16 peak.

Needs torch and transformers and nothing else. Weights are random, shapes are those of Qwen2.5 0.5B
and 7B. A step is the learner's own forward and backward pass over one packed row, with log-probs
either in chunks or from the whole matrix of logits.
0.5B: float32 weights, bf16 autocast, AdamW. 7B: bf16 weights and activation checkpointing, forward
and backward only: its AdamW state in float32 (112 GB with master weights and gradients) leaves no
room for activations on one chip.
The peak is measured here with a large bf16 matrix product. The share counts 6 operations a
parameter and token (attention and recomputation left out), the usual "model FLOPs".
"""

import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Qwen2Config

from actors.packed_attention import PACKED_ATTENTION, register
from actors.policy_model import PolicyModel
from core.errors import ConfigError
from core.packing import PackedRow, pack_row

log = logging.getLogger("ratchet")

CHUNK = 1024

Logprobs = Callable[[PolicyModel, PackedRow], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One model size and the row it trains on."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    is_tied: bool
    num_sequences: int
    prompt: int
    response: int
    """Tokens of the longest response; others are shorter."""
    has_optimizer: bool
    """float32 weights with AdamW and bf16 autocast, or bf16 weights without an optimizer."""
    is_checkpointed: bool


SMALL = Shape(
    name="0.5B",
    hidden=896,
    intermediate=4864,
    layers=24,
    heads=14,
    kv_heads=2,
    vocabulary=151_936,
    is_tied=True,
    num_sequences=16,
    prompt=128,
    response=896,
    has_optimizer=True,
    is_checkpointed=False,
)
LARGE = Shape(
    name="7B",
    hidden=3584,
    intermediate=18_944,
    layers=28,
    heads=28,
    kv_heads=4,
    vocabulary=152_064,
    is_tied=False,
    num_sequences=16,
    prompt=128,
    response=896,
    has_optimizer=False,
    is_checkpointed=True,
)
TINY = Shape(
    name="tiny",
    hidden=32,
    intermediate=64,
    layers=2,
    heads=4,
    kv_heads=2,
    vocabulary=96,
    is_tied=True,
    num_sequences=3,
    prompt=3,
    response=9,
    has_optimizer=True,
    is_checkpointed=False,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """What ``pack_row`` reads of a training sample."""

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    rollout_logprobs: tuple[float, ...]
    advantage: float


def measure_device(device: str, *, is_short: bool) -> dict[str, Any]:
    """Measure both shapes on a GPU."""
    if not torch.cuda.is_available():
        raise ConfigError("got no GPU that torch can use, wanted one for --device cuda")
    peak = matmul_peak(device, 4096 if is_short else 8192)
    log.info("learner: a bf16 matrix product reaches %.0f TFLOP/s", peak / 1e12)
    shapes = [SMALL] if is_short else [SMALL, LARGE]
    return {
        "chip": torch.cuda.get_device_name(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"torch": torch.__version__},
        "matmul_peak_tflops": peak / 1e12,
        "shapes": [measure_shape(shape, device, peak, num_steps=5) for shape in shapes],
    }


def measure_shape(shape: Shape, device: str, peak: float, *, num_steps: int) -> dict[str, Any]:
    """Chunked and naive log-probs on the same packed row."""
    row = packed_row(shape).to(torch.device(device))
    modes: dict[str, Any] = {}
    for name, logprobs in (("chunked", chunked_logprobs), ("naive", naive_logprobs)):
        modes[name] = _measure_mode(shape, row, logprobs, peak, num_steps)
        log.info("learner: %s, %s log-probs: %s", shape.name, name, modes[name])
    tokens = {"tokens": int(row.input_ids.numel()), "response_tokens": int(row.targets.numel())}
    optimizer = "AdamW, float32 weights" if shape.has_optimizer else "none, bf16 weights"
    facts = {"optimizer": optimizer, "activation_checkpointing": shape.is_checkpointed}
    return {"name": shape.name, "modes": modes} | tokens | facts


def _measure_mode(
    shape: Shape, row: PackedRow, logprobs: Logprobs, peak: float, num_steps: int
) -> dict[str, float]:
    policy = build_policy(shape, row.input_ids.device)
    optimizer = torch.optim.AdamW(policy.parameters(), fused=True) if shape.has_optimizer else None
    device = row.input_ids.device.type
    step = partial(train, policy, row, optimizer, logprobs)
    step()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = timed(step, device, num_steps)
    parameters = sum(p.numel() for p in policy.parameters())
    tokens = int(row.input_ids.numel())
    peak_bytes = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    del policy, optimizer, step
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return {
        "tokens_per_s": tokens / seconds,
        "peak_gb": peak_bytes / 1e9,
        "peak_share": 6.0 * parameters * tokens / seconds / peak,
    }


def train(
    policy: PolicyModel,
    row: PackedRow,
    optimizer: torch.optim.Optimizer | None,
    logprobs: Logprobs,
) -> float:
    """One forward and backward pass with the policy gradient's loss, and a step if there is one."""
    loss = -(row.advantages * logprobs(policy, row)).mean()
    loss.backward()
    if optimizer is not None:
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    policy.zero_grad(set_to_none=True)
    return float(loss.detach())


def chunked_logprobs(policy: PolicyModel, row: PackedRow) -> Tensor:
    """The learner's own way."""
    return policy(row)[0]


def naive_logprobs(policy: PolicyModel, row: PackedRow) -> Tensor:
    """All logits of the row's response tokens at one time, log-softmax in float32."""
    device = row.input_ids.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=policy.use_bf16):
        states = policy.states(row)
        logits = nn.functional.linear(states, policy.head.weight, policy.head.bias)
    rows = torch.log_softmax(logits.float(), dim=-1)
    return rows.gather(-1, row.targets.unsqueeze(-1)).squeeze(-1)


def build_policy(shape: Shape, device: torch.device) -> PolicyModel:
    """The learner's policy module with random weights."""
    register()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=shape.is_tied,
        max_position_embeddings=4096,
    )
    dtype = torch.float32 if shape.has_optimizer else torch.bfloat16
    with device:
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=PACKED_ATTENTION
        )
    if shape.is_checkpointed:
        model.gradient_checkpointing_enable()
    policy = PolicyModel(model, temperature=1.0, chunk=CHUNK, use_bf16=shape.has_optimizer)
    return policy.to(device).train()


def packed_row(shape: Shape) -> PackedRow:
    """Sequences with responses from a quarter of the longest to the longest."""
    count = shape.num_sequences
    spread = 4 * (count - 1)
    lengths = [shape.response * (count - 1 + 3 * i) // spread for i in range(count)]
    samples: Sequence[Any] = [
        Sample(
            prompt_token_ids=tuple((7 * i + place) % shape.vocabulary for i in range(shape.prompt)),
            token_ids=tuple((11 * i + place) % shape.vocabulary for i in range(length)),
            rollout_logprobs=(0.0,) * length,
            advantage=1.0 if place % 2 else -1.0,
        )
        for place, length in enumerate(lengths)
    ]
    return pack_row(samples)


def matmul_peak(device: str, size: int) -> float:
    """Operations a second of a square bf16 product."""
    left = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    right = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    product = partial(torch.matmul, left, right)
    product()
    return 2.0 * size**3 / timed(product, device, 20)


def timed(call: Callable[[], object], device: str, times: int) -> float:
    """Mean seconds of a call, after all of them have really ended."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(times):
        call()
    _wait(device)
    return (time.perf_counter() - start) / times


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
