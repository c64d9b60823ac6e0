"""The engines that only keep time on Ray: actors for workers and learner, deployments for judge and
writer, and the real RubricStore, behind the same clients that a run uses.

``start`` a set of engines once; ``parts`` gives it another workload and a fresh store for the next
run, with policy version 0 loaded; ``busy`` collects what the engines noted. ``close`` ends all of
it. The deployments are ``JudgeReplica`` and ``WriterReplica`` with another backend, deployed with
the options that ``drivers/serving.py`` uses.
"""

import asyncio
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from pydantic import SecretStr
from ray import serve

from core.batching import EarlyPasses
from core.config import RunConfig
from core.config_served import GradingConfig, ServedModelConfig, WriterConfig
from core.records import StepReport, TrainBatch, TrainingSample, WeightUpdate
from core.rubric import Rubric
from drivers.bench.timed_engines import Busy, TimedBackend, TimedLearner, TimedWorker
from drivers.bench.workload import Workload
from drivers.ports import Parts
from drivers.rollout_handles import RayRolloutWorker
from drivers.rollout_pool import RayRolloutPool
from drivers.rubric_store_client import StoreClient, start_store
from drivers.served_clients import ServedJudge, ServedWriter
from serve.backends.base import CompletionBackend
from serve.identity import judge_identity, writer_identity
from serve.judge import JudgeReplica
from serve.writer import WriterReplica

_LIMIT_S = 120.0
"""Longest wait for one answer while engines are started or set up."""

TimedWorkerActor = ray.remote(TimedWorker)
TimedLearnerActor = ray.remote(TimedLearner)


class _Timed:
    """What the timed replicas add: ``configure`` and ``busy``."""

    _backend: CompletionBackend | None
    _count: int
    _workload: Workload

    async def start(
        self, config: ServedModelConfig, api_key: SecretStr, model: str, *, part: str
    ) -> CompletionBackend | None:
        """In place of ``Replica.start``: a backend that keeps time."""
        self._config = config
        self._timed = self._backend = TimedBackend(self._workload, self._count)
        return self._backend

    async def configure(self, workload: Workload, count: int) -> None:
        """Go on with another workload."""
        self._timed.configure(workload, count)

    async def busy(self) -> list[Busy]:
        """Return when places worked."""
        return self._timed.busy()


class TimedJudgeReplica(_Timed, JudgeReplica):  # type: ignore[misc]
    """The judge's replica over a backend that keeps time."""

    async def __init__(self, config: GradingConfig, workload: Workload) -> None:
        self._workload, self._count = workload, workload.places.judge
        await JudgeReplica.__init__(self, config, SecretStr(""), config.model)  # type: ignore[misc]


class TimedWriterReplica(_Timed, WriterReplica):  # type: ignore[misc]
    """The writer's replica over a backend that keeps time."""

    async def __init__(self, config: WriterConfig, workload: Workload) -> None:
        self._workload, self._count = workload, workload.places.writer
        await WriterReplica.__init__(self, config, SecretStr(""), config.model)  # type: ignore[misc]


