"""A real rollout worker on CPU: log-probs, versions and in-flight updates against transformers.

One engine serves all tests in order; the last kills the actor and starts it again.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import ray
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.config import PolicyConfig, RolloutConfig
from core.engine_args import OWNER_ENV
from core.errors import RolloutError
from core.query import Message
from core.records import GenerateRequest, Rollout, WeightUpdate
from drivers.packaged_model import resolve_model
from drivers.rollout_handles import make_rollout_pool
from drivers.rollout_pool import RayRolloutPool
from drivers.self_check import agreement

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(420),
    pytest.mark.asyncio(loop_scope="module"),
]

MODEL = "packaged:smollm2-135m-instruct"
GATE_MEAN, GATE_P99 = 0.07, 0.35
LONG_QUESTION = "Tell me about the sea. " + " ".join(["blue", "green", "deep"] * 80)
Weights = Mapping[str, torch.Tensor]


class Published:
    """Weights on disk and the plain transformers model that has them."""

    def __init__(self, version: int, weights: Weights, model_folder: str, folder: Path) -> None:
        path = folder / f"policy-{version}.safetensors"
        tied = {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
        save_file({**weights, **tied}, path)
        self.update = WeightUpdate(
            version=version,
            transport="shm",
            location=str(path),
            checksums={
                name: float(tensor.sum(dtype=torch.float64))
                for name, tensor in weights.items()
                if "embed_tokens" in name or name.endswith("norm.weight")
            },
        )
        self.model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
        self.model.load_state_dict({n: t.float() for n, t in weights.items()}, strict=False)
        self.model.tie_weights()
        self.model.eval()

    @torch.no_grad()
    def logprobs(self, rollout: Rollout, temperature: float) -> list[float]:
        ids = torch.tensor([rollout.prompt_token_ids + rollout.token_ids])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(ids).logits
        start = len(rollout.prompt_token_ids) - 1
        rows = torch.log_softmax(logits[0, start:-1].float() / temperature, dim=-1)
        return rows.gather(1, torch.tensor(rollout.token_ids)[:, None])[:, 0].tolist()


@pytest.fixture(scope="module")
def model_folder() -> str:
    return resolve_model(MODEL, progress=False)


@pytest.fixture(scope="module")
def published(model_folder: str, tmp_path_factory: pytest.TempPathFactory) -> list[Published]:
    """Version 0 is the model; version 1 has 5 % of noise on every weight."""
    folder = tmp_path_factory.mktemp("weights")
    weights = load_file(f"{model_folder}/model.safetensors")
    generator = torch.Generator().manual_seed(1)
    noisy = {
        name: (
            tensor.float()
            + 0.05 * tensor.float().std() * torch.randn(tensor.shape, generator=generator)
        ).bfloat16()
        for name, tensor in weights.items()
    }
    return [Published(i, w, model_folder, folder) for i, w in enumerate((weights, noisy))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(model_folder: str, published: list[Published]) -> AsyncIterator[RayRolloutPool]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=True)
    pool = make_rollout_pool(
        PolicyConfig(model=MODEL, max_model_len=512),
        RolloutConfig(num_cpus=2, max_num_seqs=16, timeout_s=200, start_timeout_s=300),
        model_folder=model_folder,
        actor_options=[{"num_cpus": 2}],
    )
    try:
        await pool.start()
        await pool.load_weights(published[0].update)
        yield pool
        await pool.shutdown()
    finally:
        ray.shutdown()


def request(
    index: int,
    *,
    question: str = "Write one short sentence about rivers.",
    max_new_tokens: int = 40,
    temperature: float = 1.0,
) -> GenerateRequest:
    return GenerateRequest(
        query_id="q",
        visit=0,
        index=index,
        messages=(
            Message(role="system", content="You answer briefly."),
            Message(role="user", content=question),
        ),
        seed=100 + index,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
    )


async def rollouts(pool: RayRolloutPool, *requests: GenerateRequest) -> list[Rollout]:
    return list(await asyncio.gather(*(pool.generate(r) for r in requests)))


def difference(
    published: Published, found: list[Rollout], temperature: float = 1.0
) -> tuple[float, float]:
    result = agreement(
        [r.rollout_logprobs for r in found],
        [published.logprobs(r, temperature) for r in found],
    )
    print(f"difference: mean {result.mean:.4f} p99 {result.p99:.4f} tokens {result.num_tokens}")
    return result.mean, result.p99


async def test_logprobs_agree_with_a_plain_forward(
    pool: RayRolloutPool, published: list[Published]
) -> None:
    found = await rollouts(pool, *(request(i) for i in range(16)))
    mean, p99 = difference(published[0], found)
    assert mean <= GATE_MEAN
    assert p99 <= GATE_P99
    assert {(r.policy_version_first, r.policy_version_last) for r in found} == {(0, 0)}
    assert len({r.response for r in found}) > 8, "different seeds give different rollouts"


async def test_a_rollout_ends_with_its_eos_token_or_is_cut(
    pool: RayRolloutPool, model_folder: str
) -> None:
    eos = AutoTokenizer.from_pretrained(model_folder).eos_token_id
    stopped = await rollouts(pool, *(request(i, max_new_tokens=120) for i in range(6)))
    cut = await rollouts(pool, *(request(i, max_new_tokens=4) for i in range(4)))
    assert any(r.finish_reason == "stop" for r in stopped)
    for rollout in stopped + cut:
        has_eos = rollout.token_ids[-1] == eos
        assert has_eos == (rollout.finish_reason == "stop")
        assert eos not in rollout.token_ids[:-1]
        assert "<|im_end|>" not in rollout.response
        assert len(rollout.token_ids) == len(rollout.rollout_logprobs)
    assert all(r.finish_reason == "length" and len(r.token_ids) == 4 for r in cut)


async def test_logprobs_are_those_at_the_sampling_temperature(
    pool: RayRolloutPool, published: list[Published]
) -> None:
    found = await rollouts(pool, *(request(i, temperature=0.6) for i in range(8)))
    mean, p99 = difference(published[0], found, temperature=0.6)
    assert mean <= GATE_MEAN
    assert p99 <= GATE_P99
    raw_mean, _ = difference(published[0], found, temperature=1.0)
    assert raw_mean > 2 * GATE_MEAN, "at another temperature the numbers are others"


async def test_a_prompt_that_leaves_no_room_names_its_query(pool: RayRolloutPool) -> None:
    with pytest.raises(RolloutError, match=r"query 'q': got a prompt of \d+ tokens, wanted"):
        await pool.generate(request(0, question=LONG_QUESTION, max_new_tokens=400))


async def test_an_update_in_flight_changes_running_and_later_rollouts(
    pool: RayRolloutPool, published: list[Published]
) -> None:
    old, new = published
    long = [request(i, question=LONG_QUESTION, max_new_tokens=24) for i in range(4)]
    before = await rollouts(pool, *long)  # their prompt is in the prefix cache now
    running = [
        asyncio.create_task(pool.generate(request(i, question=LONG_QUESTION, max_new_tokens=150)))
        for i in range(8)
    ]
    await asyncio.sleep(1.5)
    await pool.load_weights(new.update)
    after = await rollouts(pool, *long, *(request(i) for i in range(4)))
    spans = {
        (r.policy_version_first, r.policy_version_last) for r in await asyncio.gather(*running)
    }
    assert (0, 1) in spans, "no rollout was running during the update"
    assert {(r.policy_version_first, r.policy_version_last) for r in after} == {(1, 1)}
    assert [r.response for r in before] != [r.response for r in after[:4]]
    mean, p99 = difference(new, after)
    assert mean <= GATE_MEAN
    assert p99 <= GATE_P99
    stale_mean, _ = difference(old, after)
    assert stale_mean > 2 * GATE_MEAN, "weights left behind would have shown"


async def test_weights_also_come_through_the_object_store(
    pool: RayRolloutPool, published: list[Published]
) -> None:
    file = load_file(published[0].update.location)
    names = sorted(file)
    buckets = tuple(
        ray.put({name: file[name].view(torch.uint16).numpy() for name in part})
        for part in (names[:100], names[100:])
    )
    await pool.load_weights(
        WeightUpdate(
            version=2,
            transport="object_store",
            buckets=buckets,
            checksums=published[0].update.checksums,
        )
    )
    found = await rollouts(pool, *(request(i) for i in range(4)))
    assert {(r.policy_version_first, r.policy_version_last) for r in found} == {(2, 2)}
    assert difference(published[0], found)[0] <= GATE_MEAN


def engine_processes(owner: int) -> list[psutil.Process]:
    """Processes that vLLM started on behalf of the worker with this process id."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(OWNER_ENV) == str(owner) and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_a_killed_worker_leaves_no_engine_and_comes_back_with_current_weights(
    pool: RayRolloutPool, published: list[Published]
) -> None:
    actor = ray.get_actor("RolloutWorker 0")
    pid = (await actor.status.remote()).pid
    assert len(engine_processes(pid)) >= 2, "EngineCore and Worker are told by their environment"
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 15
    while engine_processes(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    assert engine_processes(pid) == []
    found = await rollouts(pool, request(0), request(1))
    assert {(r.policy_version_first, r.policy_version_last) for r in found} == {(2, 2)}
    assert difference(published[0], found)[0] <= GATE_MEAN
    assert pool.status().num_restarts == 1
