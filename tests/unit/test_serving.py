"""Waits for Ray Serve and for a cluster end, and say who waited for what. No Ray is started."""

import logging
import time

import pytest

from core.errors import ConfigError
from drivers import ray_session, run, serving


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

    monkeypatch.setattr(run, "stop_serving", broken)
    with caplog.at_level(logging.WARNING):
        await run._end_serving("mine")
    assert "judge and writer of mine may still run" in caplog.text
    assert "the driver waited 180 s" in caplog.text


def test_an_address_without_a_cluster_is_a_persons_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise ConnectionError("could not connect\nmore lines")

    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setattr("ray.init", refused)
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS='auto' .*\(could not connect\)"):
        ray_session.start_ray()
