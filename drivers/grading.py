"""The generation and grading stage: one draw in, one graded group out.

A rollout goes to the judge as soon as it is finished, not when its group is. The group's rubric is
pinned when the first rollout needs it; all rollouts of the group are graded under that version.
Where a method makes criteria from the group's rollouts (RLER, Online Rubrics), all are generated
first, the method gives the rubric, and then all are judged.
Verdicts that the store already has are not asked for again. Gold criteria are graded in calls of
their own, so that they cannot colour the judge's view of the rubric.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.config import SamplingConfig
from core.query import Query
from core.records import (
    Draw,
    GenerateRequest,
    GradedGroup,
    GradedRollout,
    Rollout,
    UngradedGroup,
    Verdict,
)
from core.rubric import Criterion, Rubric
from drivers.cached_judge import CachedJudge
from drivers.gathered import gathered
from drivers.ports import JudgeClient, RolloutPool, Store
from drivers.queries import sampling_seed

PinRubric = Callable[[Draw], Awaitable[Rubric]]


class WholeGroups(Protocol):
    """What the grader asks of a method that makes the rubric from a group's rollouts."""

    async def control(self, draw: Draw, query: Query) -> tuple[Rollout, ...]:
        """Return rollouts of another policy, generated beside the group's own."""
        ...

    async def grading_rubric(self, group: UngradedGroup) -> Rubric:
        """Return the rubric that the group is graded under."""
        ...


@dataclass(kw_only=True)
class GradingCounts:
    """Running totals of the stage, read and reset by the loop once a step."""

    verdicts: int = 0
    failed: int = 0
    cached: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    generate_s: list[float] = field(default_factory=list)
    judge_s: list[float] = field(default_factory=list)


class Grader:
    """Generates the rollouts of a draw and has each one judged."""

    def __init__(
        self,
        pool: RolloutPool,
        judge: JudgeClient,
        store: Store,
        sampling: SamplingConfig,
        seed: int,
    ) -> None:
        self._pool = pool
        self._judge = judge
        self._cached_judge = CachedJudge(judge, store)
        self._sampling = sampling
        self._seed = seed
        self.counts = GradingCounts()
        self.rubric_wait_s: dict[Draw, float] = {}
        """How long whole groups waited for their rubric; taken out by the loop."""

    async def grade_group(
        self,
        draw: Draw,
        query: Query,
        pin_rubric: PinRubric,
        group_size: int,
        whole: WholeGroups | None = None,
    ) -> GradedGroup:
        """Return the draw's group, every rollout with a verdict on every criterion."""
        if whole is not None:
            return await self._grade_whole(draw, query, pin_rubric, group_size, whole)
        pin = _Pin(pin_rubric, draw)

        async def one(index: int) -> GradedRollout:
            rollout = await self._generate(draw, query, index)
            return await self._graded(query, rollout, await pin.rubric())

        rollouts = await gathered(one(index) for index in range(group_size))
        return self._group(draw, query, await pin.rubric(), rollouts)

    async def _grade_whole(
        self,
        draw: Draw,
        query: Query,
        pin_rubric: PinRubric,
        group_size: int,
        whole: WholeGroups,
    ) -> GradedGroup:
        beside = asyncio.ensure_future(whole.control(draw, query))
        try:
            own = await gathered(self._generate(draw, query, i) for i in range(group_size))
            control = await beside
        finally:
            beside.cancel()
        started = time.monotonic()
        rubric = await whole.grading_rubric(
            UngradedGroup(
                draw=draw,
                query=query,
                rubric=await pin_rubric(draw),
                rollouts=tuple(own),
                control=control,
            )
        )
        self.rubric_wait_s[draw] = time.monotonic() - started
        graded = await gathered(self._graded(query, rollout, rubric) for rollout in own)
        return self._group(draw, query, rubric, graded)

    def _group(
        self, draw: Draw, query: Query, rubric: Rubric, rollouts: Sequence[GradedRollout]
    ) -> GradedGroup:
        return GradedGroup(
            draw=draw,
            query=query,
            rubric=rubric,
            rollouts=tuple(rollouts),
            judge=self._judge.identity,
        )

    async def _graded(self, query: Query, rollout: Rollout, rubric: Rubric) -> GradedRollout:
        verdicts, gold = await gathered(
            (
                self.verdicts(query, rollout.response, rubric.criteria),
                self.verdicts(query, rollout.response, query.gold, is_counted=False),
            )
        )
        return GradedRollout(rollout=rollout, verdicts=verdicts, gold=gold)

    async def _generate(self, draw: Draw, query: Query, index: int) -> Rollout:
        started = time.monotonic()
        rollout = await self._pool.generate(
            GenerateRequest(
                query_id=query.id,
                visit=draw.visit,
                index=index,
                messages=query.messages,
                seed=sampling_seed(self._seed, query.id, draw.visit, index),
                temperature=self._sampling.temperature,
                max_new_tokens=self._sampling.max_new_tokens,
            )
        )
        self.counts.generate_s.append(time.monotonic() - started)
        return rollout

    async def verdicts(
        self,
        query: Query,
        response: str,
        criteria: Sequence[Criterion],
        *,
        is_counted: bool = True,
    ) -> dict[str, Verdict]:
        """Return a verdict for each criterion, from the store's cache or from the judge."""
        judged = await self._cached_judge.judged(query, response, criteria)
        if judged.seconds is not None:
            self.counts.judge_s.append(judged.seconds)
        if is_counted:
            self._count(judged.verdicts, num_cached=judged.num_cached)
        return dict(judged.verdicts)

    def _count(self, verdicts: Mapping[str, Verdict], *, num_cached: int) -> None:
        counts = self.counts
        counts.verdicts += len(verdicts)
        counts.cached += num_cached
        for verdict in verdicts.values():
            if verdict.failure is not None:
                counts.failed += 1
                counts.failures[verdict.failure] = counts.failures.get(verdict.failure, 0) + 1


class _Pin:
    """The group's rubric, read once: when the first rollout is ready to be judged."""

    def __init__(self, pin_rubric: PinRubric, draw: Draw) -> None:
        self._pin_rubric = pin_rubric
        self._draw = draw
        self._lock = asyncio.Lock()
        self._rubric: Rubric | None = None

    async def rubric(self) -> Rubric:
        """Return the pinned rubric."""
        async with self._lock:
            if self._rubric is None:
                self._rubric = await self._pin_rubric(self._draw)
            return self._rubric
