"""What evolution costs: the real loop on Ray and Serve over engines that only keep time.

Each mix of phases is calibrated once on a clock that jumps; then every arm (a method, under the
synchronous schedule or at a policy age) runs in real time on real actors, deployments and a real
store, and is predicted on the jumping clock: what it takes more is the control plane's. All arms of
a mix meet the same durations, and two run side by side (static and CARE, RARE and Ratchet) where
two cores are enough for both, so that noise of the machine hits both. All arms have the same
places, none shared between phases.
"""

import asyncio
import functools
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from drivers.bench.overlap_arms import (
    METHODS,
    Arm,
    Method,
    Ran,
    Size,
    arm_config,
    queries_of,
    run_arm,
)
from drivers.bench.overlap_predicted import (
    Mix,
    Predicted,
    calibrated,
    enough_writer_places,
    predicted,
    steady_ratios,
)
from drivers.bench.part import Options, Part, Row
from drivers.bench.workload import Times, Workload

T = TypeVar("T")

log = logging.getLogger("ratchet")

MIXES = (
    Mix(name="A", generation=0.55, judge=0.20, update=0.25, ages=(0, 1, 2)),
    Mix(name="B", generation=0.70, judge=0.10, update=0.20),
    Mix(name="C", generation=0.40, judge=0.35, update=0.25),
)
PAPER_SECOND_S = 0.02
_PAIRS: tuple[tuple[Method, Method], ...] = (("static", "care"), ("rare", "ratchet"))
_AT_ONCE = 2
_ALONE_FROM_AGE = 2


def measure(options: Options) -> Any:
    """Return a list, one entry a mix."""
    # As ``start_ray`` does; Serve reads it when it is imported: by a client's first call.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ.setdefault("RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S", "2")
    logging.getLogger("drivers.rollout_pool").setLevel(logging.WARNING)  # a line a weight sync
    size, mixes, paper_s = Size(), MIXES, PAPER_SECOND_S
    if options.is_short:
        size = Size(warm_steps=1, steps=2)
        mixes, paper_s = (replace(MIXES[0], ages=(0, 1)),), PAPER_SECOND_S / 2
    log.info("calibrating and predicting")
    forecasts = _each(_forecast, [(mix, size, options.seed, paper_s) for mix in mixes])
    workloads = [workload for workload, _ in forecasts]
    measured = asyncio.run(_measure_all(mixes, size, workloads))
    results = [
        _result(mix, *forecast, arms)
        for mix, forecast, arms in zip(mixes, forecasts, measured, strict=True)
    ]
    if not options.is_short:
        log.info("predicting many steps, and how many writer places would be enough")
        tasks = [
            (mix, size, work, options.seed) for mix, work in zip(mixes, workloads, strict=True)
        ]
        results = [a | b for a, b in zip(results, _each(_outlook, tasks), strict=True)]
    return results


def _each(function: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
    """Return the function's result of each task; several use both cores, before or after Ray."""
    if len(tasks) == 1:
        return [function(*tasks[0])]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=_AT_ONCE, mp_context=spawn) as pool:
        return list(pool.map(function, *zip(*tasks, strict=True)))


def _forecast(
    mix: Mix, size: Size, seed: int, paper_s: float
) -> tuple[Workload, dict[str, Predicted]]:
    workload = calibrated(mix, size, seed, paper_s)
    return workload, {arm.name: predicted(arm, size, workload) for arm in _arms(mix)}


def _outlook(mix: Mix, size: Size, workload: Workload, seed: int) -> dict[str, Any]:
    """Return what only the jumping clock has the time to tell."""
    if mix.name == "C":
        return {"enough_writer_places": enough_writer_places(size, workload)}
    return {"predicted_age1_steady": steady_ratios(size, workload, seed)}


def _arms(mix: Mix) -> list[Arm]:
    """Return the mix's arms."""
    return [arm for arms in _side_by_side(mix) for arm in arms]


