"""The OpenAI-compatible backend against a stub endpoint on loopback, without Ray."""

import asyncio
import json
import time
from typing import Any

import pytest
from pydantic import SecretStr

from core.config_served import ServedModelConfig
from core.records import Completion
from serve.backends.base import CompletionRequest
from serve.backends.openai import OpenAIBackend
from serve.backends.retry_after import retry_after_s
from serve.limits import CallLimiter, CallSlots
from tests.stub_openai import Answer, Reply, StubOpenAI

KEY = "sk-very-secret"
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def config_for(stub: StubOpenAI, **fields: Any) -> ServedModelConfig:
    return ServedModelConfig.model_validate(
        {"backend": "openai", "model": "judge-1", "base_url": stub.base_url, "timeout_s": 20.0}
        | fields
    )


def backend_for(
    stub: StubOpenAI, limiter: CallLimiter | None = None, **fields: Any
) -> OpenAIBackend:
    config = config_for(stub, **fields)
    slots = CallSlots(limiter or CallLimiter("stub"), "judge", config.max_concurrency)
    return OpenAIBackend(config, SecretStr(KEY), slots)


async def ask(
    answer: Answer, schema: dict[str, Any] | None = None, **fields: Any
) -> tuple[Completion, StubOpenAI]:
    with StubOpenAI(answer) as stub:
        backend = backend_for(stub, **fields)
        reply = await backend.complete(CompletionRequest(prompt="grade this", schema=schema))
        await backend.close()
    return reply, stub


async def test_sampling_settings_are_always_sent_and_the_cost_is_counted() -> None:
    reply, stub = await ask(
        lambda body, number: Reply(text="fine"),
        SCHEMA,
        temperature=0.0,
        seed=7,
        max_tokens=321,
        usd_per_million_prompt_tokens=2.0,
        usd_per_million_completion_tokens=10.0,
    )
    assert (reply.text, reply.finish_reason, reply.failure) == ("fine", "stop", None)
    body = stub.seen[0].body
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.0, 7, 321)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (reply.usage.calls, reply.usage.retries) == (1, 0)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 10)
    assert reply.usage.cost_usd == pytest.approx(100 * 2e-6 + 10 * 10e-6)


async def test_a_429_is_tried_again_after_its_retry_after() -> None:
    reply, stub = await ask(
        lambda body, number: (
            Reply(text="ok") if number else Reply(status=429, headers={"Retry-After": "2"})
        )
    )
    assert reply.text == "ok"
    assert (reply.usage.calls, reply.usage.retries) == (2, 1)
    assert stub.seen[1].at - stub.seen[0].at >= 2.0


async def test_a_pause_holds_for_every_backend_of_the_endpoint() -> None:
    limiter = CallLimiter("stub")
    answers = [Reply(status=429, headers={"Retry-After": "2"}), Reply(text="a"), Reply(text="b")]
    with StubOpenAI(lambda body, number: answers[number]) as stub:
        first, second = backend_for(stub, limiter), backend_for(stub, limiter)
        one = asyncio.create_task(first.complete(CompletionRequest(prompt="1")))
        while not stub.seen:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        two = await second.complete(CompletionRequest(prompt="2"))
        assert two.failure is None
        assert (await one).failure is None
        assert all(s.at - stub.seen[0].at >= 1.99 for s in stub.seen[1:])
        await first.close()
        await second.close()


async def finished_clients(per_second: int, retry_after: Any) -> None:
    with StubOpenAI(per_second=per_second, retry_after=retry_after) as stub:
        limiter = CallLimiter("stub")  # four replicas share it
        backends = [backend_for(stub, limiter, timeout_s=50.0) for _ in range(4)]
        replies = await asyncio.gather(
            *(backends[i % 4].complete(CompletionRequest(prompt=f"client {i}")) for i in range(32))
        )
        for backend in backends:
            await backend.close()
    assert [r.detail for r in replies if r.failure] == []
    assert stub.num_ok == 32
    # The load stays near what the endpoint takes: retries do not multiply it.
    assert len(stub.seen) <= 32 * 3
    assert sum(r.usage.calls for r in replies) == len(stub.seen)


@pytest.mark.timeout(60)
async def test_all_of_32_clients_finish_against_a_rate_limit() -> None:
    """Four endpoints side by side, since what it takes is mostly waiting."""
    limits = ((4, "seconds"), (5, "date"), (20, "seconds"), (8, "none"))
    async with asyncio.TaskGroup() as group:
        for per_second, retry_after in limits:
            group.create_task(finished_clients(per_second, retry_after))


async def test_calls_in_flight_never_exceed_the_limit_over_replicas() -> None:
    with StubOpenAI(lambda body, number: Reply(text="ok", delay_s=0.05)) as stub:
        limiter = CallLimiter("stub")
        backends = [backend_for(stub, limiter, max_concurrency=3) for _ in range(2)]
        await asyncio.gather(
            *(backends[i % 2].complete(CompletionRequest(prompt="x")) for i in range(20))
        )
        for backend in backends:
            await backend.close()
    assert stub.num_ok == 20
    assert stub.most_in_flight == 3


@pytest.mark.parametrize("status", [500, 503, 408])
async def test_server_errors_are_tried_max_attempts_times(status: int) -> None:
    reply, stub = await ask(lambda body, number: Reply(status=status), max_attempts=3)
    assert reply.failure == "unavailable"
    assert str(status) in reply.detail
    assert len(stub.seen) == 3
    assert (reply.usage.calls, reply.usage.retries) == (3, 2)


