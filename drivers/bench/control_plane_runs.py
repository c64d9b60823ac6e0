"""Runs of the real loop over engines that take no time, and what is noted beside them.

A run has one arm of the overlap benchmark with all times 0. Beside it a sampler asks for a timer
every 10 ms and notes how late it fires; CPU seconds are read from the system, by process, around
the whole run (its start and warm-up too).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from core.records import EditEvent, ScoredGroup
from drivers.bench.overlap_arms import (
    Arm,
    Method,
    Size,
    arm_config,
    make_workload,
    queries_of,
    run_arm,
)
from drivers.bench.timed_in_process import start_in_process
from drivers.bench.workload import Places, Times
from drivers.loop import Position, TrainLoop
from drivers.progress import Progress

EVOLVING: tuple[Method, ...] = ("ratchet", "rare", "care")

_TIMER_S = 0.01

log = logging.getLogger("ratchet")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One run on Ray."""

    rollouts_per_s: float
    group_ms: float
    """Wall time of a step by its groups."""
    lag_ms: Mapping[str, float]
    """How late the event loop's timers fired: p50, p99, max."""
    cpu_ms_per_rollout: Mapping[str, float]
    """By process, the warm-up's rollouts counted too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    """Evolution calls a group, the mean over the steps."""

    writer: float
    rescoring: float


class TimerLag:
    """Samples how late timers fire while it is entered."""

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "TimerLag":
        self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TIMER_S
            await asyncio.sleep(_TIMER_S)
            self.late_s.append(loop.time() - due)

    def summary_ms(self) -> dict[str, float]:
        """Return p50, p99 and the maximum; none when nothing was sampled."""
        if not self.late_s:
            return {}
        ordered = sorted(self.late_s)
        places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return {
            name: round(ordered[round((len(ordered) - 1) * frac)] * 1e3, 2)
            for name, frac in places.items()
        }


async def run_cluster(sizes: Mapping[str, Size], seed: int, folder: Path) -> dict[str, Measured]:
    """Run the static arm on one cluster at each size."""
    from drivers.bench.timed_cluster import TimedCluster

    cluster = TimedCluster("control", folder)
    arm = Arm(method="static", age=0)
    measured: dict[str, Measured] = {}
    try:
        for name, size in sizes.items():
            workload = make_workload(size, seed, Times(), Places())
            config = arm_config(arm, size, workload)
            if not measured:
                await cluster.start(config, workload)
            measured[name] = await _measured(cluster, arm, size, seed)
            log.info("control plane, %s: %.0f rollouts/s", name, measured[name].rollouts_per_s)
    finally:
        cluster.close()
    return measured


async def _measured(cluster: Any, arm: Arm, size: Size, seed: int) -> Measured:
    workload = make_workload(size, seed, Times(), Places())
    config, queries = arm_config(arm, size, workload), queries_of(size)
    parts = await cluster.parts(config, workload, {q.id: q.rubric for q in queries.values()})
    before = cpu_s_by_process()
    async with TimerLag() as lag:
        ran = await run_arm(arm, size, config, queries, parts)
    after = cpu_s_by_process()
    groups = size.groups_per_step * size.last_step
    return Measured(
        rollouts_per_s=size.groups_per_step * size.group_size / ran.step_s,
        group_ms=ran.step_s / size.groups_per_step * 1e3,
        lag_ms=lag.summary_ms(),
        cpu_ms_per_rollout=_spent_ms(before, after, groups * size.group_size),
    )


def cpu_s_by_process() -> dict[str, float]:
    """Return the CPU seconds of this process (``driver``) and of all below it, by kind."""
    own = psutil.Process()
    found = {"driver": sum(own.cpu_times()[:2])}
    for process in own.children(recursive=True):
        try:
            kind = process_kind(process.cmdline())
            found[kind] = found.get(kind, 0.0) + sum(process.cpu_times()[:2])
        except psutil.Error:
            continue  # it has just ended
    return found


def process_kind(command: Sequence[str]) -> str:
    """Return what a process of Ray is: an actor's class, a deployment, or a part of Ray."""
    first = command[0] if command else ""
    if first.startswith("ray::"):
        actor = first.removeprefix("ray::").split(".")[0].split(" ")[0].split("(")[0]
        parts = actor.split(":")
        return parts[1] if actor.startswith("ServeReplica") and len(parts) > 1 else actor
    name = first.rsplit("/", 1)[-1]
    return name if name in ("raylet", "gcs_server") else "ray, other"


def _spent_ms(
    before: Mapping[str, float], after: Mapping[str, float], count: int
) -> dict[str, float]:
    spent = {kind: (s - before.get(kind, 0.0)) / count * 1e3 for kind, s in after.items()}
    shown = {kind: round(ms, 3) for kind, ms in spent.items() if ms >= 0.005}
    return dict(sorted(shown.items(), key=lambda item: -item[1]))


# ------------------------------------------------------------------ evolution calls
def evolution_calls(size: Size, seed: int) -> dict[str, Calls]:
    """Return the calls a group of each method that evolves, counted from the run's metrics."""
    return {method: asyncio.run(_calls(method, size, seed)) for method in EVOLVING}


async def _calls(method: Method, size: Size, seed: int) -> Calls:
    workload = make_workload(size, seed, Times(), Places())
    arm = Arm(method=method, age=0)
    config, queries = arm_config(arm, size, workload), queries_of(size)
    config = config.model_copy(
        update={"loop": config.loop.model_copy(update={"steps": size.last_step})}
    )
    engines = await start_in_process(config, workload, {q.id: q.rubric for q in queries.values()})
    metrics = _Metrics()
    loop = TrainLoop(config, queries, engines.parts, metrics, metrics, None, _Silent())
    await loop.run(Position())
    groups = size.groups_per_step * size.last_step

    def a_group(name: str) -> float:
        return round(sum(m[f"evolving_rubrics/{name}"] for m in metrics.steps) / groups, 3)

    return Calls(writer=a_group("writer_calls"), rescoring=a_group("rescored_calls"))


class _Metrics:
    """A recorder of metrics alone, and a checkpointer that keeps nothing."""

    def __init__(self) -> None:
        self.steps: list[Mapping[str, float]] = []

    def edit(self, event: EditEvent) -> None:
        """Edits are not looked at."""

    def evaluation(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """There is none."""

    def step(self, step: int, groups: Sequence[ScoredGroup], metrics: Mapping[str, float]) -> None:
        """Keep the metrics."""
        self.steps.append(metrics)

    async def save(self, position: Position) -> None:
        """Keep nothing."""


class _Silent(Progress):
    """Shows nothing."""

    def __init__(self) -> None:
        """There is no bar."""

    def step(self, step: int, metrics: Mapping[str, float], queues: Mapping[str, int]) -> None:
        """See ``Progress``."""

    def close(self) -> None:
        """See ``Progress``."""
