"""Rollout workers as Ray actors, behind the port that ``drivers/rollout_pool.py`` knows.

A handle never restarts its actor by itself (``max_restarts=0``): the pool makes a new one, so that
a restarted worker cannot get requests before it has the current weights. Calls that fail because
the actor's process is gone raise WorkerDiedError; errors of our own come through as they are.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import (
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    TaskCancelledError,
)

from actors.rollout_worker import RolloutWorkerActor
from core.config import PolicyConfig, RolloutConfig
from core.engine_args import policy_engine_args
from core.errors import ConfigError, RolloutError, StaleVersionError, WeightSyncError
from core.records import GenerateRequest, Rollout, WeightUpdate
from drivers.rollout_pool import RayRolloutPool, WorkerDiedError

logger = logging.getLogger(__name__)

_NAME_WAIT_S = 60.0
_OWN_ERRORS = (ConfigError, RolloutError, StaleVersionError, WeightSyncError)


def make_rollout_pool(
    policy: PolicyConfig,
    rollout: RolloutConfig,
    *,
    model_folder: str,
    actor_options: Sequence[Mapping[str, Any]],
    kind: str = "RolloutWorker",
    num_threads: int | None = None,
) -> RayRolloutPool:
    """Build the pool; ``actor_options`` are Ray's, one mapping a worker, from placement.

    ``kind`` is what messages call its workers; an engine on CPU has ``num_threads`` (default: as
    many as CPUs).
    """
    assert len(actor_options) == rollout.num_workers, (len(actor_options), rollout.num_workers)
    is_cpu = rollout.num_gpus == 0
    args = policy_engine_args(policy, rollout, is_cpu=is_cpu, model_folder=model_folder)

    def make_worker(index: int) -> RayRolloutWorker:
        def make_actor() -> Any:
            return RolloutWorkerActor.options(
                **{"name": f"{kind} {index}", **actor_options[index], "max_restarts": 0}
            ).remote(
                index,
                args,
                num_cpus=num_threads or rollout.num_cpus,
                is_cpu=is_cpu,
                chat_template=policy.chat_template,
            )

        return RayRolloutWorker(index, make_actor, kind=kind)

    return RayRolloutPool(rollout, make_worker, kind=kind)


class RayRolloutWorker:
    """One actor as a ``WorkerPort``; the actor is made by ``start``."""

    def __init__(
        self, index: int, make_actor: Callable[[], Any], *, kind: str = "RolloutWorker"
    ) -> None:
        self.index = index
        self.name = f"{kind} {index}"
        self._make_actor = make_actor
        self._actor: Any = None

    async def start(self) -> None:
        """Make the actor and start its engine."""
        self._actor = await self._made()
        await self._call("start")

    async def _made(self) -> Any:
        """Make the actor; the name of one that has just died is free a moment later."""
        deadline = asyncio.get_running_loop().time() + _NAME_WAIT_S
        while True:
            try:
                return self._make_actor()
            except ValueError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise RolloutError(
                        f"{self.name} waited {_NAME_WAIT_S:.0f} s for its name to "
                        f"be free, wanted no other actor of that name: {error}"
                    ) from error
                await asyncio.sleep(0.2)

    async def generate(self, request: GenerateRequest) -> Rollout:
        """Return one rollout."""
        return await self._call("generate", request)

    async def load_weights(self, update: WeightUpdate) -> int:
        """Load the update and return the version now loaded."""
        return (await self._call("load_weights", update)).version

    async def check(self) -> None:
        """Return after a round trip to the engine."""
        await self._call("check_engine")

    async def shutdown(self) -> None:
        """End the engine; the actor itself ends by ``kill``."""
        if self._actor is not None:
            await self._call("shutdown")

    def kill(self) -> None:
        """End the actor's process; its engine's processes follow by themselves."""
        if self._actor is not None:
            with contextlib.suppress(RayError, ValueError):
                ray.kill(self._actor, no_restart=True)

    async def _call(self, method: str, *args: Any) -> Any:
        """Await an actor call; when the caller gives up, the actor's task is cancelled too."""
        if self._actor is None:
            raise WorkerDiedError(f"{self.name} has no actor yet")
        ref = getattr(self._actor, method).remote(*args)
        try:
            return await ref
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise
        except (RayActorError, OutOfMemoryError, TaskCancelledError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise WorkerDiedError(f"the process of {self.name} ended: {reason}") from error
        except RayTaskError as error:
            for kind in _OWN_ERRORS:
                if isinstance(error.cause, kind):  # without the remote traceback in its text
                    raise kind(str(error.cause)) from error
            raise RolloutError(
                f"{self.name} failed in {method}: {type(error.cause).__name__}: {error.cause}"
            ) from error
