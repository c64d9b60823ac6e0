"""One run on a Ray cluster: starts the parts, goes to where the run stands, trains, finishes.

The order is the contract: resources are checked before anything is placed; judge, writer, store,
learner and workers start side by side; a checkpoint is loaded; the self-check compares log-probs of
workers and learner; then the loop runs. Whatever happens, the processes of this run are ended.
"""

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import ray

from core.config import RunConfig
from core.config_evolution import OnlineRubricsEvolution
from drivers.branch import FrozenBranch
from drivers.checkpoint import (
    Checkpoint,
    Checkpoints,
    Identity,
    check_same_run,
    identity_of,
    latest_checkpoint,
)
from drivers.config_file import dump_config
from drivers.control_pool import ControlPool
from drivers.evaluate import Evaluator
from drivers.learner_group import LearnerGroup
from drivers.live_metrics import LiveMetrics, Source, live_metrics
from drivers.loop import Position, TrainLoop
from drivers.packaged_model import resolve_model
from drivers.past_groups import past_groups
from drivers.placement import Placement, check_resources, place
from drivers.ports import Parts
from drivers.progress import Progress
from drivers.rollout_handles import make_rollout_pool
from drivers.rollout_pool import PoolStatus, RayRolloutPool
from drivers.rubric_store_client import StoreClient, start_store
from drivers.run_data import RunData
from drivers.run_folder import RunFolder
from drivers.self_check import check_logprobs
from drivers.serving import start_serving, stop_serving
from drivers.spending import Spending

log = logging.getLogger("ratchet")


class Run:
    """Everything between a checked config and a finished run folder."""

    def __init__(
        self,
        config: RunConfig,
        data: RunData,
        folder: RunFolder,
        started: float,
        branch: FrozenBranch | None = None,
    ) -> None:
        """A run of its own, or ``branch``, whose config and data these then are."""
        self._config = config
        self._data = data
        self._folder = folder
        self._started = started
        self._branch = branch
        self._loop: TrainLoop | None = None
        self._control: ControlPool | None = None
        self._live_sources: list[Source] = []

    def request_stop(self) -> bool:
        """Ask the loop for an end with a checkpoint; False when it is not running yet."""
        if self._loop is None:
            return False
        self._loop.request_stop()
        return True

    async def train(self) -> bool:
        """Train until the configured step, or until a stop; True when the run is finished."""
        config = self._config
        check_resources(config, ray.cluster_resources())
        if config.fresh:
            self._folder.start_over()
        found = latest_checkpoint(self._folder.checkpoints)
        if found is not None:
            check_same_run(found.identity, self._identity())
        is_resumed = found is not None
        if self._branch is not None:
            self._branch.record()
            found = found or self._branch.start
        try:
            end = await self._train_on_parts(found)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        if end.step < config.loop.steps:
            log.info("stopped after step %d; the same command goes on from there", end.step)
            return False
        self._folder.finish(
            config,
            wall_s=self._wall_s(found),
            is_resumed=is_resumed,
            install_s=_install_s(),
        )
        return True

    async def _train_on_parts(self, found: Checkpoint | None) -> Position:
        config = self._config
        async with AsyncExitStack() as closing:
            placement = await place(config)
            closing.callback(placement.release)
            parts, store = await self._start_parts(placement, closing)
            position = await self._restore(parts, store, found)
            end = await self._train_from(position, parts, found)
            if end.step >= config.loop.steps:  # more, where a longer run was asked to end here
                await parts.learner.export(str(self._folder.policy))
            return end

    def _identity(self) -> Identity:
        return identity_of(self._config, self._data.fingerprint)

    def _wall_s(self, found: Checkpoint | None) -> float:
        """Seconds of all parts of the run until now."""
        return (found.wall_s if found else 0.0) + time.monotonic() - self._started

    # ------------------------------------------------------------------ starting
    async def _start_parts(
        self, placement: Placement, closing: AsyncExitStack
    ) -> tuple[Parts, StoreClient]:
        """Start everything side by side; what was started is closed in reverse order."""
        config = self._config
        spending = Spending(config.budget, self._folder.files.spending)
        spending.check()
        closing.callback(spending.save)
        weights = _weights_folder(self._folder.path)
        learner = LearnerGroup(
            config,
            weights_folder=str(weights),
            transport=config.rollout.weight_transport,
            rank_options=placement.rank_options,
        )
        pool = make_rollout_pool(
            config.policy,
            config.rollout,
            model_folder=resolve_model(config.policy.model),
            actor_options=placement.worker_options,
        )
        closing.callback(shutil.rmtree, weights, ignore_errors=True)
        closing.callback(learner.close)
        closing.push_async_callback(pool.shutdown)
        control_workers = _control_workers(config, placement)
        if control_workers is not None:
            closing.push_async_callback(control_workers.shutdown)
        closing.push_async_callback(_end_serving, config.name)
        log.info("starting workers, learner, judge, writer and store")
        started = time.monotonic()
        async with asyncio.TaskGroup() as starting:
            store = starting.create_task(
                start_store(config.name, self._folder.rubrics, rubrics=self._data.rubrics)
            )
            served = starting.create_task(start_serving(config, spending))
            starting.create_task(learner.start())
            starting.create_task(pool.start())
            if control_workers is not None:
                starting.create_task(control_workers.start())
        closing.callback(store.result().close)
        log.info("all parts ready after %.0f s", time.monotonic() - started)
        judge, writer = served.result().judge, served.result().writer
        self._live_sources = [
            lambda: _pool_figures(pool.status()),
            judge.stats,
            writer.stats,
            spending.metrics,
        ]
        self._control = await _control_pool(config, control_workers, learner)
        parts = Parts(
            pool=pool,
            learner=learner,
            judge=judge,
            writer=writer,
            store=store.result(),
            control=self._control,
            reference=served.result().reference,
            spending=spending,
        )
        return parts, store.result()

    async def _restore(
        self, parts: Parts, store: StoreClient, found: Checkpoint | None
    ) -> Position:
        """Bring learner, rubrics, files and workers to the same step."""
        position = found.position if found else Position()
        if found is not None:
            log.info("going on after step %d", position.step)
            # First: a checkpoint that does not fit is refused before any file is taken back.
            await parts.learner.load(str(found.folder / "learner"))
        self._folder.begin(dump_config(self._config), last_step=position.step)
        # A branch begins with rubrics of its own: they are in the store as version 0.
        is_own = found is not None and (self._branch is None or found is not self._branch.start)
        await store.restore(str(found.folder / "store") if found and is_own else "", position.step)
        self._folder.files.restore_edits(await store.edited())
        await check_logprobs(self._config, parts.pool, parts.learner, version=position.step)
        if self._control is not None and not self._control.has_begun:
            await self._control.begin(await parts.learner.publish(position.step))
        return position

    # ------------------------------------------------------------------ training
    async def _train_from(
        self, position: Position, parts: Parts, found: Checkpoint | None
    ) -> Position:
        config = self._config
        queries = {q.id: q for q in self._data.train}
        past = await past_groups(
            self._folder.files, parts.store, queries, config.evolution, position.step
        )
        progress = Progress(config.loop.steps, position.step)
        checkpoints = Checkpoints(
            self._folder.checkpoints,
            parts.learner,
            parts.store,
            self._identity(),
            config.loop.keep_checkpoints,
            wall_s=lambda: self._wall_s(found),
        )
        evaluator = None
        if self._data.eval:
            evaluator = Evaluator(config, self._data.eval, parts.pool, parts.judge, parts.store)
        with self._folder.recorder() as recorder:
            self._loop = TrainLoop(
                config,
                queries,
                parts,
                recorder,
                checkpoints,
                evaluator,
                progress,
            )
            sources = [self._loop.live_figures, *self._live_sources]
            try:
                async with live_metrics(LiveMetrics(config.name), sources):
                    return await self._loop.run(position, past)
            finally:
                progress.close()


