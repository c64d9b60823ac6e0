"""Judge and rubric writer on real Ray Serve: rules and a stub endpoint, kills, scaling, limits."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from core.config import RunConfig
from core.config_served import JudgeConfig
from core.query import Anchor
from core.records import JudgeReply, JudgeRequest, RescoreRequest
from core.rubric import Criterion, Rule
from core.writer_requests import ContrastRequest
from drivers import judge as judge_command
from drivers.served_clients import ServedJudge
from drivers.serving import (
    app_name,
    deployment_options,
    start_judge,
    start_serving,
    start_writer,
    stop_serving,
)
from serve.limits import NAMESPACE, limiter_name
from tests.stub_openai import Reply, StubOpenAI

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

SHORT = Criterion(id="short", text="Be brief.", rule=Rule(name="max_words", args={"n": 3}))
TONE = Criterion(id="tone", text="The tone is warm.")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    from ray import serve

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    serve.shutdown()
    ray.shutdown()


def run_config(name: str, judge: dict[str, Any], **fields: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": name,
            "data": {"train": "queries.jsonl"},
            "policy": {"model": "m"},
            "judge": judge,
            "evolution": {"method": "care"},
            "loop": {"steps": 1},
            **fields,
        }
    )


def endpoint(stub: StubOpenAI, **fields: Any) -> dict[str, Any]:
    return {
        "backend": "openai",
        "model": "judge-1",
        "base_url": stub.base_url,
        "timeout_s": 30.0,
        **fields,
    }


def verdict_reply(body: dict[str, Any], number: int) -> Reply:
    """Full score on every criterion asked for, after a moment."""
    ids = re.findall(r'\{"id": "(c\d+)"', body["messages"][0]["content"])
    text = json.dumps({i: {"reason": "warm words", "score": 1} for i in ids})
    return Reply(text=text, delay_s=0.3)


def request(index: int = 0) -> JudgeRequest:
    return JudgeRequest(
        query_id=f"q{index}", prompt="Greet me.", response="Hello dear", criteria=(SHORT, TONE)
    )


def replicas(run: str) -> set[str]:
    """Names of the run's judge replicas that are alive."""
    mine = f"{app_name(run, 'judge')}#Judge#"
    named = ray.util.list_named_actors(all_namespaces=True)
    return {actor["name"] for actor in named if mine in actor["name"]}


def process_id(replica: str) -> int:
    actor = ray.get_actor(replica, namespace="serve")
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=30)


async def until_runs(name: str) -> None:
    from ray import serve

    async with asyncio.timeout(90):
        while True:
            app = (await asyncio.to_thread(serve.status)).applications.get(name)
            if app is not None and app.status.value == "RUNNING":
                return
            await asyncio.sleep(0.05)


async def test_rules_are_served_and_a_second_start_adopts_them() -> None:
    config = run_config("rules", {"backend": "rules"})
    judge = await start_judge(config)
    writer = await start_writer(config)
    before = replicas("rules")

    reply = await judge.grade(request())
    assert [(v.score, v.failure) for v in reply.verdicts] == [(1, None), (None, "undecidable")]
    assert reply.judge == judge.identity
    joint = await judge.rescore(
        RescoreRequest(query_id="q", prompt="p", responses=("a", "a b c d"), criteria=(SHORT,))
    )
    assert [row[0].score for row in joint.verdicts] == [1, 0]
    edit = await writer.write(
        ContrastRequest(
            query_id="q",
            prompt="Greet me.",
            satisfied=(SHORT,),
            unsatisfied=(),
            response="Hello hello hello",
            anchor=Anchor(response="Good morning to you."),
        )
    )
    assert "<FINAL_SET>" in edit.text
    totals = judge.totals()
    assert (totals.calls, totals.verdicts, totals.failures) == (2, 4, {"undecidable": 1})
    assert judge.stats()["judge/calls"] == 2

    again = await start_judge(config)
    assert (await again.grade(request())).verdicts == reply.verdicts
    assert replicas("rules") == before

    changed = run_config("rules", {"backend": "rules", "max_ongoing_requests": 7})
    await start_judge(changed)
    assert replicas("rules") != before
    assert len(await stop_serving("rules")) == 2
    assert replicas("rules") == set()


