"""One arm of the overlap benchmark: a method under a schedule, run for some steps on timed engines.

The loop is the product's own, or the same with barriers (``synchronous.py``). Two steps warm up;
the run is told to stop when the last measured step has ended, before it would run dry, so that the
measured steps are those of a run that goes on. Step time is the mean over the measured ones.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.config import RunConfig
from core.query import Query
from core.records import EditEvent, ScoredGroup
from drivers.bench.synchronous import SynchronousLoop
from drivers.bench.timed_engines import MODEL, Busy
from drivers.bench.virtual_clock import VirtualLoop
from drivers.bench.workload import (
    MAX_TOKENS,
    Places,
    Times,
    Workload,
    make_queries,
    saturated_groups,
)
from drivers.loop import Position, TrainLoop
from drivers.ports import Parts
from drivers.progress import Progress

log = logging.getLogger("ratchet")

Method = Literal["static", "care", "rare", "ratchet"]
METHODS: tuple[Method, ...] = ("static", "care", "rare", "ratchet")

_EVOLUTION: Mapping[Method, Mapping[str, Any]] = {
    "static": {"method": "static"},
    "care": {"method": "care", "apply": "next_visit"},
    "rare": {"method": "rare"},
    # Contrasts always, so that it has the calls of both papers and its gates' beside them.
    "ratchet": {"method": "ratchet", "trigger": {"when": "always"}},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """What is run."""

    method: Method
    age: int | None
    """``loop.max_policy_age``; None is the synchronous schedule."""

    @property
    def name(self) -> str:
        """For logs and the result file."""
        schedule = "synchronous" if self.age is None else f"age {self.age}"
        return f"{self.method}, {schedule}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much is run."""

    groups_per_step: int = 24
    group_size: int = 8
    warm_steps: int = 2
    steps: int = 5
    """Measured steps."""

    @property
    def last_step(self) -> int:
        """Training step at whose end the measurement ends."""
        return self.warm_steps + self.steps


def make_workload(size: Size, seed: int, times: Times, places: Places) -> Workload:
    """Return the workload that all arms of a mix share."""
    return Workload(
        seed=seed,
        group_size=size.group_size,
        times=times,
        places=places,
        saturated=saturated_groups(
            tuple(queries_of(size)), size.groups_per_step, _num_batches(size), seed
        ),
    )


def queries_of(size: Size) -> Mapping[str, Query]:
    """Return as many queries as any arm draws: each is drawn once."""
    return make_queries(size.groups_per_step * _num_batches(size))


def _num_batches(size: Size) -> int:
    return size.last_step + 4  # more than the oldest age generates ahead


def arm_config(arm: Arm, size: Size, workload: Workload) -> RunConfig:
    """Return the run's config: the product's own, with as many places as the engines have."""
    places = workload.places

    def served(count: int) -> dict[str, Any]:
        at_once = 2 * count  # who waits for a place waits in the replica, as behind a real engine
        # Above what clients let out, as by default: a replica that looks full is asked over and
        # over by Serve's router how full it is.
        most = 2 * at_once
        return {
            "backend": "openai",
            "model": MODEL,
            "base_url": "http://127.0.0.1:9",
            "max_ongoing_requests": most,
            "max_concurrency": at_once,
        }

    return RunConfig.model_validate(
        {
            "name": f"bench-{arm.method}",
            "seed": workload.seed,
            "data": {"train": "unused"},
            "policy": {"model": MODEL},
            "sampling": {"group_size": size.group_size, "max_new_tokens": MAX_TOKENS},
            "rollout": {"num_workers": places.workers, "max_num_seqs": places.slots},
            "judge": served(places.judge),
            "writer": served(places.writer),
            "evolution": dict(_EVOLUTION[arm.method]),
            "loop": {
                "steps": _num_batches(size),
                "groups_per_step": size.groups_per_step,
                "max_policy_age": arm.age or 0,
                "checkpoint_every": 0,
            },
        }
    )


class _Log(Progress):
    """A line a step, with the arm's name; no bar, since arms run side by side."""

    def __init__(self, arm: Arm, num_steps: int) -> None:
        self._arm = arm
        self._num_steps = num_steps

    def step(self, step: int, metrics: Mapping[str, float], queues: Mapping[str, int]) -> None:
        """See ``Progress``."""
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):  # that is over at once
            log.info("%s: step %d of %d", self._arm.name, step, self._num_steps)

    def close(self) -> None:
        """There is no bar."""


