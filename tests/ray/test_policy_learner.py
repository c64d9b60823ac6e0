"""The learner's ranks on a local Ray: real DeepSpeed on CPU with a tiny model.

Tolerances: two ranks add up in another order than one, in float32, over four AdamW steps of rate
1e-3; losses agree within 1e-4, bf16 weights within one rounding step of their size.
"""

import asyncio
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from actors.checkpoint_export import export_checkpoint
from core.batching import EarlyPasses
from core.config import DataConfig, LearnerConfig, LoopConfig, PolicyConfig, RunConfig
from core.errors import ConfigError, RunStopped
from core.records import StepReport, TrainBatch, TrainingSample, WeightUpdate
from drivers.learner_group import LearnerGroup
from tests.tiny_policy import CHAT_TEMPLATE, tiny_batch, tiny_samples, write_tiny_policy

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SAMPLES: Sequence[TrainingSample] = tiny_samples(1, 3, seed=99)[0]


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    root = str(Path(__file__).parents[2])
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        runtime_env={"env_vars": {"PYTHONPATH": root}},
        namespace="test_policy_learner",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_policy(tmp_path_factory.mktemp("tiny"))


def config_for(model: str, **learner: Any) -> RunConfig:
    values = {"mini_batches": 2, "lr": 1e-3, "token_budget": 40, "logprob_chunk": 7, "bf16": False}
    return RunConfig(
        name="tiny",
        data=DataConfig(train="queries.jsonl"),
        policy=PolicyConfig(model=model),
        learner=LearnerConfig(**{**values, "timeout_s": 120.0, **learner}),
        loop=LoopConfig(steps=3),
    )


@dataclass
class Outcome:
    """What a group of ranks gave in two steps."""

    reports: list[StepReport]
    update: WeightUpdate
    weights: dict[str, Tensor]
    logprobs: list[list[float]]
    third: StepReport
    folder: Path


async def two_steps(
    model: str, folder: Path, transport: Any, *, is_begun_early: bool = False, **learner: Any
) -> Outcome:
    """Train, publish, save, export, then train once more."""
    (folder / "shm").mkdir()
    group = LearnerGroup(
        config_for(model, **learner), weights_folder=str(folder / "shm"), transport=transport
    )
    try:
        await group.start()
        reports = [await group.train_step(tiny_batch(1))]
        off_policy = tiny_batch(2, is_off_policy=True)
        if is_begun_early:
            await group.accumulate(one_group(off_policy, 0))
        reports.append(await group.train_step(off_policy))
        update = await group.publish(2)
        weights = await weights_of(update)
        logprobs = await group.logprobs(SAMPLES)
        await group.save(str(folder / "state"))
        await group.export(str(folder / "policy"))
        of_six = tiny_batch(3, num_groups=6)
        for place in (0, 1) if is_begun_early else ():
            await group.accumulate(one_group(of_six, place))
        third = await group.train_step(of_six)
        return Outcome(reports, update, weights, logprobs, third, folder)
    finally:
        group.close()


