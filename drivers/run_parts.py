"""Starts the parts of a run: workers, learner, judge, writer, store, and what a method adds.

All start side by side; each is put on the caller's stack, which ends them in reverse order,
whatever happens.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from core.config import RunConfig
from core.config_evolution import OnlineRubricsEvolution
from core.rubric import Rubric
from drivers.control_pool import ControlPool
from drivers.learner_group import LearnerGroup
from drivers.live_metrics import Source
from drivers.packaged_model import resolve_model
from drivers.placement import Placement
from drivers.plan import cpu_threads
from drivers.ports import Parts
from drivers.rollout_handles import make_rollout_pool
from drivers.rollout_pool import PoolStatus, RayRolloutPool
from drivers.rubric_store_client import StoreClient, start_store
from drivers.run_folder import RunFolder
from drivers.serving import Served, start_serving, stop_serving
from drivers.spending import Spending
from drivers.weights_folder import make_weights_folder, remove_weights_folders

log = logging.getLogger("ratchet")


@dataclass(frozen=True, kw_only=True)
class Started:
    """The running parts."""

    parts: Parts
    store: StoreClient
    control: ControlPool | None
    live_sources: tuple[Source, ...]
    """What a dashboard shows between two steps, beside the loop's own figures."""


async def start_parts(
    config: RunConfig,
    rubrics: Mapping[str, Rubric],
    folder: RunFolder,
    placement: Placement,
    closing: AsyncExitStack,
) -> Started:
    """Start everything; raises RunStopped when the run's budget is used up already."""
    spending = Spending(config.budget, folder.files.spending)
    spending.check()
    closing.callback(spending.save)
    learner = _learner(config, folder, placement, closing)
    pool = _pool(config, placement.worker_options, "RolloutWorker", closing)
    pools, control_workers = [pool], None
    if placement.control_options:
        control_workers = _pool(config, placement.control_options, "ControlWorker", closing)
        pools.append(control_workers)
    closing.push_async_callback(_end_serving, config.name)
    log.info("starting workers, learner, judge, writer and store")
    began = time.monotonic()
    async with asyncio.TaskGroup() as starting:
        store = starting.create_task(start_store(config.name, folder.rubrics, rubrics=rubrics))
        serving = starting.create_task(start_serving(config, spending))
        starting.create_task(learner.start())
        for each in pools:
            starting.create_task(each.start())
    closing.callback(store.result().close)
    log.info("all parts ready after %.0f s", time.monotonic() - began)
    served = serving.result()
    control = await _control_pool(config, control_workers, learner)
    parts = Parts(
        pool=pool,
        learner=learner,
        judge=served.judge,
        writer=served.writer,
        store=store.result(),
        control=control,
        reference=served.reference,
        spending=spending,
    )
    sources = (lambda: _pool_figures(pool.status()), *_served_figures(served), spending.metrics)
    return Started(parts=parts, store=store.result(), control=control, live_sources=sources)


def _served_figures(served: Served) -> tuple[Source, ...]:
    clients = (served.judge, served.writer, served.reference)
    return tuple(client.stats for client in clients if client is not None)


def _learner(
    config: RunConfig, folder: RunFolder, placement: Placement, closing: AsyncExitStack
) -> LearnerGroup:
    """Return the learner, not started."""
    weights = make_weights_folder(folder.path)
    closing.callback(remove_weights_folders, folder.path)
    learner = LearnerGroup(
        config,
        weights_folder=str(weights),
        transport=config.rollout.weight_transport,
        rank_options=placement.rank_options,
    )
    closing.callback(learner.close)
    return learner


def _pool(
    config: RunConfig,
    actor_options: Sequence[Mapping[str, Any]],
    kind: str,
    closing: AsyncExitStack,
) -> RayRolloutPool:
    """Return workers of the policy, or of the control policy, not started.

    Control workers generate beside the policy's and keep to their own CPUs.
    """
    is_control = kind == "ControlWorker"
    pool = make_rollout_pool(
        config.policy,
        config.rollout.model_copy(update={"num_workers": len(actor_options)}),
        model_folder=resolve_model(config.policy.model),
        actor_options=actor_options,
        kind=kind,
        num_threads=None if is_control else cpu_threads(config).worker,
    )
    closing.push_async_callback(pool.shutdown)
    return pool


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
