"""Online Rubrics: criteria from current against control rollouts, for this step only.

The control policy's rollouts are generated beside the group's own, by a pool of their own. One
writer call a pair and one that merges make the criteria that the group is judged under, as one
version; the next visit begins with the initial criteria again. Whatever fails (a control rollout, a
pair, the merge, the deadline) is counted, and what is left is used: at worst the initial criteria.
"""

import asyncio
import logging
import time

from core.config_evolution import OnlineRubricsEvolution
from core.errors import RolloutError, WriterReplyError
from core.evolution.online_reply import OnlineReply
from core.evolution.online_rubrics import (
    Candidates,
    local_rubric,
    merge_request,
    read_candidates,
    read_merge,
    rollout_pairs,
    unmerged,
)
from core.query import Query
from core.records import Draw, Evolution, GenerateRequest, Rollout, UngradedGroup
from core.rubric import Rubric
from drivers.gathered import gathered
from drivers.methods.base import Method
from drivers.methods.desk import EditDesk, EditIsLate, origin_of
from drivers.ports import RolloutPool
from drivers.queries import sampling_seed

log = logging.getLogger(__name__)

_LOCAL = "local"
_CONTROL_STREAM = "control\x00"
"""Begins the seeds' text of control rollouts: they must not repeat the current ones."""


class OnlineRubrics(Method):
    """Local criteria from pairs of two policies' rollouts."""

    grades_whole_groups = True

    def __init__(
        self, desk: EditDesk, evolution: OnlineRubricsEvolution, control_pool: RolloutPool
    ) -> None:
        super().__init__(desk)
        self._num_control = min(
            evolution.online.control_group_size, desk.config.sampling.group_size
        )
        self._control_pool = control_pool
        self._lost: dict[Draw, tuple[str, ...]] = {}
        """What kept a draw's control rollouts from coming, until its rubric is made."""

    # -------------------------------------------------------------- control rollouts
    async def control(self, draw: Draw, query: Query) -> tuple[Rollout, ...]:
        """Return the control rollouts that came; the group goes on without the others."""
        results = await asyncio.gather(
            *(self._control_rollout(draw, query, index) for index in range(self._num_control)),
            return_exceptions=True,
        )
        lost: list[str] = []
        for index, result in enumerate(results):
            if isinstance(result, RolloutError):
                lost.append(f"no control rollout {index}: {result}")
            elif isinstance(result, BaseException):
                raise result
        if lost:
            self._lost[draw] = tuple(lost)
        return tuple(r for r in results if isinstance(r, Rollout))

    async def _control_rollout(self, draw: Draw, query: Query, index: int) -> Rollout:
        config = self._desk.config
        return await self._control_pool.generate(
            GenerateRequest(
                query_id=query.id,
                visit=draw.visit,
                index=index,
                messages=query.messages,
                seed=sampling_seed(config.seed, _CONTROL_STREAM + query.id, draw.visit, index),
                temperature=config.sampling.temperature,
                max_new_tokens=config.sampling.max_new_tokens,
            )
        )

    # -------------------------------------------------------------- the rubric of this step
    async def grading_rubric(self, group: UngradedGroup) -> Rubric:
        """Return the initial criteria and this visit's new ones, committed."""
        started = time.monotonic()
        origin = origin_of(group)
        lost = self._lost.pop(group.draw, ())
        history = await self._desk.history(origin.rubric_id)
        done = self._desk.committed(history, origin, _LOCAL)
        if done is not None:
            return done
        taken = tuple({i for version in history for i in version.rubric.ids})
        try:
            async with self._desk.deadline():
                evolution = await self._written(group, lost, taken)
        except EditIsLate:
            self._desk.counts.deadline_missed += 1
            evolution = _without(group, (*lost, f"no new criteria within {self.deadline_s:g} s"))
        except WriterReplyError as error:
            evolution = _without(group, (*lost, str(error)))
        for edit in evolution.edits:
            if edit.status == "failed":
                log.warning("rubric %s, step %d: %s", origin.rubric_id, origin.step, edit.reason)
        is_current = await self._desk.commit(
            origin, group.rubric, evolution, stage=_LOCAL, started=started
        )
        # Version 0 holds the initial criteria whatever another draw has made current.
        return evolution.rubric if is_current else group.query.rubric

    async def _written(
        self, group: UngradedGroup, lost: tuple[str, ...], taken: tuple[str, ...]
    ) -> Evolution:
        """Ask about each pair, then for the merge where more than one pair has candidates."""
        pairs = rollout_pairs(group)
        replies = await gathered(self._desk.write(pair.request) for pair in pairs)
        candidates = read_candidates(pairs, replies)
        candidates = Candidates(
            items=candidates.items,
            failures=(*lost, *candidates.failures),
            refused=candidates.refused,
        )
        request = merge_request(group, candidates)
        if request is None:
            merged = unmerged(candidates)
        else:
            merged = read_merge(await self._desk.write(request), request)
        return local_rubric(group, merged, candidates, taken_ids=taken)


def _without(group: UngradedGroup, failures: tuple[str, ...]) -> Evolution:
    """The initial criteria, with what kept new ones from being made."""
    return local_rubric(group, OnlineReply(), Candidates(failures=failures))
