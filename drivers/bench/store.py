"""The part ``store``: the real RubricStore actor over a large file on disk.

The file holds 100,000 rubrics with 10 versions each. The store is started on it as a run starts it,
with every initial rubric. Then 16 concurrent clients commit (each on rubrics of its own, the next
commit when the last one is acknowledged, so durable), 16 put verdicts as a group's rollouts do, one
reader asks for current rubrics beside the writers; and the process is killed with SIGKILL.
The clients are tasks of the driver, which is the only process that commits in a run; four more
processes of four clients each show what the store can do when the driver is not the limit.
Times are what the caller sees; memory is the peak of the store's process (``VmHWM``).
"""

import asyncio
import logging
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivers.bench.part import Options, Part, Row
from drivers.bench.store_clients import (
    Load,
    commit_for,
    percentile,
    put_verdicts_for,
    read_for,
    separate_clients,
)
from drivers.bench.store_file import build_file, query_ids, rubric_of
from drivers.bench.store_session import ray_session
from drivers.rubric_store_client import StoreClient, start_store

NUM_CLIENTS = 16

log = logging.getLogger("ratchet")


def measure(options: Options) -> dict[str, Any]:
    """Return the store's figures; everything is made in a folder of its own and removed."""
    num_queries, seconds = (2000, 1.0) if options.is_short else (100_000, 4.0)
    with tempfile.TemporaryDirectory(prefix="ratchet-store-") as folder:
        path = Path(folder) / "rubrics.sqlite"
        log.info("store: writing %d rubrics with 10 versions each", num_queries)
        began = time.monotonic()
        build_file(path, num_queries, 10)
        built_s = time.monotonic() - began
        with ray_session():
            figures = asyncio.run(_measure(path, num_queries, seconds))
        return figures | {
            "queries": num_queries,
            "versions_each": 10,
            "file_mb": round(path.stat().st_size / 2**20, 1),
            "file_built_s": round(built_s, 2),
        }


async def _measure(path: Path, num_queries: int, seconds: float) -> dict[str, Any]:
    ids = query_ids(num_queries)
    began = time.monotonic()
    client = await start_store(
        "bench", path, rubrics={q: rubric_of(number) for number, q in enumerate(ids)}
    )
    figures: dict[str, Any] = {"start_s": round(time.monotonic() - began, 3)}
    log.info("store: started in %.1f s", figures["start_s"])
    load = Load(client, ids, seconds)
    idle = await read_for(load)
    figures |= {"read_idle_p50_ms": percentile(idle, 50), "read_idle_p99_ms": percentile(idle, 99)}
    figures |= await _commits(load)
    figures["commits_per_s_4_processes"] = await separate_clients(load, 4, 4)
    figures["verdict_puts_per_s"] = await put_verdicts_for(load, NUM_CLIENTS)
    log.info("store: %s", figures)
    figures["peak_memory_started_mb"] = await _peak_mb(client)
    figures["restart_s"] = await _restart_s(client, ids)
    figures["peak_memory_restarted_mb"] = await _peak_mb(client)
    figures["peak_memory_mb"] = max(
        figures["peak_memory_started_mb"], figures["peak_memory_restarted_mb"]
    )
    figures["snapshot_s"] = await _snapshot_s(client, path)
    client.close()
    return figures


async def _commits(load: Load) -> dict[str, Any]:
    alone = await commit_for(load, 1)
    both = await asyncio.gather(commit_for(load, NUM_CLIENTS), read_for(load))
    log.info("store: %d commits while %d reads were answered", both[0].count, len(both[1]))
    pure = await commit_for(load, NUM_CLIENTS)
    return {
        "commits_per_s": pure.per_s,
        "commit_p50_ms": percentile(pure.latencies_s, 50),
        "commit_p99_ms": percentile(pure.latencies_s, 99),
        "commits_per_s_1_client": alone.per_s,
        "commits_per_s_beside_reads": both[0].per_s,
        "read_p50_ms": percentile(both[1], 50),
        "read_p99_ms": percentile(both[1], 99),
    }


async def _restart_s(client: StoreClient, ids: Sequence[str]) -> float:
    """Kill the store's process; return how long until the next call is answered."""
    pid = await client.handle.pid.remote()
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while await client.handle.pid.remote() == pid:
        await asyncio.sleep(0.01)
    await client.current(ids[0])
    return round(time.monotonic() - began, 3)


async def _peak_mb(client: StoreClient) -> float:
    pid = await client.handle.pid.remote()
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    return round(int(peak.split()[1]) / 1024, 1)


async def _snapshot_s(client: StoreClient, path: Path) -> float:
    began = time.monotonic()
    await client.snapshot(str(path.parent / "checkpoint"), 10**6)
    return round(time.monotonic() - began, 3)


def rows(result: dict[str, Any]) -> list[Row]:
    """Return the table's rows; the store has no target."""
    units = {
        "commits_per_s": "/s",
        "commits_per_s_1_client": "/s",
        "commits_per_s_4_processes": "/s",
        "verdict_puts_per_s": "/s",
        "read_p99_ms": "ms",
        "restart_s": "s",
        "peak_memory_mb": "MiB",
    }
    return [Row(name=name, value=result.get(name), unit=unit) for name, unit in units.items()]


PART = Part(name="store", measure=measure, rows=rows)
