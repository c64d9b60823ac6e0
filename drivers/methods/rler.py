"""RLER: new criteria before a group is judged, and a pool pruned after it (DR Tulu's RLER).

One visit makes up to two versions: ``pool`` appends what the writer found in the group's rollouts,
and the group is judged and rewarded under it; ``prune`` leaves the next visit only what told these
rollouts apart. A writer without an answer in time leaves initial and active criteria in force.
"""

import time

from core.config_evolution import RlerEvolution
from core.errors import WriterReplyError
from core.evolution.rler import grown_rubric, pool_request, pruned_rubric
from core.records import GradedGroup, UngradedGroup
from core.rubric import Rubric
from drivers.methods.base import Method
from drivers.methods.desk import EditDesk, EditIsLate, origin_of

_GROW, _PRUNE = "pool", "prune"


class Rler(Method):
    """An adaptive pool beside each query's initial criteria."""

    grades_whole_groups = True

    def __init__(self, desk: EditDesk, evolution: RlerEvolution) -> None:
        super().__init__(desk)
        self._rler = evolution.rler

    async def grading_rubric(self, group: UngradedGroup) -> Rubric:
        """Return the rubric with this visit's new criteria, committed."""
        started = time.monotonic()
        origin, version = origin_of(group), group.rubric.version
        history = await self._desk.history(origin.rubric_id)
        done = self._desk.committed(history, origin, _GROW)
        if done is not None:
            return done
        earlier = {c.id: c for v in history for c in v.rubric.criteria}
        try:
            async with self._desk.deadline():
                reply = await self._desk.write(pool_request(group, self._rler))
            evolution = grown_rubric(group, reply, self._rler, tuple(earlier.values()))
        except EditIsLate:
            reason = f"no new criteria within {self.deadline_s:g} s"
            self._desk.discard(origin, version, "pool", reason, started=started, is_late=True)
            return group.rubric
        except WriterReplyError as error:
            self._desk.discard(origin, version, "pool", str(error), started=started)
            return group.rubric
        is_current = await self._desk.commit(
            origin, group.rubric, evolution, stage=_GROW, started=started
        )
        return evolution.rubric if is_current else group.rubric

    async def same_step(self, group: GradedGroup) -> GradedGroup:
        """Prune the pool for the next visit; the group keeps the rubric it was judged under."""
        started = time.monotonic()
        pruned = pruned_rubric(group, self._rler)
        await self._desk.commit(
            origin_of(group), group.rubric, pruned, stage=_PRUNE, started=started
        )
        return group
