"""Start-up self-check: do rollout workers and learner mean the same log-probs?

The check runs on perturbed weights, published like any others, after the workers have answered
with the true ones: an output head, a layer or a cached prefix that an update leaves behind then
shows as a difference, which equal weights would hide. Half of the prompts are longer than one
block of the prefix cache. The learner's true weights are put back in any case.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.config import RunConfig
from core.errors import WeightSyncError
from core.query import Message
from core.records import GenerateRequest, Rollout, TrainingSample, WeightUpdate
from drivers.ports import RolloutPool

logger = logging.getLogger(__name__)

_PERTURBATION = 0.05
"""Times each tensor's root mean square. On a 135M model stale weights then differ by a mean of 0.5,
a stale head by 0.15 and a stale prefix by 0.3, fresh ones by 0.04; at 0.02 a stale head passes."""
_SEED = 20260514
_NUM_ROLLOUTS = 4
_MAX_NEW_TOKENS = 32
_LONG_PROMPT_WORDS = 260
"""More than one block of the prefix cache (128 tokens on CPU)."""


class SelfCheckLearner(Protocol):
    """What the check asks of the learner."""

    async def publish(self, version: int) -> WeightUpdate:
        """Write the current weights where workers can read them."""
        ...

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Return log-probs of the response tokens (temperature applied)."""
        ...

    async def perturb(self, scale: float, seed: int) -> None:
        """Add deterministic noise to every weight, ``scale`` times its root mean square."""
        ...

    async def unperturb(self) -> None:
        """Put the weights from before back, exactly."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How far rollout and learner log-probs are apart, over all tokens."""

    mean: float
    p99: float
    num_tokens: int


async def check_logprobs(
    config: RunConfig, pool: RolloutPool, learner: SelfCheckLearner, *, version: int
) -> Agreement:
    """Compare both sides and leave the workers with the learner's true weights of ``version``.

    Raises WeightSyncError when the difference is above ``rollout.logprob_gate``.
    """
    await pool.load_weights(await learner.publish(version))
    await _rollouts(config, pool)  # fills the prefix cache under the true weights
    await learner.perturb(_PERTURBATION, _SEED)
    try:
        await pool.load_weights(await learner.publish(version))
        rollouts = await _rollouts(config, pool)
        learner_logprobs = await learner.logprobs([_sample(rollout) for rollout in rollouts])
    finally:
        await learner.unperturb()
    await pool.load_weights(await learner.publish(version))
    result = agreement([r.rollout_logprobs for r in rollouts], learner_logprobs)
    logger.info(
        "log-prob self-check: mean %.4f, p99 %.4f over %d tokens",
        result.mean,
        result.p99,
        result.num_tokens,
    )
    require_agreement(result, config.rollout.logprob_gate)
    return result


def agreement(rollout: Sequence[Sequence[float]], learner: Sequence[Sequence[float]]) -> Agreement:
    """Mean and 99th percentile (nearest rank) of |rollout - learner| over all tokens."""
    differences = sorted(
        abs(a - b)
        for ours, theirs in zip(rollout, learner, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    if not differences:
        raise WeightSyncError("got no tokens to compare, wanted rollouts with at least one")
    rank = -(-99 * len(differences) // 100)
    return Agreement(
        mean=sum(differences) / len(differences),
        p99=differences[rank - 1],
        num_tokens=len(differences),
    )


def require_agreement(result: Agreement, gate: tuple[float, float]) -> None:
    """Raise when the mean or the percentile is above its limit, or not a number."""
    if not (result.mean <= gate[0] and result.p99 <= gate[1]):
        raise WeightSyncError(
            f"log-prob self-check: got a difference between rollout workers and learner of mean "
            f"{result.mean:.4f} and p99 {result.p99:.4f} over {result.num_tokens} tokens, wanted "
            f"at most {gate[0]} and {gate[1]} (rollout.logprob_gate): the workers do not serve "
            "the learner's weights, or both apply another temperature or precision"
        )


async def _rollouts(config: RunConfig, pool: RolloutPool) -> list[Rollout]:
    requests = [_request(config, index) for index in range(_NUM_ROLLOUTS)]
    return list(await asyncio.gather(*(pool.generate(request) for request in requests)))


def _request(config: RunConfig, index: int) -> GenerateRequest:
    """Every second prompt is long, as far as the policy's context allows."""
    max_new_tokens = min(_MAX_NEW_TOKENS, config.sampling.max_new_tokens)
    # A word is at most two tokens; the chat template takes some more.
    room = (config.policy.max_model_len - max_new_tokens - 32) // 2
    words = min(_LONG_PROMPT_WORDS, room) if index % 2 else 0
    text = "Tell me about the sea. " + " ".join(
        ["blue", "green", "deep"][i % 3] for i in range(words)
    )
    return GenerateRequest(
        query_id="self-check",
        visit=0,
        index=index,
        messages=(
            Message(role="system", content="You answer briefly."),
            Message(role="user", content=text.strip()),
        ),
        seed=_SEED + index,
        temperature=config.sampling.temperature,
        max_new_tokens=max_new_tokens,
    )


def _sample(rollout: Rollout) -> TrainingSample:
    return TrainingSample(
        query_id=rollout.query_id,
        index=rollout.index,
        prompt_token_ids=rollout.prompt_token_ids,
        token_ids=rollout.token_ids,
        rollout_logprobs=rollout.rollout_logprobs,
        advantage=0.0,
    )
