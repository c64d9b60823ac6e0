"""The groups that wait for the trainer, and the passes that need not wait for the last of them.

``drawn`` gives a step's groups in draw order. A group with a same-step edit has its
rewards late (a writer and a rescoring call after its verdicts); once every other group of the step
is scored, the learner does their forward and backward passes meanwhile, and then those of the late
groups one by one. Which groups are late, and in which order they follow, is a matter of the data
and never of timing, so a run repeats exactly.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from core.advantage import score_group
from core.batching import EarlyPasses, early_passes, following_pass
from core.config import RunConfig
from core.records import Draw, GradedGroup, ScoredGroup
from drivers.ports import Learner
from drivers.whereabouts import at


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A step's groups."""

    groups: tuple[ScoredGroup, ...]
    """In draw order, or in the order in which they finished."""
    early_s: float = 0.0
    """Seconds of training passes done while the last groups were waited for."""


class Collector:
    """Keeps scored groups until their step takes them."""

    def __init__(self, config: RunConfig, learner: Learner) -> None:
        self._config = config
        self._learner = learner
        self._scored: dict[Draw, ScoredGroup] = {}
        self._late: dict[Draw, ScoredGroup] = {}
        """Groups with a same-step edit, scored as if it came to nothing."""
        self._waits: dict[Draw, ExitStack] = {}
        """Each scored group's line in the table of whereabouts."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._scored)

    def expect(self, group: GradedGroup) -> None:
        """Note a graded group whose rewards wait for a same-step edit."""
        scored = score_group(group, self._config.reward, self._config.advantage)
        self._late[group.draw] = scored
        self._changed.set()

    def put(self, group: ScoredGroup) -> None:
        """Take a group that is ready to train."""
        draw = group.draw
        self._scored[draw] = group
        self._waits[draw] = wait = ExitStack()
        detail = f"visit {draw.visit} step {draw.step}"
        wait.enter_context(at("scored, waiting for its step", draw.query_id, detail=detail))
        self._changed.set()

    def _taken(self, draws: Sequence[Draw]) -> tuple[ScoredGroup, ...]:
        for draw in draws:
            self._waits.pop(draw).close()
        return tuple(self._scored.pop(draw) for draw in draws)

    async def finished(self, number: int) -> Collected:
        """Return the first so many groups that finished."""
        while len(self._scored) < number:
            await self._change()
        draws = tuple(self._scored)[:number]
        return Collected(groups=self._taken(draws))

    async def drawn(self, draws: Sequence[Draw]) -> Collected:
        """Return the groups of these draws, the whole of one step, in their order."""
        while not all(d in self._scored or d in self._late for d in draws):
            await self._change()
        early_s = await self._begin(draws)
        while not all(d in self._scored for d in draws):
            await self._change()
        for draw in draws:
            self._late.pop(draw, None)
        return Collected(groups=self._taken(draws), early_s=early_s)

    async def _begin(self, draws: Sequence[Draw]) -> float:
        """Do the passes that can be done before the last group has its rewards; return seconds."""
        early = self._early_passes(draws)
        if early is None:
            return 0.0
        early_s = await self._accumulate(early)
        by_place = {draw.position: draw for draw in draws}
        for place in early.following:
            while by_place[place] not in self._scored:
                await self._change()
            group = self._scored[by_place[place]]
            drop = self._config.advantage.drop_truncated
            early_s += await self._accumulate(
                following_pass(early, place, group, drop_truncated=drop)
            )
        return early_s

    async def _accumulate(self, early: EarlyPasses) -> float:
        began = time.monotonic()
        await self._learner.accumulate(early)
        return time.monotonic() - began

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _early_passes(self, draws: Sequence[Draw]) -> EarlyPasses | None:
        config = self._config
        if config.advantage.drop_flat_groups:
            # Whether a late group is flat, so in the denominator or not, shows with its rewards.
            return None
        return early_passes(
            draws[0].step,
            {d.position: self._scored[d] for d in draws if d not in self._late},
            {d.position: self._late[d] for d in draws if d in self._late},
            is_off_policy=config.loop.max_policy_age > 0,
            num_mini_batches=config.learner.mini_batches,
            drop_truncated=config.advantage.drop_truncated,
        )