class _Ends:
    """A recorder that notes when steps end, and a checkpointer that keeps nothing."""

    def __init__(self, last_step: int) -> None:
        self._last_step = last_step
        self.loop: TrainLoop | None = None
        self.ended: dict[int, float] = {}
        self.edits: dict[str, int] = {}

    def edit(self, event: EditEvent) -> None:
        status = event.edit.status
        self.edits[status] = self.edits.get(status, 0) + 1

    def step(self, step: int, groups: Sequence[ScoredGroup], metrics: Mapping[str, float]) -> None:
        self.ended[step] = asyncio.get_running_loop().time()
        if step == self._last_step and self.loop is not None:
            self.loop.request_stop()

    def evaluation(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """There is none."""

    async def save(self, position: Position) -> None:
        """Keep nothing."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """An arm that has run: when its steps ended, on the clock of its event loop."""

    ends: Sequence[float]
    """Of the last warm-up step and of each measured one."""
    num_under_way: int
    """Batches that are under way at one time: ``max_policy_age`` + 1."""
    phases_s: Mapping[str, float]
    """Mean seconds of each phase (synchronous schedule only)."""
    edits: Mapping[str, int]
    """By status, over all steps."""

    @property
    def began(self) -> float:
        """When the first measured step's time begins."""
        return self.ends[0]

    @property
    def ended(self) -> float:
        """When the last measured step ended."""
        return self.ends[-1]

    @property
    def num_steps(self) -> int:
        """Measured steps."""
        return len(self.ends) - 1

    @property
    def step_s(self) -> float:
        """Mean over the measured steps, in windows of whole rhythms.

        With two batches under way a long step is followed by a short one: five steps have three of
        the one and two of the other. So it is the mean of every window of the longest multiple of
        the rhythm: of 4 steps at age 1, of 3 at age 2, of all 5 at age 0.
        """
        length = self.num_steps - self.num_steps % self.num_under_way or self.num_steps
        windows = [b - a for a, b in zip(self.ends, self.ends[length:], strict=False)]
        return sum(windows) / (len(windows) * length)

    def utilisation(self, busy: Mapping[str, Sequence[Busy]], places: Places) -> dict[str, float]:
        """Return the share of the measured time in which each kind of place worked."""
        counts = {
            "generation": places.workers * places.slots,
            "judge": places.judge,
            "writer": places.writer,
            "learner": 1,
        }
        return {kind: self._busy_frac(busy[kind], count) for kind, count in counts.items()}

    def calls_per_step(self, busy: Sequence[Busy]) -> float:
        """Return how many calls ended in the measured time, by step."""
        return sum(self.began < b.ended <= self.ended for b in busy) / self.num_steps

    def _busy_frac(self, busy: Sequence[Busy], count: int) -> float:
        worked = (
            min(b.ended, self.ended) - max(b.began, self.began)
            for b in busy
            if b.ended > self.began and b.began < self.ended
        )
        return sum(worked) / (count * (self.ended - self.began))


async def run_arm(
    arm: Arm, size: Size, config: RunConfig, queries: Mapping[str, Query], parts: Parts
) -> Ran:
    """Run the arm on these parts, whose workers have policy version 0."""
    ends = _Ends(size.last_step)
    kind = SynchronousLoop if arm.age is None else TrainLoop
    progress = _Log(arm, size.last_step)
    loop = kind(config, queries, parts, ends, ends, None, progress)
    ends.loop = loop
    await loop.run(Position())
    phases: dict[str, float] = {}
    if isinstance(loop, SynchronousLoop):
        measured = loop.phases[size.warm_steps : size.last_step]
        for phase in measured[0].seconds:
            phases[phase] = sum(p.seconds[phase] for p in measured) / len(measured)
    return Ran(
        ends=[ends.ended[step] for step in range(size.warm_steps, size.last_step + 1)],
        num_under_way=config.loop.max_policy_age + 1,
        phases_s=phases,
        edits=ends.edits,
    )
