"""How many replicas of a deployment run, for metrics: looked at in the background only.

``latest`` returns what the last look saw and starts another one when that is old; a look that fails
leaves the number as it was.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

_LOOK_EVERY_S = 10.0

logger = logging.getLogger(__name__)


class ReplicaCount:
    """Remembers one deployment's number of running replicas."""

    def __init__(self, look: Callable[[], Awaitable[int]]) -> None:
        self._look = look
        self._latest: int | None = None
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    def latest(self) -> int | None:
        """Return the number last seen; None before the first look has come back."""
        is_due = time.monotonic() - self._looked_at >= _LOOK_EVERY_S
        if is_due and (self._looking is None or self._looking.done()):
            self._looked_at = time.monotonic()
            self._looking = asyncio.get_running_loop().create_task(self._refresh())
        return self._latest

    async def _refresh(self) -> None:
        try:
            number = await self._look()
        except Exception as error:  # a metric must not end a run
            logger.info("the number of replicas cannot be told: %s", error)
            return
        if number >= 0:  # else replicas are starting or stopping
            self._latest = number
