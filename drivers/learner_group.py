"""The learner's ranks as one: implements ``drivers.ports.Learner`` over PolicyLearner actors.

Every call goes to all ranks at once, since they meet in collectives, and rank 0 answers. Each wait
is bounded by ``learner.timeout_s``. A rank that dies or fails ends the run: the others hang in a
collective then, so what went wrong on the first one to fail is raised and nothing is retried.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import ray
from ray.exceptions import RayActorError, RayTaskError

from actors.learner_engine import LOOPBACK
from actors.policy_learner import PolicyLearnerActor, RankSetup
from core.batching import EarlyPasses
from core.config import RunConfig
from core.errors import ConfigError, RunStopped, WeightSyncError
from core.records import StepReport, TrainBatch, TrainingSample, WeightUpdate
from drivers.packaged_model import resolve_model
from drivers.weights_folder import KEPT
from drivers.whereabouts import at

Transport = Literal["shm", "object_store"]


class LearnerGroup:
    """``start`` first; ``close`` ends the ranks."""

    def __init__(
        self,
        config: RunConfig,
        *,
        weights_folder: str,
        transport: Transport = "shm",
        rank_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """``rank_options``: actor options of each rank (resources, placement)."""
        self._config = config
        self._weights_folder = weights_folder
        self._transport: Transport = transport
        self._timeout_s = config.learner.timeout_s
        self._options = rank_options or [_resources(config)] * config.learner.num_ranks
        self._ranks: list[Any] = []
        if len(self._options) != config.learner.num_ranks:
            raise ConfigError(
                f"got options for {len(self._options)} ranks, wanted learner.num_ranks="
                f"{config.learner.num_ranks}"
            )

    async def start(self) -> None:
        """Create all ranks, then let them find each other and load the policy."""
        config = self._config
        policy = config.policy.model_copy(update={"model": resolve_model(config.policy.model)})
        self._ranks = [
            PolicyLearnerActor.options(
                **{"name": f"PolicyLearner rank {rank} [{config.name}]", **options}
            ).remote(rank)
            for rank, options in enumerate(self._options)
        ]
        addresses = await self._all("be placed", lambda actor: actor.address.remote())
        is_one_host = len({host for host, _ in addresses}) == 1
        master = (LOOPBACK if is_one_host else addresses[0][0], addresses[0][1])
        setups = [
            RankSetup(
                rank=rank,
                world_size=len(self._ranks),
                master=master,
                learner=config.learner,
                policy=policy,
                temperature=config.sampling.temperature,
                seed=config.seed + rank,
            )
            for rank in range(len(self._ranks))
        ]
        await self._wait(
            "load the policy",
            [a.setup.remote(setup) for a, setup in zip(self._ranks, setups, strict=True)],
        )

    async def train_step(self, batch: TrainBatch) -> StepReport:
        """Do the batch's optimizer steps; raises RunStopped on a non-finite loss."""
        shared = ray.put(batch)
        reports = await self._all(
            f"train step {batch.step}", lambda actor: actor.train_step.remote(shared)
        )
        return reports[0]

    async def accumulate(self, early: EarlyPasses) -> None:
        """Do the passes of groups that are ready before their step is."""
        shared = ray.put(early)
        step = early.batch.step
        await self._all(f"begin train step {step}", lambda actor: actor.accumulate.remote(shared))

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """Log-probs of each sample's response tokens under the current weights."""
        shared = ray.put(tuple(samples))
        lists = await self._all("give log-probs", lambda actor: actor.logprobs.remote(shared))
        return lists[0]

    async def perturb(self, scale: float, seed: int) -> None:
        """Add small deterministic noise to all weights, for the start-up self-check."""
        await self._all("perturb its weights", lambda actor: actor.perturb.remote(scale, seed))

    async def unperturb(self) -> None:
        """Put back exactly the weights from before ``perturb``."""
        await self._all("restore its weights", lambda actor: actor.unperturb.remote())

    async def publish(self, version: int) -> WeightUpdate:
        """Write the current weights where workers can read them."""
        return await self._publish(version, self._weights_folder)

    async def publish_kept(self, version: int) -> WeightUpdate:
        """Write the current weights where later versions do not replace them."""
        return await self._publish(version, f"{self._weights_folder}/{KEPT}")

    async def _publish(self, version: int, folder: str) -> WeightUpdate:
        updates = await self._all(
            f"publish version {version}",
            lambda actor: actor.publish.remote(version, self._transport, folder),
        )
        return updates[0]

    async def save(self, folder: str) -> None:
        """Write weights, optimizer and random state into ``folder``."""
        await self._all(f"save to {folder}", lambda actor: actor.save.remote(folder))

    async def load(self, folder: str) -> None:
        """Read what ``save`` wrote; raises ConfigError for another number of ranks."""
        await self._all(f"load {folder}", lambda actor: actor.load.remote(folder))

    async def export(self, folder: str) -> None:
        """Write a Hugging Face folder (weights, config, tokenizer)."""
        await self._all(f"export to {folder}", lambda actor: actor.export.remote(folder))

    def close(self) -> None:
        """End the ranks."""
        for actor in self._ranks:
            ray.kill(actor)
        self._ranks = []

    # ------------------------------------------------------------------ waiting
    async def _all(self, what: str, call: Callable[[Any], Any]) -> list[Any]:
        with at(what, actor="PolicyLearner"):
            return await self._wait(what, [call(actor) for actor in self._ranks])

    async def _wait(self, what: str, refs: Sequence[Any]) -> list[Any]:
        """Results of all ranks, or the first failure, or RunStopped when the time is over."""
        calls = [asyncio.ensure_future(_result(ref)) for ref in refs]
        done, pending = await asyncio.wait(
            calls, timeout=self._timeout_s, return_when=asyncio.FIRST_EXCEPTION
        )
        for call in pending:
            call.cancel()
        for rank, call in enumerate(calls):
            if call in done and (error := call.exception()) is not None:
                _fail(rank, what, error)
        if pending:
            late = [rank for rank, call in enumerate(calls) if call in pending]
            raise RunStopped(
                f"the driver waited {self._timeout_s:g} s for PolicyLearner rank "
                f"{', '.join(map(str, late))} to {what} and got no answer: look at its log, or "
                "raise learner.timeout_s"
            )
        return [call.result() for call in calls]


async def _result(ref: Any) -> Any:
    return await ref


def _fail(rank: int, what: str, error: BaseException) -> NoReturn:
    """Raise what the run must see; the project's own errors keep their type."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    for kind in (RunStopped, ConfigError, WeightSyncError):
        if isinstance(cause, kind):
            raise kind(str(cause)) from error
    if isinstance(error, RayActorError):
        raise RunStopped(
            f"PolicyLearner rank {rank} died while it had to {what}: {error}. If the machine ran "
            "out of memory, lower learner.token_budget or raise learner.zero_stage"
        ) from error
    raise RunStopped(
        f"PolicyLearner rank {rank} failed to {what}: {type(cause).__name__}: {cause}"
    ) from error


def _resources(config: RunConfig) -> dict[str, Any]:
    return {"num_cpus": config.learner.num_cpus, "num_gpus": config.learner.num_gpus}
