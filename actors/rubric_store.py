"""RubricStore: the one place where a run's rubrics change.

A passive async actor over ``RubricLog``: it keeps versions, never judges or writes one. Changes of
the file are done by one thread in the order they were asked, those that wait together in one
transaction (``rubric_writes.py``); an answer means that the change is on disk. Reads and snapshots
have connections and threads of their own and never wait behind an fsync: they see everything that
was acknowledged before they were asked. The event loop stays free, so that a call answers its
health check and no call cycle can block it. A killed store is restarted by Ray (the caller sets
``max_restarts`` and ``max_task_retries``) and opens the file again; a commit that is retried after
its acknowledgement was lost is answered ``duplicate``.
"""

import asyncio
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import ray

from actors.rubric_log import RubricLog, RubricVersion
from actors.rubric_writes import RubricWrites
from core.records import Commit, CommitResult, Verdict
from core.rubric import Rubric

T = TypeVar("T")


class RubricStore:
    """Versions of every rubric of one run, with the verdict cache."""

    _log: RubricLog | None = None
    """None in a store that failed to open its file: Ray asks for the repr of that one too."""
    _num_expected = 0

    def __init__(self, path: str, num_rubrics: int = 0) -> None:
        """Open the file.

        Ray shows the repr that an actor has when its constructor returns: ``num_rubrics`` is how
        many the run will have. The rubrics themselves come by ``register``: an actor whose
        constructor was given a large object is not restarted once that object is gone.
        """
        self._path = path
        self._num_expected = num_rubrics
        log = RubricLog(path)
        self._writes = RubricWrites(log)
        # One thread each, not a lock around a pool: a connection has one user at a time.
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rubric reads")
        self._reads = RubricLog(path, is_read_only=True)
        self._copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rubric copies")
        self._log = log

    def __repr__(self) -> str:
        if self._log is None:
            return "RubricStore (file not open)"
        num_rubrics = max(self._log.num_rubrics, self._num_expected)
        return f"RubricStore ({num_rubrics} rubrics, {self._log.num_edits} edits)"

    @property
    def _open_log(self) -> RubricLog:
        assert self._log is not None, "the constructor opens the file or raises"
        return self._log

    async def _change(self, work: Callable[[], T], *, is_alone: bool = False) -> T:
        return await asyncio.wrap_future(self._writes.ask(work, is_alone=is_alone))

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    @ray.method
    async def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    @ray.method
    async def register(self, rubrics: Mapping[str, Rubric]) -> None:
        """Make version 0 of each rubric known by its id."""
        await self._change(functools.partial(self._open_log.register, rubrics))

    @ray.method
    async def current(self, query_id: str) -> Rubric:
        """Return the current rubric."""
        return await self._read(functools.partial(self._reads.current, query_id))

    @ray.method
    async def commit(self, commit: Commit) -> CommitResult:
        """Compare-and-set on the version, applied once a key."""
        return await self._change(functools.partial(self._open_log.commit, commit))

    @ray.method
    async def history(self, query_id: str) -> tuple[RubricVersion, ...]:
        """Return all versions of a rubric with their provenance."""
        return await self._read(functools.partial(self._reads.history, query_id))

    @ray.method
    async def propose(self, commit: Commit) -> None:
        """Keep an edit until a person decides, once a key."""
        await self._change(functools.partial(self._open_log.propose, commit))

    @ray.method
    async def num_waiting(self, query_id: str) -> int:
        """Return how many edits of a rubric wait and can be applied to its current version."""
        return await self._read(functools.partial(self._reads.num_waiting, query_id))

    @ray.method
    async def edited(self) -> tuple[RubricVersion, ...]:
        """Return every version that an edit made, of all rubrics."""
        return await self._read(self._reads.edited)

    @ray.method
    async def cached_verdicts(self, keys: Sequence[str]) -> dict[str, Verdict]:
        """Return the verdicts known for these cache keys."""
        return await self._read(functools.partial(self._reads.cached_verdicts, keys))

    @ray.method
    async def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        """Remember scored verdicts."""
        await self._change(functools.partial(self._open_log.put_verdicts, verdicts))

    @ray.method
    async def snapshot(self, folder: str, step: int) -> None:
        """Write the state as of ``step`` into ``folder``."""
        work = functools.partial(_write_snapshot, self._path, folder, step)
        await asyncio.get_running_loop().run_in_executor(self._copier, work)

    @ray.method
    async def restore(self, folder: str, step: int) -> int:
        """Make the state as of ``step`` current; return how many commits were set aside."""
        work = functools.partial(self._open_log.restore, folder, step)
        return await self._change(work, is_alone=True)


def _write_snapshot(path: str, folder: str, step: int) -> None:
    log = RubricLog(Path(path))
    try:
        log.snapshot(folder, step)
    finally:
        log.close()


RubricStoreActor = ray.remote(RubricStore)
