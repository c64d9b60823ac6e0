"""Our gradient against a plain one: unpacked, full logits, float32, the loss written out by hand.

``gradient_errors`` gives the norm of the difference over the norm of the plain gradient, over all
parameters together: for our path in float32 (must be rounding only), for our path under bf16
autocast, and for the plain path under bf16 autocast, which shows how much of that is bf16's own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from core.config import LearnerConfig, PolicyConfig
from core.records import TrainBatch, TrainingSample
from drivers.bench.learner_data import plain_logprobs

FLOAT32_TOLERANCE = 1e-4
"""Relative: the same arithmetic in another order."""
BF16_FACTOR = 1.5
"""Our bf16 error may be at most this many times that of the plain path under the same autocast."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientSetup:
    """What is compared."""

    model: str
    batch: TrainBatch
    learner: LearnerConfig


def send_gradient_errors(connection: Connection, setup: GradientSetup) -> None:
    """Run in a process of its own: answer with ``gradient_errors``."""
    connection.send(gradient_errors(setup))


def gradient_errors(setup: GradientSetup) -> dict[str, float]:
    """Relative errors ``float32``, ``bf16`` and ``plain_bf16``."""
    samples = [sample for group in setup.batch.groups for sample in group]
    exact = _plain_gradient(setup, samples, use_bf16=False)
    return {
        "float32": _distance(_our_gradient(setup, samples, use_bf16=False), exact),
        "bf16": _distance(_our_gradient(setup, samples, use_bf16=True), exact),
        "plain_bf16": _distance(_plain_gradient(setup, samples, use_bf16=True), exact),
    }


def _our_gradient(
    setup: GradientSetup, samples: list[TrainingSample], *, use_bf16: bool
) -> dict[str, Any]:
    """The policy module, packed micro-batches and loss that the learner uses."""
    from actors.policy_model import load_policy
    from core.batching import rank_micro_batches
    from core.loss import LossInputs, grpo_loss, token_mean
    from core.packing import pack_row

    learner = setup.learner.model_copy(update={"bf16": use_bf16})
    policy = load_policy(PolicyConfig(model=setup.model), learner, 1.0)
    total = sum(len(sample.token_ids) for sample in samples)
    micros = rank_micro_batches(tuple(samples), world_size=1, token_budget=learner.token_budget)[0]
    for micro in micros:
        row = pack_row([_detuned(sample) for sample in micro])
        logprobs, _ = policy(row)
        inputs = LossInputs(
            learner_logprobs=logprobs,
            old_logprobs=row.rollout_logprobs,
            advantages=row.advantages,
            loss_mask=row.loss_mask,
        )
        token_mean(grpo_loss(inputs, learner).loss, total).backward()
    return _gradient(policy.model)


def _plain_gradient(
    setup: GradientSetup, samples: list[TrainingSample], *, use_bf16: bool
) -> dict[str, Any]:
    """One sequence at a time through the whole matrix of logits, PPO's clipped loss by hand."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(setup.model, dtype=torch.float32)
    total = sum(len(sample.token_ids) for sample in samples)
    low, high = 1.0 - setup.learner.clip_low, 1.0 + setup.learner.clip_high
    for sample in map(_detuned, samples):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_bf16):
            logprobs = plain_logprobs(model, sample.prompt_token_ids, sample.token_ids)
        ratio = torch.exp(logprobs - torch.tensor(sample.rollout_logprobs))
        gain = torch.minimum(sample.advantage * ratio, sample.advantage * ratio.clamp(low, high))
        (-gain.sum() / total).backward()
    return _gradient(model)


def _detuned(sample: TrainingSample) -> TrainingSample:
    """The sample with old log-probs 0.05 lower: no ratio stands where the clip begins or ends."""
    return replace(
        sample, rollout_logprobs=tuple(value - 0.05 for value in sample.rollout_logprobs)
    )


def _gradient(model: Any) -> dict[str, Any]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def _distance(ours: dict[str, Any], exact: dict[str, Any]) -> float:
    if ours.keys() != exact.keys():
        raise RuntimeError(f"got gradients of other parameters: {ours.keys() ^ exact.keys()}")
    norm: Callable[[Any], float] = lambda tensor: float(tensor.double().square().sum())  # noqa: E731
    wrong = sum(norm(ours[name] - value) for name, value in exact.items())
    return (wrong / sum(norm(value) for value in exact.values())) ** 0.5
