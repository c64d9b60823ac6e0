"""One run on a Ray cluster: has its parts started, goes to where it stands, trains, finishes.

The order is the contract: resources are checked before anything is placed; judge, writer, store,
learner and workers start side by side; a checkpoint is loaded; the self-check compares log-probs of
workers and learner; then the loop runs. Whatever happens, the processes of this run are ended.
"""

import logging
import os
import time
from contextlib import AsyncExitStack

import ray

from core.config import RunConfig
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
from drivers.gathered import first_error
from drivers.held_out import Evaluator
from drivers.live_file import LiveFile, written
from drivers.live_metrics import LiveMetrics, live_metrics
from drivers.loop import Position, TrainLoop
from drivers.past_groups import past_groups
from drivers.placement import check_resources, place
from drivers.progress import Progress
from drivers.run_data import RunData
from drivers.run_folder import RunFolder
from drivers.run_parts import Started, start_parts
from drivers.self_check import check_logprobs
from drivers.stall_watchdog import stall_watchdog
from drivers.whereabouts import tracking

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
        self._live: LiveFile | None = None

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
        files = self._folder.files
        try:
            with tracking() as table:
                self._live = LiveFile(files.live, config.name, config.loop.steps, table)
                watchdog = stall_watchdog(table, config.loop.stall_after_s, files.stalls)
                async with written(self._live), watchdog:
                    end = await self._train_on_parts(found)
        except BaseExceptionGroup as group:
            raise first_error(group) from None
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
            started = await start_parts(
                config, self._data.rubrics, self._folder, placement, closing
            )
            position = await self._restore(started, found)
            end = await self._train_from(position, started, found)
            if end.step >= config.loop.steps:  # more, where a longer run was asked to end here
                await started.parts.learner.export(str(self._folder.policy))
            return end

    def _identity(self) -> Identity:
        return identity_of(self._config, self._data.fingerprint)

    def _wall_s(self, found: Checkpoint | None) -> float:
        """Seconds of all parts of the run until now."""
        return (found.wall_s if found else 0.0) + time.monotonic() - self._started

    # ------------------------------------------------------------------ going on
    async def _restore(self, started: Started, found: Checkpoint | None) -> Position:
        """Bring learner, rubrics, files and workers to the same step."""
        parts, store = started.parts, started.store
        position = found.position if found else Position()
        if found is not None:
            log.info("going on after step %d", position.step)
            # First: a checkpoint that does not fit is refused before any file is taken back.
            await parts.learner.load(str(found.folder / "learner"))
        # A branch begins with rubrics of its own: they are in the store as version 0.
        is_own = found is not None and (self._branch is None or found is not self._branch.start)
        snapshot = str(found.folder / "store") if found and is_own else ""
        with self._folder.files.editing():  # no person's edit between the file and its events
            self._folder.begin(dump_config(self._config), last_step=position.step)
            await store.restore(snapshot, position.step)
            self._folder.files.restore_edits(await store.edited())
        await check_logprobs(self._config, parts.pool, parts.learner, version=position.step)
        if started.control is not None and not started.control.has_begun:
            await started.control.begin(await parts.learner.publish(position.step))
        return position

    # ------------------------------------------------------------------ training
    async def _train_from(
        self, position: Position, started: Started, found: Checkpoint | None
    ) -> Position:
        config, parts = self._config, started.parts
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
            sources = [self._loop.live_figures, *started.live_sources]
            if self._live is not None:
                self._live.sources = sources
            try:
                async with live_metrics(LiveMetrics(config.name), sources):
                    return await self._loop.run(position, past)
            finally:
                progress.close()


def _install_s() -> float | None:
    """Seconds that the installation took, as ``make train`` passes them on."""
    text = os.environ.get("RATCHET_INSTALL_S", "")
    return float(text) if text.replace(".", "", 1).isdigit() else None