def _control_workers(config: RunConfig, placement: Placement) -> RayRolloutPool | None:
    """Return the workers of the control policy, not started; None for methods without one."""
    num_workers = len(placement.control_options)
    if num_workers == 0:
        return None
    return make_rollout_pool(
        config.policy,
        config.rollout.model_copy(update={"num_workers": num_workers}),
        model_folder=resolve_model(config.policy.model),
        actor_options=placement.control_options,
        kind="ControlWorker",
    )


async def _control_pool(
    config: RunConfig, workers: RayRolloutPool | None, learner: LearnerGroup
) -> ControlPool | None:
    """Return the control policy over its workers; a reference has the initial weights, which the
    learner still holds when this is called."""
    if workers is None or not isinstance(config.evolution, OnlineRubricsEvolution):
        return None
    policy = config.evolution.online.control
    control = ControlPool(workers, policy)
    if policy == "reference":
        await control.begin(await learner.publish_kept(0))
    return control


def _pool_figures(status: PoolStatus) -> dict[str, float]:
    return {
        "rollout/running": float(status.num_running),
        "rollout/waiting": float(status.num_waiting),
        "rollout/restarts": float(status.num_restarts),
    }


async def _end_serving(name: str) -> None:
    """End judge and writer; what keeps them from ending must not hide how the run ended."""
    try:
        await stop_serving(name)
    except Exception:
        log.warning(
            "judge and writer of %s may still run (the next start of the run adopts them; `serve "
            "status` shows them)",
            name,
            exc_info=True,
        )


def _install_s() -> float | None:
    """Seconds that the installation took, as ``make train`` passes them on."""
    text = os.environ.get("RATCHET_INSTALL_S", "")
    return float(text) if text.replace(".", "", 1).isdigit() else None


def _weights_folder(run: Path) -> Path:
    """A folder of this driver for published weights, in shared memory where there is one.

    What a killed driver of the same run left is removed: the run's lock is held, so nobody uses it.
    """
    shared = Path("/dev/shm")
    parent = shared if shared.is_dir() else Path(tempfile.gettempdir())
    place = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:8]
    prefix = f"ratchet-{run.name}-{place}-"
    for left in parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
