"""The overlap benchmark on a clock that jumps: calibration and what each arm should take.

Without Ray and without waiting: what an arm takes here is the schedule's own cost; what the real
system takes more is the control plane's. The calibration is done here, once a mix: generation and
judge medians such that the phases of the synchronous static step have the mix's shares, and the
writer's such that a synchronous CARE step is to a static one as CARE reports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from drivers.bench.overlap_arms import (
    Arm,
    Ran,
    Size,
    arm_config,
    make_workload,
    queries_of,
    run_arm,
)
from drivers.bench.timed_in_process import start_in_process
from drivers.bench.virtual_clock import run_virtually
from drivers.bench.workload import Places, Times, Workload

STATIC_PAPER_S = 318.2
CARE_PAPER_S = 448.9
"""Seconds a step that CARE reports (its cost table)."""
SYNC_FRAC = 0.05
"""Share of the synchronous static step in which new weights go to the workers."""
_STEADY_STEPS = 24
_ENOUGH = 1.02
_KEPT_UP = 0.97
_MOST_WRITERS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """Phases of the synchronous static step, as shares of it."""

    name: str
    generation: float
    judge: float
    update: float
    """With the weight sync."""
    ages: tuple[int, ...] = (0, 1)


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """An arm on a virtual clock."""

    ran: Ran
    utilisation: Mapping[str, float]
    writer_calls_per_step: float


def calibrated(mix: Mix, size: Size, seed: int, paper_s: float) -> Workload:
    """Return the mix's workload; ``paper_s``: real seconds of a second in the paper."""
    step_s = STATIC_PAPER_S * paper_s
    times = Times(
        generation_s=step_s,
        judge_s=step_s,
        writer_s=step_s,
        update_s=(mix.update - SYNC_FRAC) * step_s,
        sync_s=SYNC_FRAC * step_s,
    )
    workload = make_workload(size, seed, times, Places())
    phases = predicted(Arm(method="care", age=None), size, workload).ran.phases_s
    writing_s = (CARE_PAPER_S / STATIC_PAPER_S - 1.0) * step_s
    # With barriers a phase takes a time in proportion to its engine's median.
    times = replace(
        times,
        generation_s=step_s * mix.generation * step_s / phases["generate"],
        judge_s=step_s * mix.judge * step_s / phases["judge"],
        writer_s=step_s * writing_s / phases["evolve"],
    )
    return replace(workload, times=times)


def predicted(arm: Arm, size: Size, workload: Workload) -> Predicted:
    """Return what the arm takes when nothing but its engines takes time."""
    return run_virtually(_run(arm, size, workload))


async def _run(arm: Arm, size: Size, workload: Workload) -> Predicted:
    config, queries = arm_config(arm, size, workload), queries_of(size)
    rubrics = {query.id: query.rubric for query in queries.values()}
    engines = await start_in_process(config, workload, rubrics)
    ran = await run_arm(arm, size, config, queries, engines.parts)
    busy = engines.busy()
    return Predicted(
        ran=ran,
        utilisation=ran.utilisation(busy, workload.places),
        writer_calls_per_step=ran.calls_per_step(busy["writer"]),
    )


def steady_ratios(size: Size, workload: Workload, seed: int) -> dict[str, float]:
    """Return CARE and RARE over static at age 1 over many steps: a few of them depend on where in
    its rhythm a pipeline of two batches happens to be."""
    long = replace(size, steps=_STEADY_STEPS)
    same = make_workload(long, seed, workload.times, workload.places)
    static_s, care_s, rare_s = (
        predicted(Arm(method=m, age=1), long, same).ran.step_s for m in ("static", "care", "rare")
    )
    return {"care_over_static": care_s / static_s, "rare_over_static": rare_s / static_s}


def enough_writer_places(size: Size, workload: Workload) -> int | None:
    """Return the fewest writer places with which CARE at age 1 costs at most 1.02 of static and
    writes as many contrasts a step as groups train; None when no number up to 64 is enough."""
    static_s = predicted(Arm(method="static", age=1), size, workload).ran.step_s
    low, high = 1, _MOST_WRITERS + 1
    while low < high:
        middle = (low + high) // 2
        places = replace(workload.places, writer=middle)
        care = predicted(Arm(method="care", age=1), size, replace(workload, places=places))
        has_kept_up = care.writer_calls_per_step >= _KEPT_UP * size.groups_per_step
        if has_kept_up and care.ran.step_s <= _ENOUGH * static_s:
            high = middle
        else:
            low = middle + 1
    return low if low <= _MOST_WRITERS else None
