"""The start-up self-check: its numbers by hand, its order of events, and its gate."""

from collections.abc import Sequence

import pytest

from core.config import RunConfig
from core.errors import WeightSyncError
from core.records import GenerateRequest, Rollout, TrainingSample, WeightUpdate
from drivers.self_check import agreement, check_logprobs


def config(**rollout: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "t",
            "data": {"train": "x.jsonl"},
            "policy": {"model": "m", "max_model_len": 512},
            "sampling": {"max_new_tokens": 64},
            "rollout": rollout,
            "loop": {"steps": 1},
        }
    )


class FakeSides:
    """Learner and pool in one: a log-prob is the weights' offset, as each side sees it."""

    def __init__(self, *, loses_updates: bool = False) -> None:
        self.loses_updates = loses_updates
        self.learner_weights = 0.0
        self.pool_weights: float | None = None
        self.events: list[str] = []
        self.prompt_words: list[int] = []

    async def publish(self, version: int) -> WeightUpdate:
        return WeightUpdate(version=version, transport="shm", checksums={"w": self.learner_weights})

    async def perturb(self, scale: float, seed: int) -> None:
        self.events.append("perturb")
        self.learner_weights += 1.0

    async def unperturb(self) -> None:
        self.events.append("unperturb")
        self.learner_weights -= 1.0

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        return [[-2.0 + self.learner_weights] * len(s.token_ids) for s in samples]

    async def load_weights(self, update: WeightUpdate) -> None:
        weights = update.checksums["w"]
        self.events.append(f"load {weights}")
        if self.pool_weights is None or not self.loses_updates:
            self.pool_weights = weights

    async def generate(self, request: GenerateRequest) -> Rollout:
        assert self.pool_weights is not None
        self.prompt_words.append(len(request.messages[-1].content.split()))
        return Rollout(
            query_id=request.query_id,
            visit=0,
            index=request.index,
            response="",
            finish_reason="length",
            prompt_token_ids=(1,),
            token_ids=(2, 3),
            rollout_logprobs=(-2.0 + self.pool_weights, -2.01 + self.pool_weights),
            policy_version_first=request.visit,
            policy_version_last=request.visit,
        )


def test_mean_and_p99_by_hand() -> None:
    result = agreement([[-1.0, -2.0], [-3.0]], [[-1.1, -2.0], [-3.5]])
    assert result.mean == pytest.approx((0.1 + 0.0 + 0.5) / 3)
    assert result.p99 == pytest.approx(0.5)
    assert result.num_tokens == 3


def test_p99_of_a_hundred_is_the_ninety_ninth() -> None:
    result = agreement([[float(i) for i in range(1, 101)]], [[0.0] * 100])
    assert result.p99 == 99.0


async def test_the_check_sees_perturbed_weights_and_puts_the_true_ones_back() -> None:
    sides = FakeSides()
    result = await check_logprobs(config(), sides, sides, version=0)
    assert result.mean == pytest.approx(0.005)
    assert sides.events == ["load 0.0", "perturb", "load 1.0", "unperturb", "load 0.0"]
    assert sides.pool_weights == 0.0
    assert sum(words > 200 for words in sides.prompt_words) == len(sides.prompt_words) // 2


async def test_weights_left_behind_stop_the_run() -> None:
    sides = FakeSides(loses_updates=True)
    with pytest.raises(WeightSyncError, match=r"mean 1\.0.*wanted at most 0\.07"):
        await check_logprobs(config(), sides, sides, version=0)
    assert sides.learner_weights == 0.0


async def test_the_gate_comes_from_the_config() -> None:
    sides = FakeSides()
    with pytest.raises(WeightSyncError, match=r"wanted at most 0\.001"):
        await check_logprobs(config(logprob_gate=(0.001, 1.0)), sides, sides, version=0)


def test_a_difference_that_is_not_a_number_does_not_pass() -> None:
    from drivers.self_check import require_agreement

    with pytest.raises(WeightSyncError):
        require_agreement(agreement([[float("nan")]], [[0.0]]), (0.07, 0.35))
