"""Clients of the store for its benchmark: loops of commits, verdict puts and reads.

A client commits on rubrics of its own, one after the other, and makes the next commit when the last
one is acknowledged; so no commit may conflict, and one that does is an error.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import ray

from core.records import Verdict
from core.rubric import Rubric
from drivers.bench.store_file import NUM_CRITERIA, next_commit
from drivers.rubric_store_client import StoreClient

_RUBRICS_A_CLIENT = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """What some clients got done."""

    count: int
    seconds: float
    latencies_s: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """Calls a second of all clients together."""
        return round(self.count / self.seconds, 1)


class Load:
    """Where calls go to, on which rubrics, for how long; hands out rubrics that nobody had yet."""

    def __init__(self, client: StoreClient, ids: Sequence[str], seconds: float) -> None:
        self.client = client
        self.ids = ids
        self.seconds = seconds
        self._next = 0

    def own_ids(self) -> Sequence[str]:
        """Return rubrics for one client, no other's as long as there are enough."""
        start = self._next
        self._next = start + _RUBRICS_A_CLIENT
        assert self._next <= len(self.ids), f"got {len(self.ids)} rubrics, wanted {self._next}"
        return self.ids[start : self._next]


def percentile(latencies_s: Sequence[float], percent: float) -> float:
    """Return the percentile in milliseconds."""
    ordered = sorted(latencies_s)
    return round(ordered[round((len(ordered) - 1) * percent / 100)] * 1e3, 3)


async def commit_for(load: Load, num_clients: int) -> Rate:
    """Commit from so many concurrent clients of this process."""
    clients = [_own_rubrics(load.client, load.own_ids()) for _ in range(num_clients)]
    owned = await asyncio.gather(*clients)
    began = time.monotonic()
    end = began + load.seconds
    done = await asyncio.gather(*(_commit_until(load.client, own, end) for own in owned))
    return _rate(done, began)


async def _own_rubrics(client: StoreClient, ids: Sequence[str]) -> dict[str, Rubric]:
    return {query_id: await client.current(query_id) for query_id in ids}


async def _commit_until(client: StoreClient, own: dict[str, Rubric], end: float) -> list[float]:
    latencies: list[float] = []
    for query_id in itertools.cycle(tuple(own)):
        if (called := time.monotonic()) >= end:
            break
        commit = next_commit(query_id, own[query_id], query_id)
        result = await client.commit(commit)
        latencies.append(time.monotonic() - called)
        assert result.status == "applied", (query_id, commit.from_version, result)
        own[query_id] = commit.rubric
    return latencies


async def read_for(load: Load) -> list[float]:
    """Read current rubrics all over the file, one after the other; return the latencies."""
    latencies: list[float] = []
    end = time.monotonic() + load.seconds
    # A step that shares no divisor with a round number of rubrics visits all of them.
    for place in itertools.count(0, 7919):
        if (called := time.monotonic()) >= end:
            return latencies
        await load.client.current(load.ids[place % len(load.ids)])
        latencies.append(time.monotonic() - called)
    raise AssertionError("the places do not end")


async def put_verdicts_for(load: Load, num_clients: int) -> float:
    """Put the verdicts on one response a call, as each rollout does; return calls a second."""
    began = time.monotonic()
    end = began + load.seconds

    async def one(client: int) -> list[float]:
        latencies: list[float] = []
        while (called := time.monotonic()) < end:
            key = f"{client}-{len(latencies)}-{began}"
            await load.client.put_verdicts(
                {
                    f"{key}-{i}": Verdict(
                        criterion_id=f"c{i}", score=1.0, max=1, reason="It gives two facts. " * 5
                    )
                    for i in range(NUM_CRITERIA)
                }
            )
            latencies.append(time.monotonic() - called)
        return latencies

    return _rate(await asyncio.gather(*(one(i) for i in range(num_clients))), began).per_s


async def separate_clients(load: Load, num_processes: int, clients_each: int) -> float:
    """Commit from clients in processes of their own; return commits a second of all together."""
    task = ray.remote(num_cpus=0)(_commit_in_process)
    ready = [task.remote(load.client.handle, (), 0.0) for _ in range(num_processes)]
    await asyncio.gather(*ready)  # the processes are there before the clock starts
    work = [[load.own_ids() for _ in range(clients_each)] for _ in range(num_processes)]
    rates = await asyncio.gather(
        *(task.remote(load.client.handle, own, load.seconds) for own in work)
    )
    return round(sum(rate.count / rate.seconds for rate in rates), 1)


def _commit_in_process(handle: object, ids: Sequence[Sequence[str]], seconds: float) -> Rate:
    """The body of one process."""
    client = StoreClient(handle, "RubricStore [bench]")

    async def run() -> Rate:
        owned = await asyncio.gather(*(_own_rubrics(client, own) for own in ids))
        began = time.monotonic()
        end = began + seconds
        return _rate(
            await asyncio.gather(*(_commit_until(client, own, end) for own in owned)), began
        )

    return asyncio.run(run())


def _rate(done: Sequence[Sequence[float]], began: float) -> Rate:
    latencies = tuple(itertools.chain.from_iterable(done))
    return Rate(count=len(latencies), seconds=time.monotonic() - began, latencies_s=latencies)
