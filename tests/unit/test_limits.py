"""The call limiter: leases, pauses and shares, in process."""

import asyncio

from serve.limits import CallLimiter, CallSlots


async def test_a_lease_of_a_dead_holder_comes_back() -> None:
    limiter = CallLimiter("stub", ttl_s=0.3)
    assert await limiter.acquire("judge", 1, False, 0.1) is not None  # and never renews it
    assert await limiter.acquire("judge", 1, False, 0.1) is None
    assert await limiter.acquire("judge", 1, False, 2.0) is not None


async def test_a_renewed_lease_stays() -> None:
    limiter = CallLimiter("stub", ttl_s=0.3)
    lease = await limiter.acquire("judge", 1, False, 0.1)
    assert lease is not None
    for _ in range(4):
        await asyncio.sleep(0.15)
        await limiter.renew("judge", [lease])
    assert await limiter.acquire("judge", 1, False, 0.1) is None
    await limiter.release("judge", lease, False)
    assert await limiter.acquire("judge", 1, False, 0.1) is not None


async def test_a_throttled_pool_grants_less_until_calls_succeed() -> None:
    limiter = CallLimiter("stub")
    leases = [await limiter.acquire("judge", 4, False, 0.1) for _ in range(4)]
    for lease in leases:
        assert lease is not None
        await limiter.release("judge", lease, True)
    only = await limiter.acquire("judge", 4, False, 0.1)
    assert only is not None
    assert await limiter.acquire("judge", 4, False, 0.1) is None
    await limiter.release("judge", only, False)  # share 1 -> 2
    assert await limiter.acquire("judge", 4, False, 0.1) is not None
    assert await limiter.acquire("judge", 4, False, 0.1) is not None
    assert await limiter.acquire("judge", 4, False, 0.1) is None


async def test_a_call_that_failed_before_goes_first() -> None:
    limiter = CallLimiter("stub")
    held = await limiter.acquire("judge", 1, False, 0.1)
    assert held is not None
    order: list[str] = []

    async def wait(name: str, is_retry: bool) -> None:
        lease = await limiter.acquire("judge", 1, is_retry, 5.0)
        assert lease is not None
        order.append(name)
        await limiter.release("judge", lease, False)

    tasks = [asyncio.create_task(wait("new", False)), asyncio.create_task(wait("again", True))]
    await asyncio.sleep(0.05)
    await limiter.release("judge", held, True)
    await asyncio.gather(*tasks)
    assert order == ["again", "new"]


async def test_of_drivers_with_different_limits_each_keeps_to_its_own() -> None:
    limiter = CallLimiter("stub")
    small, large = CallSlots(limiter, "judge", 2), CallSlots(limiter, "judge", 4)
    held = [await slots.acquire(is_retry=False, wait_s=0.2) for slots in (large, small)]
    assert None not in held
    assert await small.acquire(is_retry=False, wait_s=0.1) is None  # two calls are in flight
    assert await large.acquire(is_retry=False, wait_s=0.2) is not None
    assert await large.acquire(is_retry=False, wait_s=0.2) is not None
    assert await large.acquire(is_retry=False, wait_s=0.1) is None
    # Coming with another limit does not undo what a 429 has taken away.
    assert held[0] is not None
    await large.release(held[0], is_throttled=True)  # share 4 -> 2
    for slots in (small, large):
        assert await slots.acquire(is_retry=False, wait_s=0.1) is None
