"""The reference judge beside the training: another judge scores a sample of the rollouts.

It only watches: nothing it says reaches a reward. The gap between the training judge's reward and
its own, on the same rollouts under the same rubric, is the curve on which reward hacking shows
(arXiv 2605.12474): it grows while the policy learns what only the training judge takes for good.
Which rollouts are sampled follows from query, visit and index alone, so a resumed run takes the
same ones. Its calls run in the background, so many at most, and hold up no step; one that fails is
counted. Verdicts are cached under the reference judge's own identity.
"""

import asyncio
import contextlib
import hashlib
import logging

from core.config import RunConfig
from core.records import ScoredGroup, ScoredRollout
from core.reward import rollout_reward
from drivers.cached_judge import CachedJudge
from drivers.ports import JudgeClient, Store

_MAX_PENDING = 256
"""Rollouts that wait for the reference judge or are with it; further ones are left out."""

log = logging.getLogger(__name__)


class ReferenceMonitor:
    """Has sampled rollouts judged again, and tells the gap; without a judge it does nothing."""

    def __init__(self, config: RunConfig, judge: JudgeClient | None, store: Store) -> None:
        reference = config.reference_judge
        self._frac = reference.frac if reference is not None and judge is not None else 0.0
        self._call_limit_s = reference.timeout_s if reference is not None else 0.0
        self._reward = config.reward
        self._client = judge
        self._judge = None if judge is None else CachedJudge(judge, store)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gaps: list[float] = []
        self._num_failed = self._num_skipped = 0

    def start(self, group: ScoredGroup) -> None:
        """Have the group's sampled rollouts judged; returns at once."""
        for rollout in group.rollouts:
            if rollout.reward is None or not self._is_sampled(group, rollout):
                continue
            if len(self._tasks) >= _MAX_PENDING:
                self._num_skipped += 1
                continue
            task = asyncio.create_task(self._compare(group, rollout, rollout.reward))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def metrics(self) -> dict[str, float]:
        """Return the gap and the counts of what finished since the last call, and the judge's own
        running totals."""
        if self._client is None:
            return {}
        gaps, self._gaps = self._gaps, []
        metrics = {
            **self._client.stats(),
            "judge/reference_scored": float(len(gaps)),
            "judge/reference_failed": float(self._num_failed),
            "judge/reference_skipped": float(self._num_skipped),
        }
        self._num_failed = self._num_skipped = 0
        return metrics | ({"judge/gold_gap": sum(gaps) / len(gaps)} if gaps else {})

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait for what is under way, no longer than that (one call's limit): the rest counts
        nowhere."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s or self._call_limit_s)

    async def close(self) -> None:
        """Cancel what still runs."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _is_sampled(self, group: ScoredGroup, rollout: ScoredRollout) -> bool:
        draw = group.draw
        index = rollout.graded.rollout.index
        return sample_point(draw.query_id, draw.visit, index) < self._frac

    async def _compare(self, group: ScoredGroup, rollout: ScoredRollout, reward: float) -> None:
        assert self._judge is not None, "without a judge nothing is sampled"
        response = rollout.graded.rollout.response
        try:
            judged = await self._judge.judged(group.query, response, group.rubric.criteria)
            is_cut = rollout.graded.rollout.is_cut
            reference = rollout_reward(
                group.rubric, judged.verdicts, self._reward, is_cut=is_cut
            ).value
        except Exception as error:  # it only watches: the run goes on without it
            log.warning("the reference judge on query %r: %s", group.query.id, error)
            reference = None
        if reference is None:
            self._num_failed += 1
        else:
            self._gaps.append(reward - reference)


def sample_point(query_id: str, visit: int, index: int) -> float:
    """Return where a rollout lies in [0, 1): evenly spread, and always the same."""
    digest = hashlib.sha256(f"{query_id}\0{visit}\0{index}".encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest()[:8], "big") / 2**64
