"""The versions that a rollout carries, on an engine that is none."""

import asyncio
import sys
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest

from actors.rollout_worker import RolloutWorker
from core.query import Message
from core.records import GenerateRequest, WeightUpdate


class Engine:
    """Gives a token whenever it is told to; an update takes until ``loaded`` is set."""

    errored = False

    def __init__(self) -> None:
        self.tokens: asyncio.Queue[bool] = asyncio.Queue()
        self.is_updating, self.loaded = asyncio.Event(), asyncio.Event()

    async def generate(self, *_: object) -> AsyncIterator[Any]:
        is_last = False
        while not is_last:
            is_last = await self.tokens.get()
            part = types.SimpleNamespace(
                token_ids=[7],
                logprobs=[{7: types.SimpleNamespace(logprob=-0.5)}],
                finish_reason="stop" if is_last else None,
            )
            yield types.SimpleNamespace(outputs=[part])

    async def start_weight_update(self) -> None:
        self.is_updating.set()
        await self.loaded.wait()

    async def collective_rpc(self, name: str, args: object = ()) -> list[Any]:
        return [{}] if name == "ratchet_model_sums" else [0.0]

    async def done(self, *_: object, **__: object) -> None:
        return None

    pause_generation = resume_generation = finish_weight_update = reset_prefix_cache = done


class Tokenizer:
    chat_template = "{{ messages }}"

    def apply_chat_template(self, *_: object, **__: object) -> list[int]:
        return [1, 2]

    def decode(self, ids: list[int], **_: object) -> str:
        return "x" * len(ids)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    """A worker whose vLLM is replaced by nothing."""
    names = {
        "vllm": {"SamplingParams": dict},
        "vllm.sampling_params": {"RequestOutputKind": types.SimpleNamespace(DELTA=1)},
        "vllm.v1.engine.exceptions": {"EngineDeadError": type("EngineDeadError", (Exception,), {})},
        "vllm.distributed.weight_transfer.base": {"WeightTransferUpdateRequest": dict},
        "actors.weight_transfer": {"file_sums": lambda paths, names: {}},
    }
    for name, values in names.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("os.environ", {"PYTHONPATH": ""})
    made = RolloutWorker(0, {"max_num_seqs": 4, "max_model_len": 64}, num_cpus=1, is_cpu=True)
    made._engine, made._tokenizer = Engine(), Tokenizer()
    return made


async def test_tokens_that_arrive_during_an_update_are_of_the_version_before_it(
    worker: RolloutWorker,
) -> None:
    engine: Engine = worker._engine
    engine.loaded.set()
    await worker.load_weights(WeightUpdate(version=3, transport="object_store"))
    engine.is_updating.clear()
    engine.loaded.clear()
    request = GenerateRequest(
        query_id="q",
        visit=0,
        index=0,
        messages=(Message(role="user", content="hi"),),
        seed=1,
        temperature=1.0,
        max_new_tokens=8,
    )
    generating = asyncio.create_task(worker.generate(request))
    await asyncio.sleep(0)
    loading = asyncio.create_task(
        worker.load_weights(WeightUpdate(version=4, transport="object_store"))
    )
    await engine.is_updating.wait()
    assert worker.version() == -1
    engine.tokens.put_nowait(False)
    await asyncio.sleep(0.01)
    engine.loaded.set()
    await loading
    engine.tokens.put_nowait(True)
    rollout = await asyncio.wait_for(generating, 2)
    assert (rollout.policy_version_first, rollout.policy_version_last) == (3, 4)
