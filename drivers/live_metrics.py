"""Live figures of a run for Ray's dashboard and Prometheus, through ``ray.util.metrics``.

A gauge vanishes some 20 seconds after it was last set, and a step can take longer, so all are set
again on a timer. ``judge/latency_s/p95`` goes out as ``ratchet_judge_latency_s_p95`` with the run's
name as tag (Ray puts ``ray_`` in front). They are a view, never the record: metrics.jsonl is. When
setting them fails, that is logged once and the run goes on without them.
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from core.metrics import METRICS

logger = logging.getLogger(__name__)

INTERVAL_S = 5.0

Source = Callable[[], Mapping[str, float]]
"""Returns figures as they are now, by name."""


class Gauge(Protocol):
    """What is asked of ``ray.util.metrics.Gauge``."""

    def set(self, value: float, tags: dict[str, str] = ...) -> None:
        """Show the value until the next one."""
        ...


MakeGauge = Callable[[str, str], Gauge]
"""(name, description) to a gauge with the tag ``run``."""


def ray_gauge(name: str, description: str) -> Gauge:
    """Return a gauge that Ray exports."""
    from ray.util.metrics import Gauge as RayGauge

    return RayGauge(name, description=description, tag_keys=("run",))


class LiveMetrics:
    """The gauges of one run."""

    def __init__(self, run: str, make_gauge: MakeGauge = ray_gauge) -> None:
        self._tags = {"run": run}
        self._make_gauge = make_gauge
        self._gauges: dict[str, Gauge] = {}

    def show(self, figures: Mapping[str, float]) -> None:
        """Set one gauge a figure; what is no number is left out."""
        for name, value in figures.items():
            if not math.isfinite(value):
                continue
            if name not in self._gauges:
                self._gauges[name] = self._make_gauge(gauge_name(name), METRICS.get(name, name))
            self._gauges[name].set(float(value), tags=self._tags)


def gauge_name(name: str) -> str:
    """Return a metric's name as Prometheus allows it."""
    return "ratchet_" + re.sub(r"[^A-Za-z0-9_]", "_", name)


@asynccontextmanager
async def live_metrics(
    live: LiveMetrics, sources: Sequence[Source], interval_s: float = INTERVAL_S
) -> AsyncIterator[None]:
    """Show the sources' figures on a timer for as long as the block runs."""
    showing = asyncio.create_task(_show_for_ever(live, sources, interval_s), name="live metrics")
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)


async def _show_for_ever(live: LiveMetrics, sources: Sequence[Source], interval_s: float) -> None:
    try:
        while True:
            for source in sources:
                live.show(source())
            await asyncio.sleep(interval_s)
    except Exception:
        logger.warning(
            "live figures are left out from here on; metrics.jsonl has everything", exc_info=True
        )
