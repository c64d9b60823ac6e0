"""What CARE costs over static rubrics with nothing replayed: real policy, learner, Serve and store.

One vLLM worker and one DeepSpeed rank of the 135M model share two cores; judge and writer are an
OpenAI-compatible endpoint on loopback that takes 2 s a call, any number at a time. The engines are
started once and the arms take turns on them (static, CARE, CARE, static, so that drift weighs on
both), each from the same weights, with the same queries and seeds and a fresh store, so no verdict
is cached. The first step of each arm is left out; a step's time is from one step's end to the next
one's. ``care_over_static`` is at ``max_policy_age`` 1, what the quickstart runs with; the
synchronous schedule stands beside it, and so does the ratio in seconds a token, since methods
train other rollouts from the second step on.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from core.config import RunConfig
from core.query import Query
from core.records import EditEvent, ScoredGroup
from core.rubric import Criterion, Rubric
from drivers.bench.part import Options, Part, Row
from drivers.bench.store_session import ray_session
from drivers.bench.synchronous import SynchronousLoop
from drivers.config_file import load_config
from drivers.data_files import load_queries
from drivers.loop import Position, TrainLoop
from drivers.loopback_endpoint import loopback_endpoint
from drivers.placement import place
from drivers.ports import Parts
from drivers.progress import Progress
from drivers.rubric_store_client import start_store
from drivers.run_folder import RunFolder
from drivers.run_parts import start_parts

CALL_S = 2.0
"""Latency of each judge and writer call."""
NUM_QUERIES = 8
"""Each is drawn every second step, so edits are in force within an arm."""
_CONFIG = Path(__file__).resolve().parents[1] / "configs" / "quickstart.yaml"
_CRITERIA = ("Is it vivid?", "Is it easy to read?", "Is it on the subject?", "Is it finished?")

_TIMES = ("gen", "trainer_idle", "update_actor", "update_weights", "evolve_exposed")
"""Metrics of the loop that say where a step's time goes."""

