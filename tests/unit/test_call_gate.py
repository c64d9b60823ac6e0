"""The gate of a client: places, order, cancelled callers; and the background count of replicas."""

import asyncio

import pytest

from drivers import replica_count
from drivers.call_gate import CallGate
from drivers.replica_count import ReplicaCount


async def test_a_request_of_several_calls_waits_for_its_places_and_nobody_overtakes_it() -> None:
    gate = CallGate(4)
    assert await gate.acquire(3) == 3
    order: list[str] = []

    async def enter(name: str, num_calls: int) -> None:
        places = await gate.acquire(num_calls)
        order.append(f"{name} {places}")

    wide = asyncio.create_task(enter("wide", 2))
    narrow = asyncio.create_task(enter("narrow", 1))
    await asyncio.sleep(0)
    assert order == []  # one place is free, but the wide one was first
    gate.release(1)
    await asyncio.gather(wide)
    assert order == ["wide 2"]
    assert not narrow.done()
    gate.release(2)
    await narrow
    assert order == ["wide 2", "narrow 1"]


async def test_more_calls_than_places_take_them_all() -> None:
    gate = CallGate(4)
    assert await gate.acquire(9) == 4
    late = asyncio.create_task(gate.acquire(1))
    await asyncio.sleep(0)
    assert not late.done()
    gate.release(4)
    assert await late == 1


async def test_a_cancelled_caller_leaves_the_line_and_gives_back_what_it_got() -> None:
    gate = CallGate(2)
    await gate.acquire(2)
    first = asyncio.create_task(gate.acquire(2))
    second = asyncio.create_task(gate.acquire(1))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.release(1)
    assert await asyncio.wait_for(second, 1) == 1

    third = asyncio.create_task(gate.acquire(1))
    await asyncio.sleep(0)
    gate.release(1)  # the place is the third's, which is cancelled before it can take it
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)
    assert await asyncio.wait_for(gate.acquire(1), 1) == 1


async def test_a_wider_gate_lets_in_who_waits_and_a_narrower_one_fills_up_again_later() -> None:
    gate = CallGate(2)
    held = await gate.acquire(2)
    one = asyncio.create_task(gate.acquire(2))
    two = asyncio.create_task(gate.acquire(2))
    await asyncio.sleep(0)
    gate.resize(4)
    assert await asyncio.wait_for(one, 1) == 2
    assert not two.done()
    gate.resize(1)
    gate.release(held)
    await asyncio.sleep(0)
    assert not two.done()  # the second's two places are still over the limit of one
    gate.release(2)
    assert await asyncio.wait_for(two, 1) == 1  # all that there is by now
    gate.release(1)
    assert await asyncio.wait_for(gate.acquire(3), 1) == 1


async def test_replicas_are_counted_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [3, -1, 2]

    async def look() -> int:
        if not numbers:
            raise RuntimeError("Serve is away")
        return numbers.pop(0)

    count = ReplicaCount(look)
    assert count.latest() is None
    await asyncio.sleep(0.01)
    assert [count.latest(), count.latest()] == [3, 3]
    assert numbers == [-1, 2]  # not looked at again before its time
    monkeypatch.setattr(replica_count, "_LOOK_EVERY_S", 0.0)
    seen: list[int | None] = []
    for _ in range(4):
        count.latest()
        await asyncio.sleep(0.01)
        seen.append(count._latest)
    assert seen == [3, 2, 2, 2]  # starting replicas and a Serve that is away change nothing
