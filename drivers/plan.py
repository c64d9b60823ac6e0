"""What a run would do, as text: the resolved config, the placement plan, calls, what is missing.

Importable without torch, vLLM or Ray: this is what ``--dry-run`` prints.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from core.config import RunConfig
from core.config_evolution import OnlineRubricsEvolution
from core.config_served import ServedModelConfig
from core.errors import ConfigError
from drivers.call_estimates import estimated_calls
from drivers.config_file import dump_config
from drivers.preflight import missing
from drivers.run_data import RunData, load_run_data


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The resources of one process of the run."""

    name: str
    num_cpus: float
    num_gpus: float


def placement_bundles(config: RunConfig) -> tuple[Bundle, ...]:
    """Return what each actor reserves: ranks first, then workers, then control workers."""
    learner, rollout = config.learner, config.rollout
    ranks = [
        Bundle(name=f"PolicyLearner rank {i}", num_cpus=learner.num_cpus, num_gpus=learner.num_gpus)
        for i in range(learner.num_ranks)
    ]
    workers = [
        Bundle(name=f"RolloutWorker {i}", num_cpus=rollout.num_cpus, num_gpus=rollout.num_gpus)
        for i in range(rollout.num_workers)
    ]
    controls = [
        Bundle(name=f"ControlWorker {i}", num_cpus=rollout.num_cpus, num_gpus=rollout.num_gpus)
        for i in range(num_control_workers(config))
    ]
    return (*ranks, *workers, *controls)


@dataclass(frozen=True, kw_only=True)
class CpuThreads:
    """Threads that a rank and a rollout worker compute with where they have no GPU."""

    rank: int
    worker: int


def cpu_threads(config: RunConfig) -> CpuThreads:
    """Return a process's own CPUs, or its share of all of them where the two take turns.

    At ``max_policy_age`` 0 workers are idle while the learner updates, and the learner while they
    generate: on one host each side can have the CPUs that both reserve. Run ahead, they compute at
    the same time, and each keeps to its own.
    """
    learner, rollout = config.learner, config.rollout
    on_cpu = learner.num_gpus == 0 and rollout.num_gpus == 0
    is_one_host = rollout.weight_transport == "shm"
    if config.loop.max_policy_age > 0 or not on_cpu or not is_one_host:
        return CpuThreads(rank=max(1, int(learner.num_cpus)), worker=max(1, int(rollout.num_cpus)))
    both = learner.num_ranks * learner.num_cpus + rollout.num_workers * rollout.num_cpus
    return CpuThreads(
        rank=max(1, int(both / learner.num_ranks)), worker=max(1, int(both / rollout.num_workers))
    )


def num_control_workers(config: RunConfig) -> int:
    """Rollout workers of the control policy (Online Rubrics); 0 for every other method."""
    method = config.evolution
    return method.online.control_workers if isinstance(method, OnlineRubricsEvolution) else 0


def replica_bundles(config: RunConfig) -> tuple[Bundle, ...]:
    """Return what the Serve replicas reserve (Serve places them itself)."""
    parts: list[tuple[str, ServedModelConfig]] = [("Judge", config.judge)]
    if config.has_writer:
        parts.append(("RubricWriter", config.writer))
    if config.reference_judge is not None:
        parts.append(("ReferenceJudge", config.reference_judge))
    return tuple(
        Bundle(name=f"{name} replica {i}", num_cpus=part.num_cpus, num_gpus=part.num_gpus)
        for name, part in parts
        for i in range(part.num_replicas)
    )


def plan_text(config: RunConfig, *, data_config: RunConfig | None = None, done: int = 0) -> str:
    """Return what ``--dry-run`` prints.

    A branch draws the queries of ``data_config`` and makes the steps after ``done``.
    """
    bundles = (*placement_bundles(config), *replica_bundles(config))
    cpus = sum(b.num_cpus for b in bundles)
    gpus = sum(b.num_gpus for b in bundles)
    data, problems = _loaded(config, data_config or config)
    calls = estimated_calls(config, data, done=done)
    lines = ["# resolved config", dump_config(config), "# placement"]
    lines += [f"{b.name}: {b.num_cpus:g} CPU, {b.num_gpus:g} GPU" for b in bundles]
    lines += [f"in all: {cpus:g} CPU, {gpus:g} GPU", "", _calls_title(config, data)]
    lines += [f"{name}: {number}" for name, number in calls.items()]
    lines += ["", "# missing"]
    lines += [*problems, *_gpu_problems(gpus)] or ["nothing"]
    return "\n".join(lines)


def _calls_title(config: RunConfig, data: RunData | None) -> str:
    """Return what the numbers of calls are, and what they assume where the data cannot be read."""
    title = "# calls at most, without retries"
    if data is not None:
        return title
    if config.judge.per_criterion:
        return f"{title} (without the data: as if a rubric had one criterion)"
    return f"{title} (without the data: as if queries had gold criteria)"


def _loaded(config: RunConfig, data_config: RunConfig) -> tuple[RunData | None, list[str]]:
    """The run's data if it can be read, and everything that is missing."""
    try:
        data = load_run_data(data_config)
    except ConfigError as error:
        problems = _absent_files(config) or [str(error)]
        return None, [*problems, *missing(config, RunData(train=(), eval=(), fingerprint=""))]
    return data, missing(config, data)


def _absent_files(config: RunConfig) -> list[str]:
    """Name every data file that is not there: loading them says the first one only."""
    data = config.data
    files = (data.train, *([data.eval] if data.eval else []), *data.task_rubrics.values())
    return [
        f"{name}: got no such file, wanted the run's data there; check the path in the config"
        for name in files
        if not os.path.exists(name)
    ]


def _gpu_problems(wanted: float) -> list[str]:
    """Say when this machine has too few GPUs and no cluster is named; Ray is not asked."""
    found = _num_local_gpus()
    if wanted <= found or os.environ.get("RAY_ADDRESS"):
        return []
    return [
        f"got {found} GPUs on this machine, wanted {wanted:g}: submit the run to a Ray cluster "
        "that has them (or set RAY_ADDRESS), or lower num_gpus, num_workers and num_ranks"
    ]


def _num_local_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return sum(bool(entry.strip()) and entry.strip() != "-1" for entry in visible.split(","))
    return len(list(Path("/dev").glob("nvidia[0-9]*")))
