"""The schedule that the papers ran: the same loop, methods and parts, with barriers between phases.

    every rollout generated | every one judged | every edit done | update and sync | next step

Nothing is judged before the step's last rollout is generated, nothing is written or rescored before
its last rollout is judged, and the update begins when no edit is under way: those for a query's
next visit are paid in the step too. Two barriers stand in front of ports (judge, learner), the
others around the method's hooks, since only these are called exactly once a group: a rollout whose
verdicts are cached never reaches the judge, and a group that needs no edit never reaches the
writer. A call that fails counts as done, and each wait has a limit, so nothing waits for ever.
Time is the event loop's, so that a loop whose clock is made up can be measured too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from core.config import RunConfig
from core.errors import ConfigError
from core.query import Query
from core.records import (
    GenerateRequest,
    GradedGroup,
    Rollout,
    UngradedGroup,
    WeightUpdate,
)
from core.rubric import Rubric
from drivers.held_out import Evaluator
from drivers.loop import Checkpointer, TrainLoop
from drivers.methods.base import Method
from drivers.ports import Parts, Recorder
from drivers.progress import Progress

P = TypeVar("P")
PHASES = ("generate", "judge", "evolve", "update", "sync")


@dataclass(kw_only=True)
class StepPhases:
    """What a step's time went to, in seconds by phase; saving and reporting are in none."""

    step: int
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @property
    def total_s(self) -> float:
        """From the first rollout's start to the last worker's new weights."""
        return sum(self.seconds.values())


class SynchronousLoop(TrainLoop):
    """A ``TrainLoop`` whose phases follow one another; made with the same arguments."""

    def __init__(
        self,
        config: RunConfig,
        queries: Mapping[str, Query],
        parts: Parts,
        recorder: Recorder,
        checkpointer: Checkpointer,
        evaluator: Evaluator | None,
        progress: Progress,
    ) -> None:
        """See ``TrainLoop``. An evaluator must have pool and judge of its own: these wait here."""
        if config.loop.max_policy_age:
            raise ConfigError(
                f"got loop.max_policy_age={config.loop.max_policy_age}, wanted 0: the synchronous "
                "schedule never generates ahead"
            )
        self._schedule = Schedule(config.loop.groups_per_step, config.sampling.group_size)
        super().__init__(
            config,
            queries,
            self._schedule.synchronous_parts(parts),
            recorder,
            checkpointer,
            evaluator,
            progress,
        )
        self._schedule.follow(self._method)

    @property
    def phases(self) -> Sequence[StepPhases]:
        """What the time of each step went to, oldest first."""
        return self._schedule.phases


