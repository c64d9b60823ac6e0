"""The turns that our learner and TRL's trainer take, and the figures made of them."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from core.batching import num_tokens
from core.config import LearnerConfig
from core.records import TrainBatch
from drivers.bench.learner_arms import Arm, in_own_process, num_threads
from drivers.bench.learner_data import BatchSetup, send_batch
from drivers.bench.learner_gradients import (
    BF16_FACTOR,
    FLOAT32_TOLERANCE,
    GradientSetup,
    send_gradient_errors,
)
from drivers.bench.learner_ours import OursSetup, train_ours
from drivers.bench.learner_trl import TrlSetup, train_trl
from drivers.bench.part import Options
from drivers.packaged_model import resolve_model

MODEL = "packaged:smollm2-135m-instruct"
MICRO_BATCHES = (4, 8, 16)
"""Of TRL, in sequences."""
LEARNER = LearnerConfig(
    lr=1e-6,
    bf16=True,
    kl_coef=0.0,
    mini_batches=1,
    token_budget=512,
    logprob_chunk=256,
    gradient_checkpointing=True,
)
"""Ours at its leanest, with activation checkpointing. TRL is compared without it; with it, where it
was faster in one run and slower in another, it stands beside (``_lean_trl``)."""

log = logging.getLogger("ratchet")


def measure_against_trl(options: Options) -> dict[str, Any]:
    """Let the arms take turns; see the part's docstring."""
    model = resolve_model(MODEL)
    size = BatchSetup(
        model=model,
        group_size=4 if options.is_short else 8,
        longest=64 if options.is_short else 192,
        seed=options.seed,
    )
    batch: TrainBatch = in_own_process("batch", send_batch, size)
    log.info("learner: %s", _sizes(batch))
    errors: dict[str, float] = in_own_process(
        "gradients",
        send_gradient_errors,
        GradientSetup(model=model, batch=_first_of_each(batch), learner=LEARNER),
    )
    log.info("learner: relative gradient errors %s", errors)
    with ExitStack() as stack:
        ours = stack.enter_context(
            Arm("ours", train_ours, OursSetup(model=model, batch=batch, learner=LEARNER))
        )
        setups = [
            TrlSetup(model=model, batch=batch, micro_batch=each, learner=LEARNER)
            for each in MICRO_BATCHES
        ]
        rivals = [stack.enter_context(_trl(setup)) for setup in setups]
        _take_turns([ours, *rivals], batch)
        best = min(rivals, key=_fastest)
        # A second step has AdamW's state, without which no peak is the peak.
        _take_turns([ours, best], batch)
    lean = _lean_trl(setups[0], batch, num_steps=1 if options.is_short else 2)
    tolerances = {"float32_tolerance": FLOAT32_TOLERANCE, "bf16_factor": BF16_FACTOR}
    return _figures(batch, ours, best, rivals, lean) | {"gradient_error": errors | tolerances}


def _lean_trl(smallest: TrlSetup, batch: TrainBatch, num_steps: int) -> Arm:
    """TRL's leanest arm, with activation checkpointing as in ours: for the memory of both alike."""
    with _trl(replace(smallest, gradient_checkpointing=True)) as arm:
        for _ in range(num_steps):
            _take_turns([arm], batch)
    return arm


def _trl(setup: TrlSetup) -> Arm:
    lean = ", activation checkpointing" if setup.gradient_checkpointing else ""
    return Arm(f"TRL, micro-batches of {setup.micro_batch}{lean}", train_trl, setup)


def _take_turns(arms: Sequence[Arm], batch: TrainBatch) -> None:
    for arm in arms:
        step = arm.step()
        rate = _num_tokens(batch) / step.seconds
        log.info(
            "learner: %s: %.1f s, %.0f tokens/s, peak %.0f MB",
            arm.name,
            step.seconds,
            rate,
            step.peak_mb,
        )


def _figures(
    batch: TrainBatch, ours: Arm, best: Arm, rivals: Sequence[Arm], lean: Arm
) -> dict[str, Any]:
    tokens = _num_tokens(batch)
    our_rate, trl_rate = tokens / _fastest(ours), tokens / _fastest(best)
    return {
        "train_tokens_per_s": our_rate,
        "trl_train_tokens_per_s": trl_rate,
        "train_tokens_per_s_ratio": our_rate / trl_rate,
        "peak_memory_ratio": _peak(ours) / _peak(best),
        "peak_memory_ratio_both_checkpointing": _peak(ours) / _peak(lean),
        "peak_mb": _peak(ours),
        "trl_peak_mb": _peak(best),
        "trl_best": best.name,
        "trl_arms": {
            arm.name: {"tokens_per_s": tokens / _fastest(arm), "peak_mb": _peak(arm)}
            for arm in (*rivals, lean)
        },
        "activation_checkpointing": {"ours": LEARNER.gradient_checkpointing, "trl": False},
        "token_budget": LEARNER.token_budget,
        "logprob_chunk": LEARNER.logprob_chunk,
        "threads": num_threads(),
        "batch": _sizes(batch),
    }


def _fastest(arm: Arm) -> float:
    return min(step.seconds for step in arm.steps)


def _peak(arm: Arm) -> float:
    return max(step.peak_mb for step in arm.steps)


def _num_tokens(batch: TrainBatch) -> int:
    return sum(num_tokens(sample) for group in batch.groups for sample in group)


def _sizes(batch: TrainBatch) -> dict[str, Any]:
    samples = [sample for group in batch.groups for sample in group]
    prompts = [len(group[0].prompt_token_ids) for group in batch.groups]
    responses = sorted(len(sample.token_ids) for sample in samples)
    return {
        "tokens": _num_tokens(batch),
        "padded_tokens": len(samples) * (max(prompts) + responses[-1]),
        "prompt_lengths": prompts,
        "response_lengths": responses,
    }


def _first_of_each(batch: TrainBatch) -> TrainBatch:
    """Two samples of each group: enough for a gradient, soon done in float32."""
    return TrainBatch(
        step=batch.step, groups=tuple(group[:2] for group in batch.groups), is_off_policy=False
    )
