"""RubricStore: the one place where a run's rubrics change.

A passive async actor over ``RubricLog``: it keeps versions, never judges or writes one. All work on
the file is done by one thread in the order it was asked, each change between BEGIN IMMEDIATE and
COMMIT; the event loop stays free, so that a call answers its health check and no call cycle can
block it. A killed store is restarted by Ray (the caller sets ``max_restarts`` and
``max_task_retries``) and opens the file again; a commit that is retried after its acknowledgement
was lost is answered ``duplicate``.
"""

import asyncio
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import ray

from actors.rubric_log import RubricLog, RubricVersion
from core.records import Commit, CommitResult, Verdict
from core.rubric import Rubric

T = TypeVar("T")


class RubricStore:
    """Versions of every rubric of one run, with the verdict cache."""

    def __init__(self, path: str, rubrics: Mapping[str, Rubric] | None = None) -> None:
        """Open the file and register ``rubrics`` by their ids.

        Ray shows the repr that an actor has when its constructor returns: rubrics given here are
        counted in it.
        """
        # One thread, not a lock around a pool: a cancelled call cannot leave its transaction to be
        # interleaved with the next one's.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rubrics")
        self._log: RubricLog | None = None  # Ray asks for the repr of a store that failed to open
        log = self._thread.submit(RubricLog, path).result()
        self._thread.submit(log.register, rubrics or {}).result()
        self._log = log

    def __repr__(self) -> str:
        if self._log is None:
            return "RubricStore (file not open)"
        return f"RubricStore ({self._log.num_rubrics} rubrics, {self._log.num_edits} edits)"

    @property
    def _open_log(self) -> RubricLog:
        assert self._log is not None, "the constructor opens the file or raises"
        return self._log

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @ray.method
    async def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    @ray.method
    async def register(self, rubrics: Mapping[str, Rubric]) -> None:
        """Make version 0 of each rubric known by its id."""
        await self._do(functools.partial(self._open_log.register, rubrics))

    @ray.method
    async def current(self, query_id: str) -> Rubric:
        """Return the current rubric."""
        return await self._do(functools.partial(self._open_log.current, query_id))

    @ray.method
    async def commit(self, commit: Commit) -> CommitResult:
        """Compare-and-set on the version, applied once a key."""
        return await self._do(functools.partial(self._open_log.commit, commit))

    @ray.method
    async def history(self, query_id: str) -> tuple[RubricVersion, ...]:
        """Return all versions of a rubric with their provenance."""
        return await self._do(functools.partial(self._open_log.history, query_id))

    @ray.method
    async def propose(self, commit: Commit) -> None:
        """Keep an edit until a person decides, once a key."""
        await self._do(functools.partial(self._open_log.propose, commit))

    @ray.method
    async def num_waiting(self, query_id: str) -> int:
        """Return how many edits of a rubric wait and can be applied to its current version."""
        return await self._do(functools.partial(self._open_log.num_waiting, query_id))

    @ray.method
    async def edited(self) -> tuple[RubricVersion, ...]:
        """Return every version that an edit made, of all rubrics."""
        return await self._do(self._open_log.edited)

    @ray.method
    async def cached_verdicts(self, keys: Sequence[str]) -> dict[str, Verdict]:
        """Return the verdicts known for these cache keys."""
        return await self._do(functools.partial(self._open_log.cached_verdicts, keys))

    @ray.method
    async def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        """Remember scored verdicts."""
        await self._do(functools.partial(self._open_log.put_verdicts, verdicts))

    @ray.method
    async def snapshot(self, folder: str, step: int) -> None:
        """Write the state as of ``step`` into ``folder``."""
        await self._do(functools.partial(self._open_log.snapshot, folder, step))

    @ray.method
    async def restore(self, folder: str, step: int) -> int:
        """Make the state as of ``step`` current; return how many commits were set aside."""
        return await self._do(functools.partial(self._open_log.restore, folder, step))


RubricStoreActor = ray.remote(RubricStore)
