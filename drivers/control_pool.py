"""The control policy's workers (Online Rubrics): a rollout pool that lags behind the learner.

``reference`` keeps the weights that training began with for ever; ``previous`` has the version
before the newest one. The loop tells this pool of each published version as it tells the policy's
own pool, and what to load is decided here. Control rollouts never train, so workers that cannot be
brought to their version are no reason to stop: their groups go on without new criteria.
After a resume ``previous`` begins with the checkpoint's own version, since no older one is kept.
"""

import logging
from typing import Literal

from core.errors import WeightSyncError
from core.records import GenerateRequest, Rollout, WeightUpdate
from drivers.ports import RolloutPool

log = logging.getLogger(__name__)


class ControlPool:
    """``RolloutPool`` whose ``load_weights`` names the newest version, not the wanted one."""

    def __init__(self, pool: RolloutPool, policy: Literal["reference", "previous"]) -> None:
        self._pool = pool
        self._is_pinned = policy == "reference"
        self._loaded: WeightUpdate | None = None
        self._newest: WeightUpdate | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it has its first weights."""
        return self._newest is not None

    async def begin(self, update: WeightUpdate) -> None:
        """Load the first weights; raises WeightSyncError when no worker could load them."""
        await self._pool.load_weights(update)
        self._loaded = self._newest = update

    async def generate(self, request: GenerateRequest) -> Rollout:
        """Return one rollout of the control policy; raises RolloutError when all tries failed."""
        return await self._pool.generate(request)

    async def load_weights(self, update: WeightUpdate) -> None:
        """Take note of the newest weights, and load those before them if they are wanted."""
        previous, self._newest = self._newest, update
        if self._is_pinned or previous is None or previous is self._loaded:
            return
        try:
            await self._pool.load_weights(previous)
        except WeightSyncError as error:
            log.warning("control workers are without weights: %s", error)
            return
        self._loaded = previous