def _side_by_side(mix: Mix) -> list[list[Arm]]:
    """Return the mix's arms, those together that run at the same time.

    A step takes about two CPU seconds in all processes: 0.3 cores in the synchronous schedule, 0.4
    at age 0, 0.65 at age 1, nearly one at age 2, where two arms would need all of two cores.
    """
    groups = [[Arm(method=method, age=None) for method in _PAIRS[0]]]
    for age in mix.ages:
        pairs = [[Arm(method=method, age=age) for method in pair] for pair in _PAIRS]
        groups += pairs if age < _ALONE_FROM_AGE else [[arm] for pair in pairs for arm in pair]
    return groups


# ------------------------------------------------------------------ measuring
_Arms = dict[str, dict[str, Any]]


async def _measure_all(
    mixes: Sequence[Mix], size: Size, workloads: Sequence[Workload]
) -> list[_Arms]:
    """Run every arm of every mix on one Ray and one Serve."""
    from drivers.bench.timed_cluster import TimedCluster

    with _ray() as folder:
        # Ray's own handler would end the process at once, and leave its files.
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        clusters = [TimedCluster(f"set{i}", folder) for i in range(_AT_ONCE)]
        try:
            first = Arm(method="care", age=1)
            config = arm_config(first, size, workloads[0])
            for cluster in clusters:
                await cluster.start(config, workloads[0])
            found: list[_Arms] = []
            for mix, workload in zip(mixes, workloads, strict=True):
                found.append(await _measure_mix(mix, size, workload, clusters))
            return found
        finally:
            for cluster in clusters:
                cluster.close()


async def _measure_mix(mix: Mix, size: Size, workload: Workload, clusters: Sequence[Any]) -> _Arms:
    found: _Arms = {}
    for pair in _side_by_side(mix):
        log.info("mix %s: %s", mix.name, " beside ".join(arm.name for arm in pair))
        before, began = _cpu_s(), time.monotonic()
        runs = (
            _measure_arm(arm, size, workload, cluster)
            for arm, cluster in zip(pair, clusters, strict=False)
        )
        results = await asyncio.gather(*runs)
        wall_s = time.monotonic() - began
        cores = {who: (cpu_s - before[who]) / wall_s for who, cpu_s in _cpu_s().items()}
        log.info("mix %s: %.2f cores busy, %.2f of them the driver's", mix.name, *cores.values())
        for arm, result in zip(pair, results, strict=True):
            found[arm.name] = result | {"cores_of_pair": cores}
    idle = replace(workload, times=Times())
    for method in _PAIRS[0] if mix.name == MIXES[0].name else ():
        arm = Arm(method=method, age=1)
        log.info("mix %s: %s, engines that take no time", mix.name, arm.name)
        found[f"{arm.name}, no wait"] = await _measure_arm(arm, size, idle, clusters[0])
    return found


def _cpu_s() -> dict[str, float]:
    """Return the CPU seconds of this process and all below it, and of this process alone."""
    own = sum(psutil.Process().cpu_times()[:2])
    below = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            below += sum(process.cpu_times()[:2])
    return {"all": own + below, "driver": own}


async def _measure_arm(arm: Arm, size: Size, workload: Workload, cluster: Any) -> dict[str, Any]:
    config, queries = arm_config(arm, size, workload), queries_of(size)
    rubrics = {query.id: query.rubric for query in queries.values()}
    parts = await cluster.parts(config, workload, rubrics)
    ran: Ran = await run_arm(arm, size, config, queries, parts)
    busy = await cluster.busy()
    log.info("%s: %.3f s a step", arm.name, ran.step_s)
    return {
        "step_s": ran.step_s,
        "phases_s": dict(ran.phases_s),
        "utilisation": ran.utilisation(busy, workload.places),
        "writer_calls_per_step": ran.calls_per_step(busy["writer"]),
        "edits": dict(ran.edits),
    }


@contextmanager
def _ray() -> Iterator[Path]:
    """A Ray and a Serve of our own, ended with their files whatever happens."""
    import ray
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # its own log files have the rest
    root = str(Path(__file__).resolve().parents[2])
    folder = Path(tempfile.mkdtemp(prefix="rb-"))
    start = functools.partial(
        ray.init,
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.WARNING,
        object_store_memory=200 * 2**20,
        runtime_env={"env_vars": {"PYTHONPATH": root}},
        _temp_dir=str(folder / "ray"),
    )
    with ExitStack() as ending:  # in reverse order, each whatever happens to the others
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(ray.shutdown)
        start()
        ending.callback(serve.shutdown)
        serve.start(proxy_location="Disabled")
        yield folder


