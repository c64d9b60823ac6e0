"""The part ``control_plane``: what the system itself costs, with engines that take no time.

The real loop, with real worker actors, the judge on Serve, the real store and the batching; only
the engines answer at once. Measured are rollouts a second, the time of a group with 1, 8 and 32
groups in flight, how late timers of the driver's event loop fire, the CPU seconds that each process
spends on a rollout, and how many evolution calls a group causes at group sizes 4, 16 and 64 (in one
process without Ray: calls are counted there, not timed).
A group in flight is a slot: at age 0 a step has as many as it has groups.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivers.bench.control_plane_runs import (
    EVOLVING,
    Calls,
    Measured,
    evolution_calls,
    run_cluster,
)
from drivers.bench.overlap_arms import Size
from drivers.bench.part import Options, Part, Row
from drivers.bench.store_session import ray_session

IN_FLIGHT = (1, 8, 32)
GROUP_SIZES = (4, 16, 64)
GROUPS_PER_STEP = 24

log = logging.getLogger("ratchet")


def measure(options: Options) -> dict[str, Any]:
    """Return the control plane's figures."""
    # As ``start_ray`` does; Serve reads it when it is imported: by a client's first call.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ.setdefault("RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S", "2")
    logging.getLogger("drivers.rollout_pool").setLevel(logging.WARNING)  # a line a weight sync
    sizes = _sizes(is_short=options.is_short)
    with ray_session(has_serve=True) as folder:
        runs = asyncio.run(run_cluster(sizes, options.seed, Path(folder)))
    log.info("control plane: counting evolution calls")
    calls = {size: evolution_calls(_calls_size(size), options.seed) for size in GROUP_SIZES}
    return _result(runs, calls)


def _sizes(*, is_short: bool) -> Mapping[str, Size]:
    steps = 1 if is_short else 3
    whole = Size(groups_per_step=GROUPS_PER_STEP, group_size=8, warm_steps=1, steps=steps)
    in_flight = {
        str(n): Size(
            groups_per_step=n,
            group_size=8,
            warm_steps=max(1, 8 // n),
            steps=max(1, (8 if is_short else 64) // n),
        )
        for n in IN_FLIGHT
    }
    return {"whole": whole, **in_flight}


def _calls_size(group_size: int) -> Size:
    return Size(groups_per_step=16, group_size=group_size, warm_steps=0, steps=1)


def _result(runs: Mapping[str, Measured], calls: Mapping[int, Mapping[str, Calls]]) -> Any:
    whole = runs["whole"]
    return {
        "rollouts_per_s": round(whole.rollouts_per_s, 1),
        "groups_in_flight": {str(n): round(runs[str(n)].group_ms, 2) for n in IN_FLIGHT},
        "evolution_calls_by_group_size": {
            str(size): {
                method: {"writer": found.writer, "rescoring": found.rescoring}
                for method, found in by_method.items()
            }
            for size, by_method in calls.items()
        },
        "event_loop_lag_ms": whole.lag_ms,
        "cpu_ms_per_rollout": whole.cpu_ms_per_rollout,
        "rollouts_per_s_in_flight": {
            str(n): round(runs[str(n)].rollouts_per_s, 1) for n in IN_FLIGHT
        },
    }


def rows(result: Any) -> list[Row]:
    """Return the table's rows; only that calls do not grow with the group has a target."""
    found = [Row(name="rollouts", value=result["rollouts_per_s"], unit="/s")]
    found += [
        Row(name=f"a group's time, {n} in flight", value=ms, unit="ms")
        for n, ms in result["groups_in_flight"].items()
    ]
    found += [
        Row(name=f"event loop lag {which}", value=ms, unit="ms")
        for which, ms in result["event_loop_lag_ms"].items()
    ]
    by_size = result["evolution_calls_by_group_size"]
    smallest, largest = str(min(GROUP_SIZES)), str(max(GROUP_SIZES))
    for method in EVOLVING:
        few, many = (sum(by_size[size][method].values()) for size in (smallest, largest))
        name = f"{method}: calls a group at G={largest} over G={smallest}"
        found.append(Row(name=name, value=many / few if few else None, unit="x", at_most=1.0))
    return found


PART = Part(name="control_plane", measure=measure, rows=rows)
