"""The control plane's benchmark: calls a group, late timers, names of processes, the table."""

import asyncio
import time
from collections.abc import Mapping

import pytest

from drivers.bench.control_plane import rows
from drivers.bench.control_plane_runs import Calls, TimerLag, evolution_calls, process_kind
from drivers.bench.overlap_arms import Size


def calls_of(group_size: int) -> Mapping[str, Calls]:
    return evolution_calls(
        Size(groups_per_step=3, group_size=group_size, warm_steps=0, steps=1), seed=0
    )


def test_evolution_calls_are_those_of_the_groups_and_do_not_grow_with_them():
    few, many = calls_of(2), calls_of(4)
    assert few == many
    assert few["care"] == Calls(writer=1.0, rescoring=0.0)
    assert few["rare"].writer == few["rare"].rescoring == pytest.approx(1 / 3, abs=0.001)
    assert few["ratchet"].writer == pytest.approx(4 / 3, abs=0.001)


async def test_a_timer_that_was_kept_waiting_is_seen():
    async with TimerLag() as lag:
        await asyncio.sleep(0.05)
        time.sleep(0.1)  # what blocks the loop
        await asyncio.sleep(0.05)
    assert lag.summary_ms()["max"] >= 50
    assert TimerLag().summary_ms() == {}


def test_a_process_is_named_by_what_it_does():
    assert process_kind(["ray::RubricStore"]) == "RubricStore"
    assert process_kind(["ray::RubricStore.put_verdicts"]) == "RubricStore"
    assert process_kind(["ray::ServeReplica:control-judge:judge"]) == "control-judge"
    assert process_kind(["/opt/ray/core/src/ray/raylet/raylet", "--x"]) == "raylet"
    assert process_kind([]) == "ray, other"


def test_calls_that_grow_with_the_group_miss_their_target():
    sizes = {
        size: {m: {"writer": calls, "rescoring": 0.0} for m in ("care", "rare", "ratchet")}
        for size, calls in (("4", 1.0), ("16", 2.0), ("64", 4.0))
    }
    result = {
        "rollouts_per_s": 100.0,
        "groups_in_flight": {"1": 80.0},
        "event_loop_lag_ms": {"p50": 1.0},
        "evolution_calls_by_group_size": sizes,
    }
    grown = [row for row in rows(result) if row.is_met is False]
    assert [row.value for row in grown] == [4.0] * 3
