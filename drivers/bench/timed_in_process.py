"""The engines that only keep time, in one process: the real pool and clients over plain objects.

No Ray: workers stand behind ``RayRolloutPool`` as they are, judge and writer behind ``ServedJudge``
and ``ServedWriter`` by a handle that calls them, and the store is the real ``RubricStore``'s port
over a dictionary. On a clock that jumps (``virtual_clock.py``) a whole run takes a second; what it
shows is the schedule alone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.rubric_log import RubricVersion
from core.config import RunConfig
from core.records import (
    Commit,
    CommitResult,
    GenerateRequest,
    Rollout,
    Verdict,
    WeightUpdate,
)
from core.rubric import Rubric
from drivers.bench.timed_engines import Busy, TimedBackend, TimedLearner, TimedWorker
from drivers.bench.workload import Workload
from drivers.ports import Parts
from drivers.rollout_pool import RayRolloutPool
from drivers.served_clients import ServedJudge, ServedWriter
from serve.identity import judge_identity, writer_identity
from serve.judge import Judge
from serve.writer import RubricWriter


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """The parts of one run, and where their notes are."""

    parts: Parts
    workers: tuple[TimedWorker, ...]
    learner: TimedLearner
    judge: TimedBackend
    writer: TimedBackend

    def busy(self) -> dict[str, list[Busy]]:
        """Return when each kind of place was busy."""
        return {
            "generation": [b for worker in self.workers for b in worker.busy()],
            "judge": self.judge.busy(),
            "writer": self.writer.busy(),
            "learner": self.learner.busy(),
        }


async def start_in_process(
    config: RunConfig, workload: Workload, rubrics: Mapping[str, Rubric]
) -> InProcess:
    """Return engines that run on the current event loop, with policy version 0 loaded."""
    workers = tuple(TimedWorker(i, workload) for i in range(workload.places.workers))
    pool = RayRolloutPool(config.rollout, lambda index: _LocalWorker(workers[index]))
    await pool.start()
    await pool.load_weights(WeightUpdate(version=0, transport="shm"))
    judge = TimedBackend(workload, workload.places.judge)
    writer = TimedBackend(workload, workload.places.writer)
    learner = TimedLearner(workload)
    store = LocalStore()
    await store.register(rubrics)
    parts = Parts(
        pool=pool,
        learner=learner,
        judge=ServedJudge(
            LocalHandle(Judge(config.judge, judge)), config.judge, judge_identity(config.judge)
        ),
        writer=ServedWriter(
            LocalHandle(RubricWriter(config.writer, writer)),
            config.writer,
            writer_identity(config.writer),
        ),
        store=store,
    )
    return InProcess(parts=parts, workers=workers, learner=learner, judge=judge, writer=writer)


class LocalHandle:
    """Calls an object's methods as a Serve handle does: ``handle.method.remote(request)``."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, method: str) -> "_LocalMethod":
        return _LocalMethod(getattr(self._target, method))


class _LocalMethod:
    def __init__(self, call: Any) -> None:
        self._call = call

    def remote(self, *args: Any) -> "asyncio.Task[Any]":
        """Begin the call."""
        return asyncio.ensure_future(self._call(*args))


class _LocalWorker:
    """A ``WorkerPort`` over a plain worker."""

    def __init__(self, worker: TimedWorker) -> None:
        self._worker = worker

    async def start(self) -> None:
        await self._worker.start()

    async def generate(self, request: GenerateRequest) -> Rollout:
        return await self._worker.generate(request)

    async def load_weights(self, update: WeightUpdate) -> int:
        return (await self._worker.load_weights(update)).version

    async def check(self) -> None:
        await self._worker.check_engine()

    async def shutdown(self) -> None:
        await self._worker.shutdown()

    def kill(self) -> None:
        """Nothing to end."""


class LocalStore:
    """``ports.Store`` over a dictionary: compare-and-set and keys, nothing durable."""

    def __init__(self) -> None:
        self._versions: dict[str, list[RubricVersion]] = {}
        self._keys: set[str] = set()
        self._verdicts: dict[str, Verdict] = {}

    async def register(self, rubrics: Mapping[str, Rubric]) -> None:
        """See ``Store``."""
        for key, rubric in rubrics.items():
            self._versions.setdefault(key, [RubricVersion(query_id=key, version=0, rubric=rubric)])

    async def current(self, query_id: str) -> Rubric:
        """See ``Store``."""
        return self._versions[query_id][-1].rubric

    async def commit(self, commit: Commit) -> CommitResult:
        """See ``Store``."""
        versions = self._versions[commit.query_id]
        current = versions[-1].version
        if commit.key in self._keys:
            return CommitResult(status="duplicate", version=current)
        if current != commit.from_version:
            return CommitResult(status="conflict", version=current)
        self._keys.add(commit.key)
        if commit.rubric.version > current:
            versions.append(
                RubricVersion(
                    query_id=commit.query_id,
                    version=commit.rubric.version,
                    rubric=commit.rubric,
                    edits=commit.edits,
                    key=commit.key,
                )
            )
        return CommitResult(status="applied", version=versions[-1].version)

    async def history(self, query_id: str) -> Sequence[RubricVersion]:
        """See ``Store``."""
        return tuple(self._versions[query_id])

    async def propose(self, commit: Commit) -> None:
        """No run here waits for a person."""
        raise NotImplementedError("got an edit that waits for a person, wanted none in a benchmark")

    async def num_waiting(self, query_id: str) -> int:
        """See ``Store``."""
        return 0

    async def cached_verdicts(self, keys: Sequence[str]) -> Mapping[str, Verdict]:
        """See ``Store``."""
        return {key: self._verdicts[key] for key in keys if key in self._verdicts}

    async def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        """See ``Store``."""
        self._verdicts.update(verdicts)

    async def snapshot(self, folder: str, step: int) -> None:
        """Nothing is durable."""

    async def restore(self, folder: str, step: int) -> None:
        """Nothing is durable."""
