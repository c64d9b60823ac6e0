"""The rollout workers as one: places requests, survives dead workers, keeps versions together.

A request goes to the least loaded worker that has the current weights; when that worker dies the
same request (same seed) goes to another. A dead worker is made anew in the background, a bounded
number of times, and stays out until it has loaded the latest published weights. Every wait has a
limit, and its message names who waited for whom. The pool knows workers only as ``WorkerPort``;
``drivers/rollout_handles.py`` makes them out of Ray actors.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from core.config import RolloutConfig
from core.errors import RolloutError, StaleVersionError, WeightSyncError
from core.records import GenerateRequest, Rollout, WeightUpdate
from drivers.whereabouts import at

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
"""Tries of one request over dying workers."""
MAX_RESTARTS = 8
"""Times each worker is made anew in a run."""
_HEALTH_TIMEOUT_S = 20.0


class WorkerDiedError(RolloutError):
    """A worker's process has ended; the request can be tried elsewhere."""


class WorkerPort(Protocol):
    """One rollout worker; every call raises WorkerDiedError when its process has ended."""

    async def start(self) -> None:
        """Start the engine (with base weights, stale)."""
        ...

    async def generate(self, request: GenerateRequest) -> Rollout:
        """Return one rollout."""
        ...

    async def load_weights(self, update: WeightUpdate) -> int:
        """Load the update and return the version now loaded."""
        ...

    async def check(self) -> None:
        """Return after a round trip to the engine."""
        ...

    async def shutdown(self) -> None:
        """End the engine and the process."""
        ...

    def kill(self) -> None:
        """End the process without waiting."""
        ...


@dataclass(slots=True)
class _Member:
    """A worker of the pool and what the pool knows about it."""

    index: int
    name: str
    worker: WorkerPort
    update: WeightUpdate | None = None
    """What it has loaded; None while it is stale, restarting or given up."""
    num_running: int = 0
    num_restarts: int = 0
    reason: str = ""
    """Why it is out."""
    revival: asyncio.Task[None] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolStatus:
    """The pool at a glance, for live figures."""

    num_running: int
    num_waiting: int
    """Requests that wait for a worker."""
    versions: tuple[int, ...]
    """By worker; -1 for one that is out."""
    num_restarts: int