class Schedule:
    """The barriers of one loop, whose steps are all of the same known size."""

    def __init__(self, groups_per_step: int, group_size: int, *, limit_s: float = 900.0) -> None:
        """``limit_s``: longest wait at one barrier."""
        self._num_groups = groups_per_step
        self._num_rollouts = groups_per_step * group_size
        self._limit_s = limit_s
        self._method: Method | None = None
        self._last_mark = 0.0
        self.phases: list[StepPhases] = []
        self._step = self._new_step()

    def synchronous_parts(self, parts: Parts) -> Parts:
        """Return the parts for a loop of this schedule; ``follow`` its method too."""
        pool, judge, learner = parts.pool, parts.judge, parts.learner

        async def generate(request: GenerateRequest) -> Rollout:
            step = self._current_step()
            try:
                return await pool.generate(request)
            finally:
                step.generated.arrive()

        async def load_weights(update: WeightUpdate) -> None:
            await pool.load_weights(update)
            self._mark("sync")

        return replace(
            parts,
            pool=_with(pool, generate=generate, load_weights=load_weights),
            judge=_with(judge, grade=self._after_generating(judge.grade)),
            learner=_with(learner, train_step=self._after_edits(learner.train_step)),
        )

    def follow(self, method: Method) -> None:
        """Put the barriers around this method's hooks; call once, before the loop runs."""
        self._method = method
        given, same_step, next_visit = (
            method.grading_rubric,
            method.same_step,
            method.next_visit,
        )

        async def grading_rubric(group: UngradedGroup) -> Rubric:
            step = self._step
            await step.whole.arrive_and_wait()
            rubric = await given(group)
            await step.rubrics.arrive_and_wait()
            return rubric

        async def same_step_after_judging(group: GradedGroup) -> GradedGroup:
            step = self._step
            await step.judged.arrive_and_wait()
            try:
                return await same_step(group)
            finally:
                if not method.has_next_visit:
                    step.edited.arrive()

        async def counted_next_visit(group: GradedGroup, is_expired: Callable[[], bool]) -> None:
            step = self._step
            try:
                await next_visit(group, is_expired)
            finally:
                step.edited.arrive()

        # On the instance, not in a wrapper: the loop has handed it to others already.
        vars(method).update(
            grading_rubric=grading_rubric,
            edits_same_step=lambda group: False,  # no training pass before the last edit is done
            same_step=same_step_after_judging,
            next_visit=counted_next_visit,
        )

    # ------------------------------------------------------------------ gates of the ports
    def _after_generating(self, call: Callable[..., Awaitable[P]]) -> Callable[..., Awaitable[P]]:
        async def waiting(*arguments: Any) -> P:
            await self._step.generated.wait()
            return await call(*arguments)

        return waiting

    def _after_edits(self, call: Callable[..., Awaitable[P]]) -> Callable[..., Awaitable[P]]:
        """``call`` once every edit is done, also those of rubrics that queries share."""

        async def waiting(*arguments: Any) -> P:
            assert self._method is not None, "a schedule follows its loop's method"
            await self._step.edited.wait()
            await self._method.drain()
            self._mark("evolve")
            result = await call(*arguments)
            self._mark("update")
            return result

        return waiting

    # ------------------------------------------------------------------ steps
    def _current_step(self) -> "_Barriers":
        """The step that a rollout belongs to: a new one after the last was edited and trained."""
        if self._step.edited.is_open or not self.phases:
            self._step = self._new_step()
            self.phases.append(StepPhases(step=len(self.phases) + 1))
            self._last_mark = asyncio.get_running_loop().time()
        return self._step

    def _new_step(self) -> "_Barriers":
        def barrier(what: str, wanted: int, ends: str) -> _Barrier:
            return _Barrier(what, wanted, self._limit_s, lambda: self._mark(ends))

        groups = self._num_groups
        return _Barriers(
            generated=barrier("rollouts to be generated", self._num_rollouts, "generate"),
            whole=barrier("groups to be generated", groups, "generate"),
            rubrics=barrier("groups to get their rubric", groups, "evolve"),
            judged=barrier("groups to be judged", groups, "judge"),
            edited=barrier("groups to be edited", groups, "evolve"),
        )

    def _mark(self, phase: str) -> None:
        """Book the time since the last mark."""
        now = asyncio.get_running_loop().time()
        self.phases[-1].seconds[phase] += now - self._last_mark
        self._last_mark = now


class _Barrier:
    """Opens when as many have arrived as were wanted."""

    def __init__(self, what: str, wanted: int, limit_s: float, on_open: Callable[[], None]) -> None:
        self._what = what
        self._wanted = wanted
        self._limit_s = limit_s
        self._on_open = on_open
        self._num_arrived = 0
        self._opened = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def arrive(self) -> None:
        self._num_arrived += 1
        if self._num_arrived == self._wanted:
            self._on_open()
            self._opened.set()

    async def wait(self) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await self._opened.wait()
        except TimeoutError:
            raise TimeoutError(
                f"the synchronous schedule waited {self._limit_s:g} s for {self._wanted} "
                f"{self._what} and saw {self._num_arrived}: look at the log of pool, judge and "
                "writer, or take fewer groups a step"
            ) from None

    async def arrive_and_wait(self) -> None:
        self.arrive()
        await self.wait()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Barriers:
    """Those of one step, in order; the second and third only where a method needs whole groups."""

    generated: _Barrier
    whole: _Barrier
    rubrics: _Barrier
    judged: _Barrier
    edited: _Barrier


class _Port:
    """A part of which some calls go elsewhere."""

    def __init__(self, part: object, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._part = part
        vars(self).update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def _with(part: P, **calls: Callable[..., Any]) -> P:
    """Return the part with these calls in place of its own."""
    return cast(P, _Port(part, calls))
