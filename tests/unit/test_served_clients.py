"""Clients of judge and writer over scripted handles: what is sent again, what is a failure."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from core.config_served import JudgeConfig, WriterConfig
from core.records import Completion, JudgeReply, JudgeRequest, RescoreRequest, Usage, Verdict
from core.rubric import Criterion
from core.writer_requests import ContrastRequest
from drivers import served_clients
from drivers.served_clients import ServedJudge, ServedWriter, Watch, in_flight_limit

C1 = Criterion(id="c1", text="It is warm.", max=2)
REQUEST = JudgeRequest(query_id="q7", prompt="p", response="r", criteria=(C1,))
REPLY = JudgeReply(
    verdicts=(Verdict(criterion_id="c1", score=2, max=2),),
    judge="j",
    usage=Usage(calls=1, retries=2, prompt_tokens=10, completion_tokens=3, cost_usd=0.5),
)


class ScriptedHandle:
    """A handle whose methods do the given things in order; the last one is repeated."""

    def __init__(self, *outcomes: object, delay_s: float = 0.0) -> None:
        self.outcomes = list(outcomes)
        self.delay_s = delay_s
        self.calls: list[str] = []
        self.cancelled = 0
        self.in_flight = self.most_in_flight = 0

    def __getattr__(self, method: str) -> Any:
        handle = self

        class Method:
            @staticmethod
            def remote(request: object) -> "Response":
                handle.calls.append(method)
                return Response(handle)

        return Method


class Response:
    """Awaitable like Serve's."""

    def __init__(self, handle: ScriptedHandle) -> None:
        self.handle = handle

    def cancel(self) -> None:
        self.handle.cancelled += 1

    def __await__(self) -> Any:
        return self._outcome().__await__()

    async def _outcome(self) -> object:
        handle = self.handle
        handle.in_flight += 1
        handle.most_in_flight = max(handle.most_in_flight, handle.in_flight)
        try:
            await asyncio.sleep(handle.delay_s)
        finally:
            handle.in_flight -= 1
        outcome = handle.outcomes.pop(0) if len(handle.outcomes) > 1 else handle.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_clients, "_FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(served_clients, "_MARGIN_S", 0.0)


def judge_over(handle: ScriptedHandle, **fields: Any) -> ServedJudge:
    config = JudgeConfig.model_validate({"timeout_s": 0.2, "start_timeout_s": 0.3} | fields)
    return ServedJudge(handle, config, "j")


def pushed_back() -> Exception:
    return BackPressureError(num_queued_requests=5, max_queued_requests=5)


@pytest.mark.parametrize("lost", [RayActorError, pushed_back])
async def test_a_lost_request_is_sent_again(lost: Callable[[], Exception]) -> None:
    handle = ScriptedHandle(lost(), lost(), REPLY)
    judge = judge_over(handle)
    assert await judge.grade(REQUEST) == REPLY
    assert handle.calls == ["grade"] * 3
    assert judge.totals().retries == 2
    assert judge.stats()["judge/retries"] == 4  # with the two of the endpoint


async def test_a_replica_that_stays_away_is_unavailable_and_names_the_query() -> None:
    judge = judge_over(ScriptedHandle(RayActorError()))
    (verdict,) = (await judge.grade(REQUEST)).verdicts
    assert (verdict.score, verdict.failure, verdict.max) == (None, "unavailable", 2)
    assert "'q7'" in verdict.reason
    assert "the judge failed" in verdict.reason


async def test_no_answer_in_time_is_a_timeout_that_names_who_waited() -> None:
    handle = ScriptedHandle(REPLY, delay_s=30.0)
    judge = judge_over(handle, timeout_s=0.05)
    (verdict,) = (await judge.grade(REQUEST)).verdicts
    assert (verdict.score, verdict.failure) == (None, "timeout")
    assert "the driver's grade of query 'q7': waited" in verdict.reason
    assert handle.cancelled == 1


async def test_an_error_in_the_replica_is_a_failure_not_an_exception() -> None:
    judge = judge_over(ScriptedHandle(KeyError("bug")))
    rows = (
        await judge.rescore(
            RescoreRequest(query_id="q", prompt="p", responses=("a", "b"), criteria=(C1,))
        )
    ).verdicts
    assert [[v.failure for v in row] for row in rows] == [["unavailable"], ["unavailable"]]
    assert judge.totals().failures == {"unavailable": 2}