async def test_a_closed_connection_and_odd_bodies_are_tried_again() -> None:
    answers = [
        Reply(hang_up=True),
        Reply(raw=b"<html>gateway</html>"),
        Reply(raw=b'{"error": {"message": "overloaded"}}'),
        Reply(raw=b"[" * 100_000),
        Reply(status=500, raw=b"[" * 100_000),
        Reply(text="ok"),
    ]
    reply, stub = await ask(lambda body, number: answers[number], max_attempts=6)
    assert reply.text == "ok"
    assert len(stub.seen) == 6


@pytest.mark.parametrize("usage", ["x", [1], {"prompt_tokens": "9"}, {"prompt_tokens": -5}, None])
@pytest.mark.parametrize("model", [5, None, "judge-1"])
async def test_a_reply_counts_though_its_usage_or_model_is_odd(usage: Any, model: Any) -> None:
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
    body = {"id": "1", "model": model, "choices": [choice], "usage": usage}
    reply, _ = await ask(lambda _body, number: Reply(raw=json.dumps(body).encode()))
    assert (reply.text, reply.failure, reply.model) == ("ok", None, "judge-1")
    assert (reply.usage.prompt_tokens, reply.usage.cost_usd) == (0, 0.0)


@pytest.mark.parametrize("status", [401, 403, 404, 409])
async def test_other_client_errors_are_not_tried_again(status: int) -> None:
    reply, stub = await ask(lambda body, number: Reply(status=status))
    assert reply.failure == "unavailable"
    assert f"HTTP {status}" in reply.detail
    assert len(stub.seen) == 1


async def test_a_used_up_quota_is_final() -> None:
    error = {"message": "You exceeded your quota", "code": "insufficient_quota"}
    reply, stub = await ask(lambda body, number: Reply(status=429, error=error))
    assert (reply.failure, len(stub.seen)) == ("unavailable", 1)


@pytest.mark.timeout(60)
async def test_an_endpoint_that_only_ever_throttles_ends_the_call() -> None:
    headers = {"retry-after-ms": "10"}
    reply, stub = await ask(lambda body, number: Reply(status=429, headers=headers), max_attempts=1)
    assert reply.failure == "unavailable"
    assert len(stub.seen) == 5


@pytest.mark.parametrize(
    "filtered",
    [
        Reply(text=None, finish_reason="content_filter"),
        Reply(status=400, error={"message": "no", "code": "content_filter"}),
        Reply(
            status=400,
            error={"message": "no", "innererror": {"code": "ResponsibleAIPolicyViolation"}},
        ),
    ],
)
async def test_a_content_filter_is_final(filtered: Reply) -> None:
    reply, stub = await ask(lambda body, number: filtered, SCHEMA)
    assert (reply.failure, reply.text) == ("filtered", "")
    assert len(stub.seen) == 1


async def test_a_refusal_is_final_and_an_empty_cut_reply_is_truncated() -> None:
    refused, stub = await ask(lambda body, number: Reply(text=None, refusal="I cannot grade it."))
    assert (refused.failure, len(stub.seen)) == ("refused", 1)
    cut, stub = await ask(lambda body, number: Reply(text="", finish_reason="length"))
    assert (cut.failure, len(stub.seen)) == ("truncated", 1)


async def test_a_hanging_endpoint_ends_in_a_timeout_that_says_who_waited() -> None:
    started = time.monotonic()
    reply, _ = await ask(lambda body, number: Reply(text="late", delay_s=30), timeout_s=0.5)
    assert reply.failure == "timeout"
    assert "judge-1" in reply.detail
    assert time.monotonic() - started < 5


async def test_a_retry_after_beyond_the_deadline_gives_up_at_once() -> None:
    started = time.monotonic()
    reply, stub = await ask(
        lambda body, number: Reply(status=429, headers={"Retry-After": "3600"}), timeout_s=5.0
    )
    assert reply.failure == "unavailable"
    assert len(stub.seen) == 1
    assert time.monotonic() - started < 2


async def test_a_refused_response_format_is_left_out_from_then_on() -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        if "response_format" in body:
            return Reply(status=400, error={"message": "unknown field"})
        return Reply(text="ok")

    with StubOpenAI(answer) as stub:
        backend = backend_for(stub)
        replies = [
            await backend.complete(CompletionRequest(prompt="x", schema=SCHEMA)) for _ in range(2)
        ]
        await backend.close()
    assert [r.text for r in replies] == ["ok", "ok"]
    assert ["response_format" in s.body for s in stub.seen] == [True, False, False]


async def test_a_400_for_another_reason_is_asked_once_without_schema_and_not_remembered() -> None:
    with StubOpenAI(lambda body, number: Reply(status=400, error={"message": "too long"})) as stub:
        backend = backend_for(stub)
        replies = [
            await backend.complete(CompletionRequest(prompt="x", schema=SCHEMA)) for _ in range(2)
        ]
        await backend.close()
    assert [r.failure for r in replies] == ["unavailable"] * 2
    assert ["response_format" in s.body for s in stub.seen] == [True, False, True, False]


async def test_a_model_that_knows_only_max_completion_tokens_gets_that() -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        if "max_tokens" in body:
            error = {"message": "use max_completion_tokens", "param": "max_tokens"}
            return Reply(status=400, error=error)
        return Reply(text="ok")

    reply, stub = await ask(answer, max_tokens=55)
    assert reply.text == "ok"
    assert stub.seen[1].body["max_completion_tokens"] == 55


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "inf"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 50.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:05 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(headers, now=10.0) == pytest.approx(seconds)
