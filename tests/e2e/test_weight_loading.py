"""How a rollout worker loads weights, on a fake engine: order of calls, and what it refuses."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import save_file

from actors.rollout_worker import RolloutWorker
from actors.weight_transfer import read_tensors
from core.errors import StaleVersionError, WeightSyncError
from core.query import Message
from core.records import GenerateRequest, WeightUpdate

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

EMBEDDING = "model.embed_tokens.weight"


class FakeEngine:
    """Records vLLM's calls in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.model_sum = 6.0
        self.head_error = 0.001
        self.errored = False
        self.update_error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> None:
            self.calls.append(name)

        return call

    async def update_weights(self, request: Any) -> None:
        self.calls.append("update_weights")
        if self.update_error is not None:
            raise self.update_error

    async def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        if method == "ratchet_model_sums":
            return [{EMBEDDING: self.model_sum}]
        return [self.head_error]


@pytest.fixture
def exits() -> list[int]:
    return []


@pytest.fixture
def worker(exits: list[int]) -> Iterator[RolloutWorker]:
    with patch.dict(os.environ):  # a worker sets its process's environment
        worker = RolloutWorker(
            3, {"max_num_seqs": 2}, num_cpus=1, is_cpu=True, exit_process=exits.append
        )
        worker._engine = FakeEngine()
        yield worker


@pytest.fixture
def update(tmp_path: Path) -> WeightUpdate:
    path = tmp_path / "policy-7.safetensors"
    save_file({EMBEDDING: torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)}, path)
    return WeightUpdate(version=7, transport="shm", location=str(path), checksums={EMBEDDING: 6.0})


async def test_running_requests_are_kept_and_resumed(
    worker: RolloutWorker, update: WeightUpdate
) -> None:
    loaded = await worker.load_weights(update)
    assert worker._engine.calls == [
        "pause_generation",
        "start_weight_update",
        "update_weights",
        "finish_weight_update",
        "reset_prefix_cache",
        "resume_generation",
    ]
    assert (loaded.version, worker.version()) == (7, 7)
    assert loaded.checksums == {EMBEDDING: 6.0}
    assert repr(worker) == "RolloutWorker 3 (version 7, 0 running)"


async def test_an_engine_that_holds_other_weights_is_refused_and_stays_stale(
    worker: RolloutWorker, update: WeightUpdate
) -> None:
    worker._engine.model_sum = 5.5
    with pytest.raises(WeightSyncError, match=r"version 7: the sum of model.* is 5\.5.*6\.0"):
        await worker.load_weights(update)
    assert worker.version() == -1
    assert "resume_generation" not in worker._engine.calls


async def test_a_head_left_at_older_weights_is_refused(
    worker: RolloutWorker, update: WeightUpdate
) -> None:
    worker._engine.head_error = 0.3
    with pytest.raises(WeightSyncError, match="output head"):
        await worker.load_weights(update)
    assert repr(worker) == "RolloutWorker 3 (stale, 0 running)"


async def test_a_file_that_is_gone_is_refused_before_anything_is_touched(
    worker: RolloutWorker, update: WeightUpdate
) -> None:
    await worker.load_weights(update)
    Path(update.location).unlink()
    worker._engine.calls.clear()
    with pytest.raises(WeightSyncError, match="found no file"):
        await worker.load_weights(update)
    assert worker._engine.calls == []
    assert worker.version() == 7


async def test_an_engine_that_dies_during_an_update_ends_the_process(
    worker: RolloutWorker, update: WeightUpdate, exits: list[int]
) -> None:
    worker._engine.update_error = RuntimeError("EngineCore died")
    worker._engine.errored = True
    with pytest.raises(WeightSyncError):
        await worker.load_weights(update)
    assert exits == [1]


async def test_an_idle_worker_whose_engine_has_died_ends_its_process(
    worker: RolloutWorker, exits: list[int]
) -> None:
    watch = asyncio.create_task(worker._end_when_engine_dies())
    await asyncio.sleep(0.05)
    assert exits == []
    worker._engine.errored = True
    await asyncio.wait_for(watch, 5)
    assert exits == [1]


async def test_a_stale_worker_refuses_to_generate(worker: RolloutWorker) -> None:
    request = GenerateRequest(
        query_id="q",
        visit=0,
        index=0,
        messages=(Message(role="user", content="hi"),),
        seed=1,
        temperature=1.0,
        max_new_tokens=4,
    )
    with pytest.raises(StaleVersionError, match="query 'q'"):
        await worker.generate(request)


def test_a_tied_head_is_loaded_even_if_the_file_leaves_it_out(update: WeightUpdate) -> None:
    tied = dict(read_tensors(update.location, is_tied=True))
    assert torch.equal(tied["lm_head.weight"], tied[EMBEDDING])
    assert "lm_head.weight" not in dict(read_tensors(update.location, is_tied=False))


def test_a_tensor_without_elements_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"model.norm.weight": torch.zeros(0, dtype=torch.bfloat16)}, path)
    with pytest.raises(ValueError, match=r"model\.norm\.weight of size 0"):
        list(read_tensors(str(path), is_tied=False))