# ------------------------------------------------------------------ figures
def _result(
    mix: Mix, workload: Workload, expected: Mapping[str, Predicted], arms: _Arms
) -> dict[str, Any]:
    step_s = {name: arm["step_s"] for name, arm in arms.items()}
    expected_s = {name: arm.ran.step_s for name, arm in expected.items()}
    ratios = {f"age{age}": _ratios(step_s, age) for age in mix.ages}
    times = workload.times
    return {
        "name": mix.name,
        "sync_static_s": step_s[Arm(method="static", age=None).name],
        "sync_care_over_static": _sync_ratio(step_s),
        "utilisation": {name: arm["utilisation"] for name, arm in arms.items()},
        "age0": None,
        "age1": None,
        "age2": None,
        **ratios,
        "step_s": step_s,
        "predicted": {
            "sync_care_over_static": _sync_ratio(expected_s),
            **{f"age{age}": _ratios(expected_s, age) for age in mix.ages},
            "step_s": expected_s,
        },
        "phases_s": {name: arm["phases_s"] for name, arm in arms.items() if arm["phases_s"]},
        "writer_calls_per_step": {n: a["writer_calls_per_step"] for n, a in arms.items()},
        "edits": {name: arm["edits"] for name, arm in arms.items()},
        "cores_of_pair": {n: a["cores_of_pair"] for n, a in arms.items() if "cores_of_pair" in a},
        "no_wait_step_s": {n: s for n, s in step_s.items() if n.endswith("no wait")},
        "medians_s": {
            "generation": times.generation_s,
            "judge": times.judge_s,
            "writer": times.writer_s,
            "update": times.update_s,
            "sync": times.sync_s,
        },
    }


def _sync_ratio(step_s: Mapping[str, float]) -> float:
    static, care = (step_s[Arm(method=m, age=None).name] for m in ("static", "care"))
    return care / static


def _ratios(step_s: Mapping[str, float], age: int) -> dict[str, float]:
    static, care, rare, ratchet = (step_s[Arm(method=m, age=age).name] for m in METHODS)
    return {
        "care_over_static": care / static,
        "rare_over_static": rare / static,
        "ratchet_over_static": ratchet / static,
        "care_over_sync_static": care / step_s[Arm(method="static", age=None).name],
    }


def rows(result: Any) -> list[Row]:
    """Return the table's rows; mix C has no target."""
    return [row for mix in result for row in _mix_rows(mix)]


def _mix_rows(mix: Mapping[str, Any]) -> list[Row]:
    name, has_target = mix["name"], mix["name"] in ("A", "B")
    found = [
        Row(name=f"{name} synchronous static step", value=mix["sync_static_s"], unit="s"),
        Row(
            name=f"{name} synchronous CARE over static",
            value=mix["sync_care_over_static"],
            at_least=1.38,
            at_most=1.44,
        ),
    ]
    targets: dict[tuple[str, str], float] = {
        ("age0", "care_over_static"): 1.05,
        ("age1", "care_over_static"): 1.02,
        ("age0", "rare_over_static"): 1.12,
        ("age1", "rare_over_static"): 1.02,
        ("age1", "care_over_sync_static"): 0.75,
    }
    for age in ("age0", "age1", "age2"):
        for ratio, value in (mix[age] or {}).items():
            at_most = targets.get((age, ratio)) if has_target else None
            words = ratio.replace("_", " ").replace("sync", "synchronous")
            row = Row(name=f"{name} age {age[3:]} {words}", value=value, at_most=at_most)
            found.append(row)
    if "enough_writer_places" in mix:
        enough = mix["enough_writer_places"]
        found.append(Row(name=f"{name} writer places that would be enough", value=enough))
    for arm, seconds in mix["no_wait_step_s"].items():
        found.append(Row(name=f"{name} {arm}", value=seconds, unit="s a step"))
    return found


PART = Part(name="overlap", measure=measure, rows=rows)
