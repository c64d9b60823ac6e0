"""Where the run's actors go: the only file that turns resources into actor options.

One placement group holds a bundle for each learner rank, rollout worker and control worker. What
the cluster lacks is said before anything is started; a group that is not placed in time says what
waited.
"""

import asyncio
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from core.config import RunConfig
from core.errors import ConfigError
from drivers.plan import Bundle, cpu_threads, placement_bundles, replica_bundles

PLACEMENT_TIMEOUT_S = 120.0
_MAX_SHARES = 8
"""Processes that a message names."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Actor options by part, in order of rank or worker number."""

    group: PlacementGroup
    rank_options: list[dict[str, Any]]
    worker_options: list[dict[str, Any]]
    control_options: list[dict[str, Any]]
    """Workers of the control policy; empty for methods without one."""

    def release(self) -> None:
        """Give the resources back."""
        remove_placement_group(self.group)


def local_resources() -> dict[str, float]:
    """Return what a Ray started here would have, without starting it: seconds saved on a no."""
    from ray._private.accelerators import get_accelerator_manager_for_resource

    manager = get_accelerator_manager_for_resource("GPU")
    num_gpus = manager.get_current_node_num_accelerators() if manager is not None else 0
    return {"GPU": float(num_gpus), "CPU": math.inf}


def check_resources(config: RunConfig, have: Mapping[str, float]) -> None:
    """Raise ConfigError when a cluster that has these resources can never hold the run."""
    bundles = (*placement_bundles(config), *replica_bundles(config))
    for resource, key, wanted in (
        ("GPU", "num_gpus", sum(b.num_gpus for b in bundles)),
        ("CPU", "num_cpus", sum(b.num_cpus for b in bundles)),
    ):
        found = have.get(resource, 0.0)
        if wanted > found:
            raise ConfigError(
                f"got a cluster with {found:g} {resource}s, wanted {wanted:g} "
                f"({_shares(bundles, key)}): lower {key} or the number of workers, ranks and "
                "replicas, or add nodes"
            )


def _shares(bundles: tuple[Bundle, ...], key: str) -> str:
    shares = [f"{b.name} {getattr(b, key):g}" for b in bundles if getattr(b, key)]
    more = len(shares) - _MAX_SHARES
    return ", ".join([*shares[:_MAX_SHARES], *([f"and {more} more"] if more > 0 else [])])


async def place(config: RunConfig) -> Placement:
    """Reserve the bundles; raises ConfigError when they are not placed within two minutes."""
    bundles = placement_bundles(config)
    group = placement_group(
        [_resources(b) for b in bundles], strategy="PACK", name=f"ratchet {config.name}"
    )
    try:
        await asyncio.wait_for(group.ready(), PLACEMENT_TIMEOUT_S)
    except TimeoutError:
        free = ray.available_resources()
        remove_placement_group(group)
        raise ConfigError(
            f"got no place for {[b.name for b in bundles]} within {PLACEMENT_TIMEOUT_S:g} s, free "
            f"are {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs: end what else runs "
            "on the cluster, or lower the run's num_cpus and num_gpus"
        ) from None
    options = [
        {
            "name": f"{b.name} [{config.name}]",
            "num_cpus": b.num_cpus,
            "num_gpus": b.num_gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=i
            ),
        }
        for i, b in enumerate(bundles)
    ]
    first_worker = config.learner.num_ranks
    first_control = first_worker + config.rollout.num_workers
    return Placement(
        group=group,
        rank_options=[o | _with_threads(config) for o in options[:first_worker]],
        worker_options=options[first_worker:first_control],
        control_options=options[first_control:],
    )


def _with_threads(config: RunConfig) -> dict[str, Any]:
    """Ray gives an actor as many threads as it has CPUs; say so where it can have more.

    A number that a person has set in the environment stands.
    """
    number = cpu_threads(config).rank
    if number <= config.learner.num_cpus or "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(number)}}}


def _resources(bundle: Bundle) -> dict[str, float]:
    named = {"CPU": bundle.num_cpus, "GPU": bundle.num_gpus}
    return {k: v for k, v in named.items() if v} or {"CPU": 0.01}