def one_group(batch: TrainBatch, place: int) -> EarlyPasses:
    """One group of the batch's first mini-batch (of two)."""
    first = batch.groups[: len(batch.groups) // 2]
    groups = tuple(g if i == place else () for i, g in enumerate(batch.groups))
    return EarlyPasses(
        batch=replace(batch, groups=groups),
        num_tokens=sum(len(sample.token_ids) for group in first for sample in group),
    )


async def weights_of(update: WeightUpdate) -> dict[str, Tensor]:
    if update.transport == "shm":
        return load_file(update.location)
    weights: dict[str, Tensor] = {}
    for ref in update.buckets:
        for name, bits in (await ref).items():
            weights[name] = torch.from_numpy(bits.copy()).view(torch.bfloat16)
    return weights


@pytest.fixture(scope="module")
def one_rank(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("one")
    return asyncio.run(two_steps(tiny, folder, "object_store", zero_stage=0))


@pytest.fixture(scope="module", params=[0, 2, 3], ids=lambda stage: f"zero{stage}")
def two_ranks(
    request: pytest.FixtureRequest, tiny: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Outcome]:
    folder = tmp_path_factory.mktemp(f"zero{request.param}")
    stage = request.param
    # One rank does the whole step at once, two ranks do a part of it before the rest is there.
    steps = two_steps(tiny, folder, "shm", is_begun_early=True, num_ranks=2, zero_stage=stage)
    return stage, asyncio.run(steps)


def test_one_rank_trains_and_its_log_probs_are_those_of_its_weights(
    tiny: str, one_rank: Outcome
) -> None:
    assert one_rank.reports[1].policy_version == 2
    assert one_rank.reports[0].metrics["actor/grad_norm"] > 0
    exported = AutoModelForCausalLM.from_pretrained(one_rank.folder / "policy", dtype=torch.float32)
    ids = torch.tensor([[*SAMPLES[0].prompt_token_ids, *SAMPLES[0].token_ids]])
    with torch.no_grad():
        logits = exported(input_ids=ids).logits[0, len(SAMPLES[0].prompt_token_ids) - 1 : -1]
    rows = torch.log_softmax(logits, -1)
    expected = rows.gather(-1, torch.tensor(SAMPLES[0].token_ids)[:, None])[:, 0]
    # The exported weights are rounded to bf16.
    assert one_rank.logprobs[0] == pytest.approx(expected.tolist(), abs=0.1)
    before = AutoModelForCausalLM.from_pretrained(tiny)
    changed = one_rank.weights["lm_head.weight"].float() - before.lm_head.weight.float()
    assert changed.abs().max() > 1e-3


def test_two_ranks_give_the_losses_and_weights_of_one(
    one_rank: Outcome, two_ranks: tuple[int, Outcome]
) -> None:
    _, outcome = two_ranks
    for ours, theirs in zip(
        [*outcome.reports, outcome.third], [*one_rank.reports, one_rank.third], strict=True
    ):
        names = [n for n in theirs.metrics if not n.startswith("timing_s")]
        assert names == [n for n in ours.metrics if not n.startswith("timing_s")]
        for name in names:
            assert ours.metrics[name] == pytest.approx(theirs.metrics[name], abs=1e-4, rel=1e-3), (
                name
            )
    for mine, reference in zip(outcome.logprobs, one_rank.logprobs, strict=True):
        assert mine == pytest.approx(reference, abs=1e-3)
    assert set(outcome.weights) == set(one_rank.weights)
    for name, tensor in outcome.weights.items():
        torch.testing.assert_close(
            tensor.float(), one_rank.weights[name].float(), atol=1e-4, rtol=2**-7, msg=name
        )


def test_published_and_exported_weights_are_whole_with_the_tied_head(
    two_ranks: tuple[int, Outcome],
) -> None:
    _, outcome = two_ranks
    weights = outcome.weights
    assert all(tensor.numel() > 0 and tensor.dtype == torch.bfloat16 for tensor in weights.values())
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    sums = outcome.update.checksums
    assert {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"} <= set(sums)
    for name, value in sums.items():
        assert value == pytest.approx(float(weights[name].double().sum()))
    folder = outcome.folder / "policy"
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert model.config.architectures == ["LlamaForCausalLM"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    assert AutoTokenizer.from_pretrained(folder).chat_template == CHAT_TEMPLATE
    assert not list(folder.glob("*.tmp"))


def test_a_checkpoint_is_exported_without_its_ranks_as_the_policy_itself(
    tiny: str, two_ranks: tuple[int, Outcome], tmp_path: Path
) -> None:
    _, outcome = two_ranks
    config = config_for(tiny)
    export_checkpoint(str(outcome.folder / "state"), config.policy, str(tmp_path / "policy"))
    ours, theirs = (
        load_file(folder / "policy" / "model.safetensors") for folder in (tmp_path, outcome.folder)
    )
    assert set(ours) == set(theirs)
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_a_damaged_checkpoint_is_told_by_name(tiny: str, tmp_path: Path) -> None:
    (tmp_path / "learner.json").write_text('{"zero_stage": 0, "world_size": 1, "step": 1}')
    with pytest.raises(ConfigError, match="wanted what save\\(\\) wrote"):
        export_checkpoint(str(tmp_path), config_for(tiny).policy, str(tmp_path / "policy"))


async def test_a_saved_state_goes_on_in_new_ranks_with_the_same_step(
    tiny: str, two_ranks: tuple[int, Outcome], tmp_path: Path
) -> None:
    stage, outcome = two_ranks
    group = LearnerGroup(
        config_for(tiny, num_ranks=2, zero_stage=stage), weights_folder=str(tmp_path)
    )
    try:
        await group.start()
        await group.load(str(outcome.folder / "state"))
        assert await group.logprobs(SAMPLES) == [
            pytest.approx(values, abs=1e-6) for values in outcome.logprobs
        ]
        third = await group.train_step(tiny_batch(3, num_groups=6))
    finally:
        group.close()
    for name in ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm", "actor/ppo_kl"):
        assert third.metrics[name] == pytest.approx(outcome.third.metrics[name], rel=1e-4), name


async def test_another_number_of_ranks_or_stage_is_refused(
    tiny: str, one_rank: Outcome, tmp_path: Path
) -> None:
    group = LearnerGroup(config_for(tiny, num_ranks=2), weights_folder=str(tmp_path))
    other = LearnerGroup(config_for(tiny, zero_stage=2), weights_folder=str(tmp_path))
    state = str(one_rank.folder / "state")
    try:
        await group.start()
        with pytest.raises(ConfigError, match=r"got learner\.num_ranks=2 .* wanted 1"):
            await group.load(state)
        group.close()
        await other.start()
        with pytest.raises(ConfigError, match=r"got learner\.zero_stage=2 .* wanted 0"):
            await other.load(state)
        with pytest.raises(ConfigError, match=r"no learner\.json"):
            await other.load(str(tmp_path))
    finally:
        group.close()
        other.close()


def with_nan(batch: TrainBatch) -> TrainBatch:
    """The first sample's advantage is no number."""
    first, *rest = batch.groups
    bad = dataclasses.replace(first[0], advantage=math.nan)
    return dataclasses.replace(batch, groups=((bad, *first[1:]), *rest))


@pytest.mark.parametrize("stage", [0, 2])
async def test_a_non_finite_loss_stops_all_ranks_and_an_empty_batch_does_nothing(
    tiny: str, stage: int, tmp_path: Path
) -> None:
    config = config_for(tiny, num_ranks=2, zero_stage=stage, kl_coef=0.0)
    group = LearnerGroup(config, weights_folder=str(tmp_path))
    try:
        await group.start()
        before = await group.logprobs(SAMPLES)
        empty = await group.train_step(TrainBatch(step=1, groups=((), ()), is_off_policy=False))
        assert empty.metrics["actor/empty_batches"] == 1.0
        assert empty.policy_version == 1
        with pytest.raises(RunStopped, match=r"loss that is not finite at step 2 .*'q0'"):
            await group.train_step(with_nan(tiny_batch(2)))
        assert await group.logprobs(SAMPLES) == before
        ray.kill(ray.get_actor("PolicyLearner rank 1 [tiny]"))
        with pytest.raises(RunStopped, match=r"PolicyLearner rank 1 died .* give log-probs"):
            await group.logprobs(SAMPLES)
    finally:
        group.close()


@pytest.mark.parametrize("stage", [2, 3])
async def test_half_a_step_never_goes_into_another_step_or_a_checkpoint(
    tiny: str, stage: int, tmp_path: Path
) -> None:
    """Stopped between the early passes and the optimizer step."""
    config = config_for(tiny, zero_stage=stage)
    group, other = (LearnerGroup(config, weights_folder=str(tmp_path)) for _ in range(2))
    state = str(tmp_path / "state")
    try:
        await group.start()
        before = await group.logprobs(SAMPLES)
        await group.accumulate(one_group(tiny_batch(1), 0))
        await group.save(state)
        again = one_group(tiny_batch(1), 0)
        for call in (group.train_step(tiny_batch(2)), group.accumulate(again), group.load(state)):
            with pytest.raises(RunStopped, match=r"got gradients of step 1, which was not fin"):
                await call
        assert await group.logprobs(SAMPLES) == before
        finished = await group.train_step(tiny_batch(1))
        group.close()
        await other.start()
        await other.load(state)
        whole = await other.train_step(tiny_batch(1))
        for name in ("actor/grad_norm", "actor/pg_loss"):
            assert finished.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-3), name
    finally:
        group.close()
        other.close()


async def test_off_policy_batches_report_importance_weights(tiny: str, tmp_path: Path) -> None:
    """The first optimizer step has ratio 1 to the proximal policy, whatever the rollout said."""
    group = LearnerGroup(config_for(tiny, mini_batches=1), weights_folder=str(tmp_path))
    try:
        await group.start()
        metrics = (await group.train_step(tiny_batch(1, is_off_policy=True))).metrics
        batch = tiny_batch(1)
        assert metrics["actor/ppo_kl"] == pytest.approx(0.0, abs=1e-5)
        assert metrics["actor/pg_clipfrac"] == 0.0
        assert 0 < metrics["rollout_corr/rollout_is_max"] <= 2.0
        assert 0 < metrics["rollout_corr/rollout_is_eff_sample_size"] <= 1.0
        assert metrics["perf/total_num_tokens"] == sum(
            len(s.prompt_token_ids) + len(s.token_ids) for g in batch.groups for s in g
        )
        for version in (1, 2, 3):
            update = await group.publish(version)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["policy-2.safetensors", "policy-3.safetensors"]
        assert update.version == 3
    finally:
        group.close()


async def test_a_rank_that_does_not_answer_in_time_is_named(tiny: str, tmp_path: Path) -> None:
    group = LearnerGroup(config_for(tiny, timeout_s=0.01), weights_folder=str(tmp_path))
    try:
        with pytest.raises(
            RunStopped, match=r"waited 0\.01 s for PolicyLearner rank 0 to be placed"
        ):
            await group.start()
    finally:
        group.close()