async def test_a_reference_judge_has_a_deployment_of_its_own_and_a_static_run_no_writer() -> None:
    changes = {"reference_judge": {"backend": "rules"}, "evolution": {"method": "static"}}
    config = run_config("watched", {"backend": "rules"}, **changes)
    served = await start_serving(config)
    assert served.reference is not None
    reply = await served.reference.grade(request())
    assert [(v.score, v.failure) for v in reply.verdicts] == [(1, None), (None, "undecidable")]
    assert served.reference.stats()["reference_judge/calls"] == 1
    assert served.judge.stats()["judge/calls"] == 0
    assert served.writer.stats()["writer/calls"] == 0
    async with asyncio.timeout(30):  # the replicas are looked at in the background
        while "judge/num_replicas" not in served.judge.stats():
            await asyncio.sleep(0.1)
    assert served.judge.stats()["judge/num_replicas"] == 1
    names = set(await stop_serving("watched"))
    assert names == {app_name("watched", "judge"), app_name("watched", "reference_judge")}


async def test_the_limit_of_calls_holds_over_two_replicas() -> None:
    with StubOpenAI(verdict_reply) as stub:
        judge_config = endpoint(stub, num_replicas=2, max_concurrency=3)
        config = run_config("limits", judge_config)
        judge = await start_judge(config)
        other = await start_judge(config)  # a second driver of the same deployment
        assert len(replicas("limits")) == 2
        replies = await asyncio.gather(
            *((judge if i % 2 else other).grade(request(i)) for i in range(24))
        )
        assert [[v.score for v in r.verdicts] for r in replies] == [[1, 1]] * 24
        assert stub.num_ok == 24
        assert stub.most_in_flight == 3
        assert judge.totals().usage.prompt_tokens == 12 * 100

        # The limiter may die too; calls go on with another.
        ray.kill(ray.get_actor(limiter_name(config.judge), namespace=NAMESPACE))
        assert [v.score for v in (await judge.grade(request())).verdicts] == [1, 1]
        await stop_serving("limits")
    with pytest.raises(ValueError, match="Failed to look up actor"):
        ray.get_actor(limiter_name(config.judge), namespace=NAMESPACE)


async def test_the_limit_and_a_pause_hold_over_two_drivers_and_their_runs() -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        if number == 12:
            return Reply(status=429, headers={"Retry-After": "2"})
        return verdict_reply(body, number)

    with StubOpenAI(answer) as stub:
        fields = endpoint(stub, max_concurrency=3, timeout_s=60.0)
        here, there = run_config("here", fields), run_config("there", fields)
        judge = await start_judge(here)
        address = ray.get_runtime_context().gcs_address
        command = ["-m", "tests.ray.second_driver", address, there.model_dump_json(), "16"]
        other = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=subprocess.PIPE, cwd=ROOT
        )
        await until_runs(app_name("there", "judge"))
        replies = await asyncio.gather(*(judge.grade(request(i)) for i in range(24)))
        out, _ = await asyncio.wait_for(other.communicate(), 120)
        assert json.loads(out) == [1.0] * 16
        assert [[v.score for v in r.verdicts] for r in replies] == [[1, 1]] * 24
        # Both drivers were at the endpoint at the same time, and never more than three calls.
        bodies = ["Hello dear" in s.body["messages"][0]["content"] for s in stub.seen]
        assert stub.num_ok == 40
        assert bodies.index(False) < len(bodies) - 1 - bodies[::-1].index(True)
        assert stub.most_in_flight == 3
        throttled = next(s.at for s in stub.seen if s.status == 429)
        # Leases granted before the limiter knew of the pause may still be used.
        after = [s.at - throttled for s in stub.seen if s.at > throttled + 0.3]
        assert min(after) >= 1.9
        await stop_serving("here")


async def test_a_pause_that_one_replica_is_told_holds_for_all() -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        if number == 0:
            return Reply(status=429, headers={"Retry-After": "3"})
        return verdict_reply(body, number)

    with StubOpenAI(answer) as stub:
        judge = await start_judge(run_config("pause", endpoint(stub, num_replicas=2)))
        first = asyncio.create_task(judge.grade(request()))
        while not stub.seen:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        replies = await asyncio.gather(first, *(judge.grade(request(i)) for i in range(8)))
        assert all(v.score == 1 for r in replies for v in r.verdicts)
        assert all(s.at - stub.seen[0].at >= 2.9 for s in stub.seen[1:])
        await stop_serving("pause")


async def test_every_request_is_answered_when_a_replica_is_killed() -> None:
    with StubOpenAI(verdict_reply) as stub:
        judge = await start_judge(run_config("kill", endpoint(stub, num_replicas=2)))
        victim = process_id(sorted(replicas("kill"))[0])
        tasks = [asyncio.create_task(judge.grade(request(i))) for i in range(40)]
        while stub.num_ok < 10:
            await asyncio.sleep(0.02)
        os.kill(victim, signal.SIGKILL)
        replies = await asyncio.gather(*tasks)
        assert [v.failure for r in replies for v in r.verdicts if v.failure] == []
        assert judge.totals().retries >= 1
        await stop_serving("kill")


