"""The overlap benchmark's pure pieces: a clock that jumps, fixed durations, arms on that clock."""

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

from drivers.bench.overlap import rows
from drivers.bench.overlap_arms import Arm, Ran, Size, queries_of
from drivers.bench.overlap_predicted import STATIC_PAPER_S, Mix, calibrated, predicted
from drivers.bench.virtual_clock import run_virtually
from drivers.bench.workload import (
    MAX_TOKENS,
    Places,
    RolloutName,
    Times,
    Workload,
    names_in,
    saturated_groups,
)

SMALL = Size(groups_per_step=6, group_size=4, warm_steps=1, steps=3)
MIX = Mix(name="A", generation=0.55, judge=0.20, update=0.25)


def test_a_clock_that_jumps_waits_for_nobody() -> None:
    order: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(name)

    async def main() -> float:
        await asyncio.gather(sleeper("late", 3600.0), sleeper("soon", 60.0))
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run_virtually(main()) == pytest.approx(3600.0)
    assert order == ["soon", "late"]
    assert time.monotonic() - began < 60.0


def test_a_program_that_could_never_go_on_is_an_error_and_no_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="for ever"):
        run_virtually(main())


def test_durations_depend_on_what_is_asked_and_on_nothing_else() -> None:
    times = Times(generation_s=1.0, judge_s=1.0, writer_s=1.0)
    one, same, other = (Workload(seed=s, times=times) for s in (3, 3, 4))
    names = [RolloutName(query_id="q1", visit=0, index=i) for i in range(200)]
    seconds = [one.generation_s(n) for n in names]
    assert seconds == [same.generation_s(n) for n in reversed(names)][::-1]
    assert seconds != [other.generation_s(n) for n in names]
    assert max(one.num_tokens(n) for n in names) <= MAX_TOKENS
    assert one.call_s("judge", names[0]) != one.call_s("contrast", names[0])
    assert names_in(one.response(names[7])) == [names[7]]


def test_seven_or_eight_of_every_24_groups_have_a_saturated_criterion() -> None:
    ids = [f"q{i}" for i in range(240)]
    sizes = [len(saturated_groups(ids, 24, n, 0)) for n in range(11)]
    steps = {after - before for before, after in itertools.pairwise(sizes)}
    assert steps == {7, 8}
    assert sizes[10] == round(0.31 * 240)


def test_the_calibration_gives_the_synchronous_schedule_the_published_ratio() -> None:
    workload = calibrated(MIX, SMALL, seed=0, paper_s=0.02)
    static, care = (predicted(Arm(method=m, age=None), SMALL, workload) for m in ("static", "care"))
    step_s = STATIC_PAPER_S * 0.02
    assert static.ran.step_s == pytest.approx(step_s, rel=0.01)
    assert static.ran.phases_s["judge"] == pytest.approx(0.20 * step_s, rel=0.01)
    assert care.ran.step_s / static.ran.step_s == pytest.approx(1.41, abs=0.03)


def test_every_edit_that_the_timed_writer_proposes_is_accepted() -> None:
    workload = Workload(
        group_size=SMALL.group_size,
        times=Times(generation_s=0.4, judge_s=0.1, writer_s=0.9, update_s=1.0, sync_s=0.1),
        places=Places(slots=8, judge=8, writer=4),
        saturated=saturated_groups(tuple(queries_of(SMALL)), SMALL.groups_per_step, 8, 0),
    )
    num_groups = SMALL.groups_per_step * SMALL.last_step
    care = predicted(Arm(method="care", age=0), SMALL, workload)
    assert care.ran.edits == {"accepted": num_groups}
    rare = predicted(Arm(method="rare", age=0), SMALL, workload)
    assert set(rare.ran.edits) == {"accepted"}
    assert rare.ran.edits["accepted"] == round(0.31 * num_groups)
    ratchet = predicted(Arm(method="ratchet", age=0), SMALL, workload)
    assert ratchet.ran.edits == {"accepted": num_groups + rare.ran.edits["accepted"]}
    assert 0.0 < care.utilisation["writer"] <= 1.0


def test_a_missing_age_has_no_row_and_mix_c_no_target() -> None:
    ratios = {"care_over_static": 1.1, "rare_over_static": 1.0}
    mix = {
        "name": "C",
        "sync_static_s": 6.4,
        "sync_care_over_static": 1.41,
        "age0": ratios,
        "age1": ratios,
        "age2": None,
        "no_wait_step_s": {},
        "enough_writer_places": 14,
    }
    found = {row.name: row.is_met for row in rows([mix])}
    assert found["C age 0 care over static"] is None
    assert not any("age 2" in name for name in found)
    found = {row.name: row.is_met for row in rows([mix | {"name": "A"}])}
    assert found["A age 0 care over static"] is False


@pytest.mark.parametrize("first", [0.0, 3.0])
def test_a_step_is_timed_over_whole_rhythms_wherever_five_steps_begin(first: float) -> None:
    """Long and short steps take turns at age 1: 5 s and 2 s are 3.5 s a step."""
    ends = [first]
    for i in range(5):
        ends.append(ends[-1] + (5.0 if (i % 2 == 0) == (first == 0.0) else 2.0))
    ran = Ran(ends=ends, num_under_way=2, phases_s={}, edits={})
    assert ran.step_s == pytest.approx(3.5)
    assert replace(ran, num_under_way=1).step_s == pytest.approx((ends[-1] - first) / 5)