async def test_no_more_requests_are_out_than_the_deployment_works_on() -> None:
    handle = ScriptedHandle(REPLY, delay_s=0.02)
    judge = judge_over(handle, max_ongoing_requests=3, num_replicas=2, timeout_s=5.0)
    tasks = [asyncio.create_task(judge.grade(REQUEST)) for _ in range(20)]
    await asyncio.sleep(0.01)
    assert judge.stats()["judge/queue_depth"] == 20
    assert judge.totals().waiting == 14
    await asyncio.gather(*tasks)
    assert handle.most_in_flight == 6
    stats = judge.stats()
    assert (stats["judge/calls"], stats["judge/queue_depth"]) == (20, 0)
    assert stats["judge/cost_usd"] == pytest.approx(10.0)
    assert 0.02 <= stats["judge/latency_s/p50"] <= stats["judge/latency_s/p99"]


async def test_a_request_of_one_call_a_criterion_counts_as_so_many() -> None:
    handle = ScriptedHandle(REPLY, delay_s=0.02)
    judge = judge_over(handle, max_ongoing_requests=6, per_criterion=True, timeout_s=5.0)
    wide = dataclasses.replace(REQUEST, criteria=(C1,) * 3)
    await asyncio.gather(*(judge.grade(wide) for _ in range(6)))
    assert handle.most_in_flight == 2
    # Twelve calls over six at a time go in two rounds, each with its repair try.
    assert judge._limit_s(12) == 2 * judge._limit_s(6) == 2 * judge._limit_s(1) == 2 * 2 * 5.0


async def test_a_cancelled_caller_gives_its_place_back() -> None:
    handle = ScriptedHandle(REPLY, delay_s=5.0)
    judge = judge_over(handle, max_ongoing_requests=1, timeout_s=5.0)
    tasks = [asyncio.create_task(judge.grade(REQUEST)) for _ in range(3)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (judge.totals().in_flight, judge.totals().waiting) == (0, 0)
    assert handle.cancelled == 1  # the one that was sent
    handle.delay_s = 0.0
    assert await judge.grade(REQUEST) == REPLY


def test_an_endpoints_limit_bounds_what_is_out() -> None:
    config = JudgeConfig(backend="openai", model="m", max_concurrency=5, num_replicas=4)
    assert in_flight_limit(config) == 5
    assert in_flight_limit(JudgeConfig(max_ongoing_requests=8, num_replicas=4)) == 32


async def test_a_deployment_that_was_scaled_gets_as_many_calls_as_it_has_places_for() -> None:
    running: list[int | None] = [None]
    handle = ScriptedHandle(REPLY, delay_s=0.02)
    config = JudgeConfig(max_ongoing_requests=2, num_replicas=1)
    judge = ServedJudge(handle, config, "j", watch=Watch(num_replicas=lambda: running[0]))

    async def most_at_once(num_replicas: int | None) -> int:
        running[0], handle.most_in_flight = num_replicas, 0
        await asyncio.gather(*(judge.grade(REQUEST) for _ in range(20)))
        return handle.most_in_flight

    assert [await most_at_once(n) for n in (None, 3, 1)] == [2, 6, 2]


async def test_the_writer_hands_on_replies_and_failures() -> None:
    request = ContrastRequest(
        query_id="q", prompt="p", satisfied=(C1,), unsatisfied=(), response="r", anchor=None
    )
    config = WriterConfig(timeout_s=0.05, start_timeout_s=0.05)
    reply = Completion(text="x", finish_reason="stop", model="m")
    assert await ServedWriter(ScriptedHandle(reply), config, "w").write(request) is reply
    writer = ServedWriter(ScriptedHandle(reply, delay_s=30.0), config, "w")
    late = await writer.write(request)
    assert (late.text, late.failure) == ("", "timeout")
    assert "the rubric writer" in late.detail
    assert writer.totals().failures == {"timeout": 1}
    assert writer.stats()["writer/calls"] == 1