async def test_scaling_keeps_running_replicas_and_loses_no_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StubOpenAI(verdict_reply) as stub:
        judge = await start_judge(run_config("scale", endpoint(stub)))
        (first,) = replicas("scale")
        stop = asyncio.Event()
        failures: list[str] = []
        count = 0

        async def ask() -> None:
            nonlocal count
            while not stop.is_set():
                reply = await judge.grade(request())
                failures.extend(v.failure for v in reply.verdicts if v.failure)
                count += 1

        tasks = [asyncio.create_task(ask()) for _ in range(4)]
        assert await asyncio.to_thread(judge_command.main, ["scale", "scale", "2"]) == 0
        assert len(replicas("scale")) == 2
        assert first in replicas("scale")
        capsys.readouterr()
        assert await asyncio.to_thread(judge_command.main, ["status", "--json"]) == 0
        printed = capsys.readouterr().out
        (row,) = json.loads(printed[printed.index("[") : printed.rindex("]") + 1])
        assert (row["application"], row["replicas"]) == ("ratchet-scale-judge", {"RUNNING": 2})
        assert await asyncio.to_thread(judge_command.main, ["scale", "absent", "2"]) == 2
        assert "ratchet-scale-judge" in capsys.readouterr().err
        assert await asyncio.to_thread(judge_command.main, ["scale", "scale", "1"]) == 0
        stop.set()
        await asyncio.gather(*tasks)
        assert len(replicas("scale")) == 1
        assert failures == []
        assert count > 10
        await stop_serving("scale")


async def test_a_judge_that_answers_too_late_is_a_timeout_not_an_exception() -> None:
    with StubOpenAI(lambda body, number: Reply(text="late", delay_s=60)) as stub:
        judge = await start_judge(run_config("late", endpoint(stub, timeout_s=1.0)))
        reply = await judge.grade(request())
        assert [(v.score, v.failure) for v in reply.verdicts] == [(1, None), (None, "timeout")]
        await stop_serving("late")


async def test_a_deployment_that_cannot_start_says_who_waited_for_what() -> None:
    config = run_config("big", {"backend": "rules", "num_cpus": 64, "start_timeout_s": 5.0})
    with pytest.raises(TimeoutError, match="the driver waited 5 s for ratchet-big-judge to run"):
        await start_judge(config)
    await stop_serving("big")


def named_replicas(config: JudgeConfig) -> ServedJudge:
    """Start replicas that say who they are, with the options of the product's judge."""
    from ray import serve

    class Named:
        async def grade(self, request: JudgeRequest) -> JudgeReply:
            await asyncio.sleep(float(request.prompt))
            return JudgeReply(verdicts=(), judge=str(os.getpid()))

    deployment: Any = serve.deployment(Named)
    app = deployment.options(**deployment_options("judge", config)).bind()
    return ServedJudge(serve.run(app, name="named", route_prefix=None), config, "named")


async def who_answers(judge: ServedJudge, query: int, seconds: float = 0.0) -> str:
    request = JudgeRequest(query_id=f"q{query}", prompt=f"{seconds}", response="r", criteria=())
    return (await judge.grade(request)).judge


async def test_calls_of_a_query_stay_together_until_their_replica_is_full_or_lost() -> None:
    from ray import serve

    config = JudgeConfig(backend="vllm", model="m", num_replicas=2, max_ongoing_requests=8)
    judge = await asyncio.to_thread(named_replicas, config)
    await who_answers(judge, 0)
    await asyncio.sleep(0.5)  # the router hears from both replicas
    homes = {query: await who_answers(judge, query) for query in range(16)}
    assert len(set(homes.values())) == 2
    for query, home in homes.items():
        assert {await who_answers(judge, query) for _ in range(3)} == {home}

    # Its replica is full: the others of the query's calls do not wait for it.
    crowd = [asyncio.create_task(who_answers(judge, 0, seconds=1.0)) for _ in range(16)]
    assert len(set(await asyncio.gather(*crowd))) == 2

    os.kill(int(homes[0]), signal.SIGKILL)
    answered = await asyncio.gather(*(who_answers(judge, query) for query in range(16)))
    assert homes[0] not in answered
    assert all(answered)
    assert judge.totals().failures == {}
    await asyncio.to_thread(serve.delete, "named")
