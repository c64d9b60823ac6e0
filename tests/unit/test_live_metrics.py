"""Live figures: set again on a timer, one gauge a figure, and never the end of a run."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from drivers.live_metrics import LiveMetrics, live_metrics


class Gauges:
    """Stands for Ray's gauges."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}
        self.tags: list[dict[str, str] | None] = []
        self.descriptions: dict[str, str] = {}

    def __call__(self, name: str, description: str) -> "OneGauge":
        assert name not in self.descriptions, "a gauge is made once"
        self.descriptions[name] = description
        return OneGauge(self, name)


class OneGauge:
    def __init__(self, gauges: Gauges, name: str) -> None:
        self._gauges, self._name = gauges, name

    def set(self, value: float, tags: dict[str, str] | None = None) -> None:
        self._gauges.values.setdefault(self._name, []).append(value)
        self._gauges.tags.append(tags)


async def test_gauges_are_set_again_while_nothing_changes_and_follow_what_does() -> None:
    gauges = Gauges()
    reward = 0.25

    def figures() -> Mapping[str, float]:
        return {"critic/rewards/mean": reward, "gold/mean": float("nan")}

    sources = [figures, lambda: {"queue/drawn": 2.0}]
    async with live_metrics(LiveMetrics("mine", gauges), sources, 0.01):
        await asyncio.sleep(0.05)
        reward = 0.5
        await asyncio.sleep(0.05)
    shown = gauges.values["ratchet_critic_rewards_mean"]
    assert shown.count(0.25) >= 2
    assert shown[-1] == 0.5
    assert gauges.values["ratchet_queue_drawn"][0] == 2
    assert "ratchet_gold_mean" not in gauges.values
    assert gauges.descriptions["ratchet_critic_rewards_mean"].startswith("reward")
    assert {"run": "mine"} in gauges.tags
    ended = len(shown)
    await asyncio.sleep(0.03)
    assert len(shown) == ended


async def test_figures_that_fail_are_told_once_and_the_block_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> Mapping[str, float]:
        raise ZeroDivisionError

    with caplog.at_level(logging.WARNING):
        async with live_metrics(LiveMetrics("mine", Gauges()), [broken], 0.01):
            await asyncio.sleep(0.05)
    assert caplog.text.count("live figures are left out") == 1