log = logging.getLogger("ratchet")
Method = Literal["static", "care"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A method under a schedule."""

    method: Method
    age: int | None
    """``loop.max_policy_age``; None is the synchronous schedule."""

    @property
    def name(self) -> str:
        """For logs and the result file."""
        schedule = "sync" if self.age is None else f"age{self.age}"
        return f"{schedule}_{self.method}"


def arms_in_order(*, is_short: bool) -> list[Arm]:
    """Return the arms in the order that they run in: each method is as early as the other."""
    static, care = (Arm(method=method, age=1) for method in ("static", "care"))
    synchronous = [replace(static, age=None), replace(care, age=None)]
    return [static, care, *([] if is_short else [care, static]), *synchronous]


class _Quiet(Progress):
    """No bar: a line a step comes from the recorder."""

    def __init__(self) -> None:
        pass

    def step(self, step: int, metrics: Mapping[str, float], queues: Mapping[str, int]) -> None:
        """Show nothing."""

    def close(self) -> None:
        """There is no bar."""


class _Ends:
    """Recorder and checkpointer of an arm: notes when steps end, keeps nothing."""

    def __init__(self, name: str, last_step: int) -> None:
        self._name = name
        self._last_step = last_step
        self.loop: TrainLoop | None = None
        self.ended: list[float] = []
        self.metrics: list[Mapping[str, float]] = []
        self.num_edits = 0

    def edit(self, event: EditEvent) -> None:
        self.num_edits += event.edit.status == "accepted"

    def step(self, step: int, groups: Sequence[ScoredGroup], metrics: Mapping[str, float]) -> None:
        self.ended.append(asyncio.get_running_loop().time())
        self.metrics.append(metrics)
        log.info("%s: step %d after %.1f s", self._name, step, metrics["timing_s/step"])
        if step == self._last_step and self.loop is not None:
            self.loop.request_stop()

    def evaluation(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """There is none."""

    async def save(self, position: Position) -> None:
        """Keep nothing."""

    def seconds(self) -> list[float]:
        """Return the seconds of each step but the first."""
        return [end - start for start, end in pairwise(self.ended)]

    def num_tokens(self) -> float:
        """Tokens that those steps trained on."""
        return sum(m["perf/total_num_tokens"] for m in self.metrics[1:])


def measure(options: Options) -> dict[str, Any]:
    """Return the ratios, and the seconds of every step behind them."""
    replies = "drivers.bench.real_endpoint"
    with loopback_endpoint(replies, CALL_S) as address, ray_session(has_serve=True) as folder:
        return asyncio.run(_measured(options, address, Path(folder)))


async def _measured(options: Options, address: str, folder: Path) -> dict[str, Any]:
    base = config_of(Arm(method="care", age=1), address, 2, options.seed)
    queries = make_queries()
    rubrics = {q.id: q.rubric for q in queries.values()}
    ran: dict[str, list[_Ends]] = {}
    phases: dict[str, list[Mapping[str, float]]] = {}
    async with AsyncExitStack() as closing:
        placement = await place(base)
        closing.callback(placement.release)
        run = RunFolder(folder / "run")
        run.path.mkdir()
        first_weights = folder / "first_weights"
        first_weights.mkdir()
        started = await start_parts(base, rubrics, run, placement, closing)
        await started.parts.learner.save(str(first_weights))
        for number, arm in enumerate(arms_in_order(is_short=options.is_short)):
            store = await start_store(f"arm {number}", folder / f"{number}.sqlite", rubrics=rubrics)
            parts = replace(started.parts, store=store, spending=None)
            try:
                await parts.learner.load(str(first_weights))
                config = config_of(arm, address, _num_steps(arm, options), options.seed)
                ends, each = await _run_arm(arm, config, queries, parts)
            finally:
                store.close()
            ran.setdefault(arm.name, []).append(ends)
            phases.setdefault(arm.name, []).extend(each)
    return _result(ran, phases)


def _num_steps(arm: Arm, options: Options) -> int:
    """Steps of an arm, its warm-up counted; the synchronous ones are longer and vary less."""
    if options.is_short:
        return 2
    return 4 if arm.age is None else 6


async def _run_arm(
    arm: Arm, config: RunConfig, queries: Mapping[str, Query], parts: Parts
) -> tuple[_Ends, list[Mapping[str, float]]]:
    """Run one arm from the policy as it is, as version 0."""
    await parts.pool.load_weights(await parts.learner.publish(0))
    kind = SynchronousLoop if arm.age is None else TrainLoop
    ahead = config.loop.max_policy_age  # steps that are generated beside the last measured one
    ends = _Ends(arm.name, config.loop.steps - ahead)
    loop = ends.loop = kind(config, queries, parts, ends, ends, None, _Quiet())
    await loop.run(Position())
    measured = loop.phases[1:] if isinstance(loop, SynchronousLoop) else ()
    return ends, [each.seconds for each in measured]


def config_of(arm: Arm, address: str, steps: int, seed: int) -> RunConfig:
    """Return the quickstart's config with a judge and a writer behind the endpoint."""
    served = {
        "backend": "openai",
        "model": "paced",
        "base_url": address,
        "max_concurrency": "64",
        "max_tokens": "512",
    }
    overrides = [f"{part}.{k}={v}" for part in ("judge", "writer") for k, v in served.items()]
    config = load_config(
        str(_CONFIG),
        [
            "name=bench-real",
            f"seed={seed}",
            "data.eval=null",
            f"evolution.method={arm.method}",
            "sampling.group_size=4",
            "learner.lr=1e-6",  # the arms follow one another on one policy: it hardly moves
            f"loop.steps={steps + (arm.age or 0)}",
            f"loop.max_policy_age={arm.age or 0}",
            "loop.eval_every=0",
            "loop.checkpoint_every=0",
            *overrides,
        ],
    )
    return config


def make_queries() -> dict[str, Query]:
    """Return the quickstart's first queries with criteria that only a model can decide."""
    found = load_queries(str(_CONFIG.parent / "data" / "quickstart.jsonl"), strict=True).queries
    criteria = tuple(Criterion(id=f"c{i}", text=text) for i, text in enumerate(_CRITERIA))
    return {
        q.id: q.model_copy(update={"rubric": Rubric(criteria=criteria), "gold": ()})
        for q in found[:NUM_QUERIES]
    }


def _result(
    ran: Mapping[str, Sequence[_Ends]], phases: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, Any]:
    steps = {name: [s for e in each for s in e.seconds()] for name, each in ran.items()}
    step_s = {name: mean(each) for name, each in steps.items()}

    token_s = {
        name: sum(steps[name]) / sum(e.num_tokens() for e in each) for name, each in ran.items()
    }

    def ratio(schedule: str, of: Mapping[str, float] = step_s) -> float:
        return of[f"{schedule}_care"] / of[f"{schedule}_static"]

    return {
        "care_over_static": ratio("age1"),
        "sync_care_over_static": ratio("sync"),
        "care_over_static_per_token": ratio("age1", token_s),
        "care_over_sync_static": step_s["age1_care"] / step_s["sync_static"],
        "step_s": step_s,
        "steps_s": steps,
        "timing_s": {
            name: {
                metric: mean(m[f"timing_s/{metric}"] for e in each for m in e.metrics[1:])
                for metric in _TIMES
            }
            for name, each in ran.items()
        },
        "edits": {name: sum(e.num_edits for e in each) for name, each in ran.items()},
        "sync_phases_s": {
            name: {k: mean(each[k] for each in found) for k in found[0]}
            for name, found in phases.items()
            if found
        },
    }


def rows(result: Mapping[str, Any]) -> list[Row]:
    """Return the table's rows."""
    return [
        Row(name="CARE over static, age 1", value=result["care_over_static"], at_most=1.05),
        Row(
            name="CARE over static, age 1, a token",
            value=result["care_over_static_per_token"],
        ),
        Row(name="CARE over static, synchronous", value=result["sync_care_over_static"]),
        Row(
            name="CARE at age 1 over synchronous static",
            value=result["care_over_sync_static"],
        ),
    ]


PART = Part(name="real", measure=measure, rows=rows)