class RayLearner:
    """``ports.Learner`` over the timed learner's actor; a batch travels as ``LearnerGroup``'s."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def train_step(self, batch: TrainBatch) -> StepReport:
        """See ``Learner``."""
        return await self._actor.train_step.remote(ray.put(batch))

    async def accumulate(self, early: EarlyPasses) -> None:
        """See ``Learner``."""
        await self._actor.accumulate.remote(ray.put(early))

    async def publish(self, version: int) -> WeightUpdate:
        """See ``Learner``."""
        return await self._actor.publish.remote(version)

    async def save(self, folder: str) -> None:
        """Nothing is kept."""

    async def load(self, folder: str) -> None:
        """Nothing is read."""

    async def export(self, folder: str) -> None:
        """Nothing is written."""

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """See ``Learner``."""
        return await self._actor.logprobs.remote(tuple(samples))

    async def perturb(self, scale: float, seed: int) -> None:
        """Nothing changes."""

    async def unperturb(self) -> None:
        """Nothing changes."""


class TimedCluster:
    """One set of engines; Ray and Serve run already."""

    def __init__(self, name: str, folder: Path) -> None:
        """``folder``: where each run's store has its file."""
        self._name = name
        self._folder = folder
        self._workers: list[Any] = []
        self._learner: Any = None
        self._handles: dict[str, Any] = {}
        self._store: StoreClient | None = None
        self._num_runs = 0

    async def start(self, config: RunConfig, workload: Workload) -> None:
        """Start workers, learner, judge and writer, with the config's queue limits."""
        self._workers = [
            TimedWorkerActor.options(name=f"{self._name} worker {i}", num_cpus=0).remote(
                i, workload
            )
            for i in range(workload.places.workers)
        ]
        self._learner = TimedLearnerActor.options(name=f"{self._name} learner", num_cpus=0).remote(
            workload
        )
        await self._deploy("judge", TimedJudgeReplica, config.judge, workload)
        await self._deploy("writer", TimedWriterReplica, config.writer, workload)

    async def _deploy(
        self, part: str, replica: type, config: ServedModelConfig, workload: Workload
    ) -> None:
        deployment: Any = serve.deployment(replica)
        app = deployment.options(
            name=part,
            num_replicas=1,
            max_ongoing_requests=config.max_ongoing_requests,
            max_queued_requests=config.max_queued_requests,
            graceful_shutdown_wait_loop_s=0.5,
            graceful_shutdown_timeout_s=5.0,
            ray_actor_options={"num_cpus": 0},
        ).bind(config, workload)
        run = functools.partial(serve.run, app, name=f"{self._name}-{part}", route_prefix=None)
        self._handles[part] = await asyncio.wait_for(asyncio.to_thread(run), _LIMIT_S)

    async def parts(
        self, config: RunConfig, workload: Workload, rubrics: Mapping[str, Rubric]
    ) -> Parts:
        """Return parts that have run nothing yet."""
        self._end_store()
        self._num_runs += 1
        path = self._folder / f"{self._name}-{self._num_runs}.sqlite"
        name = f"{self._name} {self._num_runs}"
        self._store, *_ = await asyncio.gather(
            start_store(name, path, rubrics=rubrics), self._configure(workload)
        )
        pool = RayRolloutPool(
            config.rollout,
            lambda index: RayRolloutWorker(index, lambda: self._workers[index], kind="TimedWorker"),
        )
        await pool.start()
        await pool.load_weights(WeightUpdate(version=0, transport="shm"))
        return Parts(
            pool=pool,
            learner=RayLearner(self._learner),
            judge=ServedJudge(self._handles["judge"], config.judge, judge_identity(config.judge)),
            writer=ServedWriter(
                self._handles["writer"], config.writer, writer_identity(config.writer)
            ),
            store=self._store,
        )

    async def _configure(self, workload: Workload) -> None:
        places = workload.places
        calls = [actor.configure.remote(workload) for actor in (*self._workers, self._learner)]
        calls.append(self._handles["judge"].configure.remote(workload, places.judge))
        calls.append(self._handles["writer"].configure.remote(workload, places.writer))
        await asyncio.wait_for(asyncio.gather(*map(_awaited, calls)), _LIMIT_S)

    async def busy(self) -> dict[str, list[Busy]]:
        """Return when each kind of place was busy since ``parts``."""
        calls = [actor.busy.remote() for actor in (*self._workers, self._learner)]
        calls += [self._handles[part].busy.remote() for part in ("judge", "writer")]
        noted: list[list[Busy]] = await asyncio.wait_for(
            asyncio.gather(*map(_awaited, calls)), _LIMIT_S
        )
        *workers, learner, judge, writer = noted
        return {
            "generation": [b for each in workers for b in each],
            "judge": judge,
            "writer": writer,
            "learner": learner,
        }

    def _end_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def close(self) -> None:
        """End actors and store; Serve's applications end with Serve."""
        self._end_store()
        for actor in (*self._workers, self._learner):
            if actor is not None:
                ray.kill(actor)
        self._workers, self._learner = [], None


async def _awaited(response: Any) -> Any:
    return await response
