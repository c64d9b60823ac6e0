"""Revisions of rubrics that all queries of a task share, after scheduled steps.

A revision begins when the groups of its step are complete and runs beside the policy update. It is
bounded by the deadline and committed at once, so that the next step is graded under it: draws of
later steps wait for it before they pin their rubric. One that is late is discarded and counted; the
draws go on with the old rubric. With ``max_policy_age: 0`` no draw of the next step can have pinned
its rubric before; with a higher age groups of later steps may be under way already, and those that
were pinned earlier are graded, and rewarded, under the version that they were pinned with.
What is revised from which rollouts is the method's: ``revised``.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core.errors import WriterReplyError
from core.query import rubric_id
from core.records import Draw, EditOrigin, Evolution, GradedGroup, ScoredGroup
from core.rubric import Rubric
from drivers.methods.base import Method
from drivers.methods.desk import EditDesk, EditIsLate, refused

_BRANCH = "task"


class NoRevision(RuntimeError):
    """A revision came to nothing before or after the writer was asked; says why."""


@dataclass(kw_only=True, eq=False)
class _Revision:
    """One that was begun and may still run."""

    step: int
    task: "asyncio.Task[None]"
    is_expired: bool = False
    """A draw of a later step has given up waiting for it."""


class SharedRevision(Method):
    """The common part of RARE's task level and MPO."""

    def __init__(self, desk: EditDesk, steps: Collection[int]) -> None:
        super().__init__(desk)
        self._steps = frozenset(steps)
        self._open: list[_Revision] = []

    # -------------------------------------------------------------- what a method decides
    def evidence_of(self, step: int, groups: Sequence[GradedGroup]) -> Sequence[GradedGroup]:
        """Return the groups that a revision after ``step`` rests on; ``groups`` are the step's."""
        return groups

    async def revised(
        self, task: str, rubric: Rubric, step: int, groups: Sequence[GradedGroup]
    ) -> Evolution:
        """Return the task's next rubric with its edits, from the groups of the task.

        Raises NoRevision or WriterReplyError when there is none.
        """
        raise NotImplementedError

    # -------------------------------------------------------------- hooks
    def step_collected(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """See ``Method``."""
        evidence = self.evidence_of(step, [graded_group(g) for g in groups])
        if step not in self._steps:
            return
        by_task: dict[str, list[GradedGroup]] = {}
        for group in evidence:
            assert group.query.task is not None, "a shared rubric has a task"
            by_task.setdefault(group.query.task, []).append(group)
        for task, members in by_task.items():
            begun = asyncio.create_task(self._run(task, step, members))
            self._open.append(_Revision(step=step, task=begun))

    async def ready(self, draw: Draw) -> None:
        """See ``Method``."""
        awaited = [r for r in self._open if r.step < draw.step and not r.task.done()]
        if awaited:
            _, late = await asyncio.wait([r.task for r in awaited], timeout=self.deadline_s)
            for revision in awaited:
                revision.is_expired = revision.is_expired or revision.task in late
        self._forget_done()

    async def drain(self) -> None:
        """See ``Method``; each revision is bounded by its deadline."""
        if self._open:
            await asyncio.wait([r.task for r in self._open])
        self._forget_done()

    async def close(self) -> None:
        """See ``Method``."""
        tasks = [r.task for r in self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget_done(self) -> None:
        """Drop what is done; a revision that broke (not: a writer that failed) ends the run."""
        done = [r for r in self._open if r.task.done()]
        self._open = [r for r in self._open if not r.task.done()]
        for revision in done:
            revision.task.result()

    # -------------------------------------------------------------- one revision
    async def _run(self, task: str, step: int, groups: Sequence[GradedGroup]) -> None:
        started = time.monotonic()
        desk = self._desk
        origin = EditOrigin(rubric_id=rubric_id(groups[0].query, "task"), step=step)
        if await desk.has_waiting_edit(origin.rubric_id):
            desk.counts.skipped += 1
            return
        rubric = await desk.store.current(origin.rubric_id)
        try:
            async with desk.deadline():
                evolution = await self.revised(task, rubric, step, groups)
        except EditIsLate:
            reason = f"no revision within {self.deadline_s:g} s"
            desk.discard(origin, rubric.version, _BRANCH, reason, started=started, is_late=True)
            return
        except (NoRevision, WriterReplyError) as error:
            desk.discard(origin, rubric.version, _BRANCH, str(error), started=started)
            return
        if self._is_expired():
            desk.counts.deadline_missed += 1
            evolution = refused(evolution, rubric, "a later step was graded without waiting for it")
        await desk.commit(origin, rubric, evolution, stage=f"{_BRANCH}:{step}", started=started)

    def _is_expired(self) -> bool:
        """Whether a draw has given up waiting for the revision that asks."""
        own = asyncio.current_task()
        return any(r.is_expired and r.task is own for r in self._open)


def graded_group(group: ScoredGroup) -> GradedGroup:
    """The group as it was graded."""
    return GradedGroup(
        draw=group.draw,
        query=group.query,
        rubric=group.rubric,
        rollouts=tuple(r.graded for r in group.rollouts),
        judge="",
    )