class RayRolloutPool:
    """``RolloutPool`` over workers that ``make_worker(index)`` makes; messages call them by
    ``kind`` and index."""

    def __init__(
        self,
        config: RolloutConfig,
        make_worker: Callable[[int], WorkerPort],
        *,
        kind: str = "RolloutWorker",
    ) -> None:
        self._config = config
        self._kind = kind
        self._make_worker = make_worker
        self._members: list[_Member] = []
        self._latest: WeightUpdate | None = None
        self._num_waiting = 0
        self._changed = asyncio.Condition()
        self._load_lock = asyncio.Lock()
        self._is_closed = False

    # -------------------------------------------------------------- life
    async def start(self) -> None:
        """Make and start all workers; raises RolloutError when one of them does not start."""
        self._members = [
            _Member(index=i, name=f"{self._kind} {i}", worker=self._make_worker(i))
            for i in range(self._config.num_workers)
        ]
        results = await asyncio.gather(
            *(self._started(member) for member in self._members), return_exceptions=True
        )
        failures = [error for error in results if isinstance(error, BaseException)]
        if failures:
            await self.shutdown()
            raise failures[0]

    async def _started(self, member: _Member) -> None:
        limit = self._config.start_timeout_s
        try:
            async with asyncio.timeout(limit):
                with at("starting", actor=member.name):
                    await member.worker.start()
        except TimeoutError:
            raise RolloutError(
                f"the rollout pool waited {limit:.0f} s for {member.name} to start its engine, "
                "wanted it ready: raise rollout.start_timeout_s, or look at the actor's log"
            ) from None

    async def shutdown(self) -> None:
        """End every worker; one that does not answer is killed."""
        self._is_closed = True
        for member in self._members:
            if member.revival is not None:
                member.revival.cancel()
        await asyncio.gather(*(self._ended(member) for member in self._members))
        self._members = []

    async def _ended(self, member: _Member) -> None:
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                await member.worker.shutdown()
        except Exception as error:  # whatever it was, the process is ended and so are the others
            logger.warning("%s did not end by itself (%r), killing it", member.name, error)
        finally:
            member.worker.kill()

    def status(self) -> PoolStatus:
        """Return load and versions, without asking the workers."""
        return PoolStatus(
            num_running=sum(member.num_running for member in self._members),
            num_waiting=self._num_waiting,
            versions=tuple(m.update.version if m.update else -1 for m in self._members),
            num_restarts=sum(member.num_restarts for member in self._members),
        )

    # -------------------------------------------------------------- generation
    async def generate(self, request: GenerateRequest) -> Rollout:
        """Return one rollout; raises RolloutError when every try failed."""
        reasons: list[str] = []
        for _ in range(MAX_ATTEMPTS):
            member = await self._place(request)
            worker = member.worker
            try:
                return await self._generate_on(member, request)
            except (WorkerDiedError, StaleVersionError) as error:
                reasons.append(f"{member.name}: {error}")
                self._revive(member, worker, str(error))
            finally:
                member.num_running -= 1
                await self._notify()
        raise RolloutError(
            f"query {request.query_id!r} rollout {request.index}: got no rollout in "
            f"{MAX_ATTEMPTS} tries, wanted one: {'; '.join(reasons)}"
        )

    async def _generate_on(self, member: _Member, request: GenerateRequest) -> Rollout:
        limit = self._config.timeout_s
        worker = member.worker
        try:
            async with asyncio.timeout(limit):
                with at("generating", request.query_id, detail=_which(request), actor=member.name):
                    return await worker.generate(request)
        except TimeoutError:
            await self._check(member, worker)
            raise RolloutError(
                f"query {request.query_id!r} rollout {request.index} waited {limit:.0f} s for "
                f"{member.name}, wanted an answer: raise rollout.timeout_s, or lower "
                "sampling.max_new_tokens or rollout.max_num_seqs"
            ) from None

    async def _place(self, request: GenerateRequest) -> _Member:
        """Wait for a worker with the current weights and take a place on the least loaded."""
        limit = self._config.start_timeout_s
        self._num_waiting += 1
        try:
            async with asyncio.timeout(limit), self._changed:
                with at("waiting for a worker", request.query_id, detail=_which(request)):
                    while not (ready := self._ready()):
                        self._raise_if_all_given_up(f"query {request.query_id!r}")
                        await self._changed.wait()
                member = min(ready, key=lambda m: (m.num_running, m.index))
                member.num_running += 1
                return member
        except TimeoutError:
            raise RolloutError(
                f"query {request.query_id!r} waited {limit:.0f} s for a rollout worker with "
                f"current weights, wanted one: {self._why_out()}"
            ) from None
        finally:
            self._num_waiting -= 1

    def _ready(self) -> list[_Member]:
        return [m for m in self._members if m.update is not None and m.update is self._latest]

    async def _check(self, member: _Member, worker: WorkerPort) -> None:
        """Restart a worker whose engine does not answer."""
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                await worker.check()
        except (TimeoutError, WorkerDiedError) as error:
            self._revive(member, worker, f"its engine does not answer ({error!r})")

    # -------------------------------------------------------------- weights
    async def load_weights(self, update: WeightUpdate) -> None:
        """Bring every live worker to this version, all at once; returns when each has it or is
        out. Raises WeightSyncError when no worker could load it."""
        async with self._load_lock:
            live = [m for m in self._members if m.revival is None and not m.reason]
            self._latest = update
            await asyncio.gather(*(self._load(member, update) for member in live))
            await self._notify()
            if not self._ready():
                await self._wait_for_one(update)

    async def _load(self, member: _Member, update: WeightUpdate) -> None:
        """Load on one worker; a failure makes it anew in the background."""
        worker = member.worker
        try:
            await self._loaded(member, update)
        except (WorkerDiedError, WeightSyncError) as error:
            self._revive(member, worker, str(error))

    async def _loaded(self, member: _Member, update: WeightUpdate) -> None:
        limit = self._config.timeout_s
        started = time.monotonic()
        try:
            async with asyncio.timeout(limit):
                detail = f"policy version {update.version}"
                with at("loading weights", detail=detail, actor=member.name):
                    version = await member.worker.load_weights(update)
        except TimeoutError:
            raise WeightSyncError(
                f"the rollout pool waited {limit:.0f} s for {member.name} to load policy version "
                f"{update.version}"
            ) from None
        assert version == update.version, (version, update.version)
        member.update = update
        logger.info(
            "%s has policy version %d after %.1f s",
            member.name,
            version,
            time.monotonic() - started,
        )

    async def _wait_for_one(self, update: WeightUpdate) -> None:
        limit = self._config.start_timeout_s
        who = f"the weight sync of policy version {update.version}"
        try:
            async with asyncio.timeout(limit), self._changed:
                while not self._ready():
                    self._raise_if_all_given_up(who, WeightSyncError)
                    await self._changed.wait()
        except TimeoutError:
            raise WeightSyncError(
                f"{who} waited {limit:.0f} s for a rollout worker to load it: {self._why_out()}"
            ) from None

    # -------------------------------------------------------------- dead workers
    def _revive(self, member: _Member, worker: WorkerPort, reason: str) -> None:
        """Take a worker out and make it anew in the background; news of a process that has been
        replaced meanwhile is ignored."""
        if member.worker is not worker:
            return
        member.update = None
        member.reason = reason
        if member.revival is not None or self._is_closed:
            return
        if member.num_restarts >= MAX_RESTARTS:
            logger.error("%s is given up after %d restarts: %s", member.name, MAX_RESTARTS, reason)
            return
        logger.warning("%s is out, starting it again: %s", member.name, reason)
        member.num_restarts += 1
        member.revival = asyncio.create_task(self._revived(member), name=f"revive {member.name}")

    async def _revived(self, member: _Member) -> None:
        error: Exception | None = None
        try:
            member.worker.kill()
            member.worker = self._make_worker(member.index)
            await self._started(member)
            await self._catch_up(member)
            member.reason = ""
        except Exception as caught:  # whatever it was, it is the reason for the next, bounded try
            error = caught
        member.revival = None
        if error is not None:
            self._revive(member, member.worker, str(error))
        await self._notify()

    async def _catch_up(self, member: _Member) -> None:
        """Load the latest weights, again if newer ones were published meanwhile."""
        while (update := self._latest) is not None and member.update is not update:
            try:
                await self._loaded(member, update)
            except WeightSyncError:
                if self._latest is update:
                    raise

    def _raise_if_all_given_up(
        self, who: str, error: type[RolloutError | WeightSyncError] = RolloutError
    ) -> None:
        if all(m.reason and m.revival is None for m in self._members):
            raise error(f"{who} found no rollout worker left: {self._why_out()}")

    def _why_out(self) -> str:
        states = [
            f"{m.name} ({m.reason or 'has no published weights yet'}; {m.num_restarts} restarts)"
            for m in self._members
            if m.update is None or m.update is not self._latest
        ]
        return ", ".join(states) or "the pool was not started"

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _which(request: GenerateRequest) -> str:
    return f"visit {request.visit} rollout {request.index}"
