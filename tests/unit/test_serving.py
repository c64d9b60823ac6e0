"""Waits for Ray Serve and for a cluster end, and say who waited for what. No Ray is started."""

import asyncio
import logging
import time
from typing import Any

import pytest

from core.config_served import ServedModelConfig
from core.errors import ConfigError
from core.writer_requests import MergeRequest
from drivers import ray_session, run_parts, serving
from drivers.plan import replica_bundles
from drivers.preflight import missing
from drivers.run_data import RunData
from serve.routing import QueryAffinityRouter
from tests.unit.loop_rig import make_config


async def test_a_serve_that_does_not_answer_is_not_waited_for_without_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_SERVE_TIMEOUT_S", 0.02)
    with pytest.raises(TimeoutError, match="waited 0 s for Ray Serve to tell its status"):
        await serving._in_thread("tell its status", lambda: time.sleep(0.2))


async def test_serving_that_cannot_be_ended_does_not_hide_how_the_run_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(name: str) -> None:
        raise TimeoutError("the driver waited 180 s")

    monkeypatch.setattr(run_parts, "stop_serving", broken)
    with caplog.at_level(logging.WARNING):
        await run_parts._end_serving("mine")
    assert "judge and writer of mine may still run" in caplog.text
    assert "the driver waited 180 s" in caplog.text


async def test_a_part_that_cannot_start_ends_the_start_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []

    async def endless(*_: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("judge")

    async def broken(*_: object) -> None:
        await asyncio.sleep(0)
        raise ConfigError("got no key")

    async def at_once(*_: object) -> None:
        return None

    monkeypatch.setattr(serving, "_in_thread", at_once)
    monkeypatch.setattr(serving, "start_judge", endless)
    monkeypatch.setattr(serving, "start_writer", broken)
    with pytest.raises(ConfigError, match="got no key"):
        await serving.start_serving(make_config())
    assert ended == ["judge"]


def test_an_address_without_a_cluster_is_a_persons_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise ConnectionError("could not connect\nmore lines")

    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setattr("ray.init", refused)
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS='auto' .*\(could not connect\)"):
        ray_session.start_ray()


@pytest.mark.parametrize(("method", "is_asked"), [("static", False), ("care", True)])
def test_a_method_that_writes_nothing_needs_no_writer_and_no_key_of_it(
    method: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = make_config(evolution={"method": method}, writer={"backend": "openai", "model": "m"})
    problems = missing(config, RunData(train=(), eval=(), fingerprint=""))
    assert any("writer.backend=openai without a key" in p for p in problems) == is_asked
    names = [bundle.name for bundle in replica_bundles(config)]
    assert ("RubricWriter replica 0" in names) == is_asked


async def test_a_writer_that_is_never_started_is_unavailable_not_a_crash() -> None:
    writer = await serving.start_writer(make_config(evolution={"method": "static"}))
    request = MergeRequest(query_id="q", prompt="p", existing=(), candidates=())
    assert (await writer.write(request)).failure == "unavailable"


@pytest.mark.parametrize(
    ("part", "backend", "is_kept_together"),
    [
        ("judge", "vllm", True),
        ("reference_judge", "vllm", True),
        ("judge", "openai", False),
        ("judge", "rules", False),
        ("writer", "vllm", False),
    ],
)
def test_queries_are_kept_together_where_the_judges_engine_is_in_its_replicas(
    part: serving.Part, backend: str, is_kept_together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_runtime_env", dict)
    fields = {"backend": backend, "model": "m", "max_ongoing_requests": 5, "num_replicas": 3}
    options = serving.deployment_options(part, ServedModelConfig.model_validate(fields))
    assert options["num_replicas"] == 3
    # Above the calls that clients let out, so that a replica seldom looks full to Serve.
    assert options["max_ongoing_requests"] > 5
    router = options.get("request_router_config")
    assert (router is not None) == is_kept_together
    if router is not None:
        assert router.get_request_router_class() is QueryAffinityRouter
        assert router.request_router_kwargs == {"places": 5}


async def test_two_applications_are_never_handed_to_serve_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray import serve

    inside, most = 0, 0

    def slow(result: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.02)
        inside -= 1
        return result

    monkeypatch.setattr(serve, "RunTarget", lambda **fields: fields["name"])
    monkeypatch.setattr(serve, "run_many", lambda targets, **_: slow(targets))
    names = [f"part {i}" for i in range(4)]
    handles = await asyncio.gather(
        *(asyncio.to_thread(serving._deploy, name, lambda: slow(None)) for name in names)
    )
    assert handles == names
    assert most == 1
