"""The vLLM backend over a scripted engine: lengths, lateness and engine errors become failures."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from core.config_served import ServedModelConfig
from serve.backends.base import CompletionRequest
from serve.backends.vllm import VllmBackend

pytest.importorskip("vllm")

CONFIG = ServedModelConfig(
    backend="vllm", model="small", max_tokens=50, max_model_len=64, timeout_s=0.2, seed=3
)
SCHEMA = {"type": "object"}


class Tokenizer:
    """One token a word; no chat template."""

    chat_template = None

    def encode(self, text: str) -> list[int]:
        text.encode()  # a real one takes nothing that is not UTF-8 either
        return [1] * len(text.split())


class Engine:
    """Answers with one output, after a delay, or raises."""

    def __init__(self, text: str = "ok", finish_reason: str = "stop", delay_s: float = 0.0) -> None:
        self.output = SimpleNamespace(text=text, finish_reason=finish_reason, token_ids=[1, 2])
        self.delay_s = delay_s
        self.error: Exception | None = None
        self.refuses_schemas = False
        self.params: list[Any] = []

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncIterator[Any]:
        self.params.append(params)
        await asyncio.sleep(self.delay_s)
        if self.error:
            raise self.error
        if self.refuses_schemas and params.structured_outputs:
            raise ValueError("no grammar for it")
        yield SimpleNamespace(outputs=[self.output], num_cached_tokens=1)


def ask(engine: Engine, prompt: str = "one two", schema: dict[str, Any] | None = None) -> Any:
    backend = VllmBackend(CONFIG, engine, Tokenizer())
    return backend.complete(CompletionRequest(prompt=prompt, schema=schema))


async def test_the_reply_carries_its_tokens_and_the_request_its_schema() -> None:
    engine = Engine()
    reply = await ask(engine, schema=SCHEMA)
    assert (reply.text, reply.finish_reason, reply.failure) == ("ok", "stop", None)
    usage = reply.usage
    assert (usage.prompt_tokens, usage.cached_prompt_tokens, usage.completion_tokens) == (2, 1, 2)
    (params,) = engine.params
    assert (params.temperature, params.seed, params.max_tokens) == (0.0, 3, 50)
    assert params.structured_outputs.json == SCHEMA


async def test_half_a_character_in_a_prompt_is_no_failure() -> None:
    reply = await ask(Engine(), "one \ud800 two")
    assert (reply.text, reply.usage.prompt_tokens) == ("ok", 3)


async def test_the_reply_gets_the_room_that_the_prompt_leaves() -> None:
    engine = Engine()
    await ask(engine, "word " * 54)
    assert engine.params[0].max_tokens == 10


async def test_a_prompt_over_the_context_is_a_failure_without_a_call() -> None:
    engine = Engine()
    reply = await ask(engine, "word " * 64)
    assert reply.failure == "unavailable"
    assert "got a prompt of 64 tokens" in reply.detail
    assert engine.params == []


async def test_a_late_reply_is_a_timeout() -> None:
    reply = await ask(Engine(delay_s=5.0))
    assert (reply.failure, reply.text) == ("timeout", "")


async def test_an_engine_error_is_unavailable() -> None:
    engine = Engine()
    engine.error = RuntimeError("engine died")
    reply = await ask(engine)
    assert reply.failure == "unavailable"
    assert "engine died" in reply.detail


async def test_a_reply_cut_before_its_first_word_is_truncated() -> None:
    assert (await ask(Engine(text="  ", finish_reason="length"))).failure == "truncated"
    cut = await ask(Engine(text='{"c1": ', finish_reason="length"))
    assert (cut.failure, cut.finish_reason) == (None, "length")


async def test_a_schema_that_the_engine_refuses_is_left_out_once() -> None:
    engine = Engine()
    engine.refuses_schemas = True
    reply = await ask(engine, schema=SCHEMA)
    assert (reply.text, reply.failure) == ("ok", None)
    assert [p.structured_outputs is None for p in engine.params] == [False, True]
    engine.error = ValueError("anything else")
    assert (await ask(engine, schema=SCHEMA)).failure == "unavailable"
    assert len(engine.params) == 4


async def test_the_engine_gets_as_many_calls_as_it_has_places_and_waiting_uses_up_no_time() -> None:
    engine = Engine(delay_s=0.15)
    config = CONFIG.model_copy(update={"max_ongoing_requests": 2})
    backend = VllmBackend(config, engine, Tokenizer())
    request = CompletionRequest(prompt="one two")
    calls = [asyncio.create_task(backend.complete(request)) for _ in range(6)]
    await asyncio.sleep(0.05)
    assert len(engine.params) == 2
    # The last ones begin after more than timeout_s.
    assert [reply.failure for reply in await asyncio.gather(*calls)] == [None] * 6
