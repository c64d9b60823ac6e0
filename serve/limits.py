"""Keeps the calls to one endpoint within its limits, over all replicas and drivers.

``CallLimiter`` is the one place that counts: a named actor that hands out leases, a lease for each
call in flight. A pool (one model's calls for one purpose) has at most ``limit`` leases at a time;
of drivers that were given different limits each gets a lease only below its own.
A lease not renewed for ``ttl_s`` goes back by itself, so a dead holder blocks nobody. A 429 pauses
the endpoint for everyone until its Retry-After is over and halves the pool's share; every success
lets the share grow again by a fraction, so a waiting crowd does not run into the same limit once
more. Calls that failed before are served before new ones.
``CallSlots`` is a process's side of it: it waits for leases, renews and returns them.
"""

import asyncio
import contextlib
import hashlib
import heapq
import itertools
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import ray
from ray.exceptions import RayActorError

from core.config_served import ServedModelConfig

NAMESPACE = "ratchet"
LEASE_TTL_S = 20.0
_POLL_S = 10.0
"""Longest single wait inside the actor; a caller that waits longer asks again."""
_REPLY_MARGIN_S = 30.0

logger = logging.getLogger(__name__)


class Limiter(Protocol):
    """What ``CallSlots`` asks of a limiter, near or far."""

    async def acquire(self, pool: str, limit: int, is_retry: bool, wait_s: float) -> str | None:
        """Return a lease, or None when none was free in time."""
        ...

    async def release(self, pool: str, lease: str, is_throttled: bool) -> None:
        """Give a lease back."""
        ...

    async def renew(self, pool: str, leases: Sequence[str]) -> None:
        """Keep leases that are in use."""
        ...

    async def pause(self, seconds: float) -> None:
        """Grant nothing on this endpoint for so long."""
        ...


@dataclass(order=True)
class _Waiter:
    order: tuple[int, int]
    limit: int = field(compare=False)
    """Most calls in flight that this caller knows of."""
    lease: "asyncio.Future[str]" = field(compare=False)


@dataclass
class _Pool:
    limit: int
    """The largest that a caller came with."""
    share: float
    """How many leases are granted at present, 1..limit."""
    leases: dict[str, float] = field(default_factory=dict)
    """Lease -> when it expires."""
    waiting: list[_Waiter] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class CallLimiter:
    """Leases for the calls to one endpoint."""

    def __init__(self, endpoint: str, ttl_s: float = LEASE_TTL_S) -> None:
        self._endpoint = endpoint
        self._ttl_s = ttl_s
        self._pools: dict[str, _Pool] = {}
        self._paused_until = 0.0
        self._ticket = itertools.count()

    def __repr__(self) -> str:
        leases = sum(len(p.leases) for p in self._pools.values())
        waiting = sum(len(p.waiting) for p in self._pools.values())
        return f"CallLimiter({self._endpoint}, {leases} calls, {waiting} waiting)"

    async def acquire(self, pool: str, limit: int, is_retry: bool, wait_s: float) -> str | None:
        """Return a lease, or None when none was free within ``wait_s``."""
        place = self._pools.setdefault(pool, _Pool(limit=limit, share=float(limit)))
        if limit > place.limit:
            place.limit, place.share = limit, place.share + limit - place.limit
        order = (0 if is_retry else 1, next(self._ticket))
        waiter = _Waiter(order, limit, asyncio.get_running_loop().create_future())
        heapq.heappush(place.waiting, waiter)
        self._grant(place)
        try:
            return await asyncio.wait_for(waiter.lease, wait_s)
        except TimeoutError:
            return None

    async def release(self, pool: str, lease: str, is_throttled: bool) -> None:
        """Take a lease back; a throttled call halves the pool's share, a good one lets it grow."""
        place = self._pools.get(pool)
        if place is None:
            return
        place.leases.pop(lease, None)
        if is_throttled:
            place.share = max(1.0, place.share / 2)
        else:
            place.share = min(float(place.limit), place.share + 1 / place.share)
        self._grant(place)

    async def renew(self, pool: str, leases: Sequence[str]) -> None:
        """Keep these leases for another ``ttl_s``; one that has expired stays gone."""
        place = self._pools.get(pool)
        for lease in leases:
            if place is not None and lease in place.leases:
                place.leases[lease] = time.monotonic() + self._ttl_s

    async def pause(self, seconds: float) -> None:
        """Grant nothing on this endpoint for so long (the longest pause asked for holds)."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def num_leases(self) -> int:
        """Return how many calls are in flight."""
        now = time.monotonic()
        return sum(1 for p in self._pools.values() for end in p.leases.values() if end > now)

    def _grant(self, place: _Pool) -> None:
        """Hand free leases to the first in line, and come back when the next may be free."""
        now = time.monotonic()
        for lease in [lease for lease, end in place.leases.items() if end <= now]:
            del place.leases[lease]
        while place.waiting and now >= self._paused_until:
            waiter = place.waiting[0]
            if waiter.lease.done():  # gave up
                heapq.heappop(place.waiting)
                continue
            if len(place.leases) >= min(waiter.limit, int(place.share)):
                break
            heapq.heappop(place.waiting)
            lease = uuid.uuid4().hex
            place.leases[lease] = now + self._ttl_s
            waiter.lease.set_result(lease)
        if place.timer is not None:
            place.timer.cancel()
            place.timer = None
        if place.waiting:
            due = (
                self._paused_until
                if now < self._paused_until
                else min(place.leases.values(), default=now)
            )
            place.timer = asyncio.get_running_loop().call_later(
                max(due - now, 0.01), self._grant, place
            )


class CallSlots:
    """One process's side of a limiter, for one pool."""

    def __init__(self, limiter: Limiter, pool: str, limit: int) -> None:
        self._limiter = limiter
        self._pool = pool
        self._limit = limit
        self._held: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def acquire(self, *, is_retry: bool, wait_s: float) -> str | None:
        """Wait for a lease; None when there was none within ``wait_s``."""
        deadline = time.monotonic() + wait_s
        while (remaining := deadline - time.monotonic()) > 0:
            lease = await self._limiter.acquire(
                self._pool, self._limit, is_retry, min(_POLL_S, remaining)
            )
            if lease is not None:
                self._held.add(lease)
                if self._renewing is None or self._renewing.done():
                    self._renewing = asyncio.create_task(self._renew())
                return lease
        return None

    async def release(self, lease: str, *, is_throttled: bool) -> None:
        """Give a lease back."""
        self._held.discard(lease)
        with contextlib.suppress(TimeoutError):  # it expires by itself
            await self._limiter.release(self._pool, lease, is_throttled)

    async def pause(self, seconds: float) -> None:
        """Hold all calls to the endpoint, everywhere, for so long."""
        await self._limiter.pause(seconds)

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(LEASE_TTL_S / 4)
            with contextlib.suppress(TimeoutError):  # a lost lease only lets one call more through
                await self._limiter.renew(self._pool, tuple(self._held))


class RemoteLimiter:
    """The endpoint's limiter actor; makes it when there is none, or when it died."""

    def __init__(self, config: ServedModelConfig) -> None:
        self._endpoint = endpoint_of(config)
        self._name = limiter_name(config)
        self._actor: Any = None

    async def acquire(self, pool: str, limit: int, is_retry: bool, wait_s: float) -> str | None:
        """See ``CallLimiter``."""
        return await self._call("acquire", pool, limit, is_retry, wait_s)

    async def release(self, pool: str, lease: str, is_throttled: bool) -> None:
        """See ``CallLimiter``."""
        await self._call("release", pool, lease, is_throttled)

    async def renew(self, pool: str, leases: Sequence[str]) -> None:
        """See ``CallLimiter``."""
        await self._call("renew", pool, leases)

    async def pause(self, seconds: float) -> None:
        """See ``CallLimiter``."""
        await self._call("pause", seconds)

    async def _call(self, method: str, *args: Any) -> Any:
        try:
            return await self._try(method, *args)
        except RayActorError:
            logger.warning("the call limiter of %s died, starting another", self._endpoint)
            self._actor = None
        try:
            return await self._try(method, *args)
        except RayActorError as error:
            self._actor = None
            raise TimeoutError(
                f"a replica could not reach {self._name} twice in a row ({error}), wanted a "
                "running actor: see its log in the Ray dashboard"
            ) from None

    async def _try(self, method: str, *args: Any) -> Any:
        if self._actor is None:
            # Detached: it must outlive the replica that happens to start it.
            self._actor = CallLimiterActor.options(
                name=self._name,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=10_000,
            ).remote(self._endpoint)
        limit_s = _POLL_S + _REPLY_MARGIN_S
        try:
            return await asyncio.wait_for(getattr(self._actor, method).remote(*args), limit_s)
        except TimeoutError:
            raise TimeoutError(
                f"a replica waited {limit_s:.0f} s for {self._name} to answer {method}, wanted an "
                "answer within seconds: the machine may be overloaded"
            ) from None


def endpoint_of(config: ServedModelConfig) -> str:
    """Return the endpoint's host as people know it."""
    return urlsplit(config.base_url or "https://api.openai.com/v1").netloc


def limiter_name(config: ServedModelConfig) -> str:
    """Return the actor's name: one for each endpoint and key."""
    text = f"{config.base_url}|{config.api_key_env}"
    return f"CallLimiter {endpoint_of(config)} {hashlib.sha256(text.encode()).hexdigest()[:8]}"


async def stop_limiter(config: ServedModelConfig) -> bool:
    """End the endpoint's limiter unless calls are in flight; False when it stays or is absent."""
    try:
        actor = ray.get_actor(limiter_name(config), namespace=NAMESPACE)
        if await asyncio.wait_for(actor.num_leases.remote(), _REPLY_MARGIN_S) > 0:
            return False
    except (ValueError, RayActorError, TimeoutError):
        return False
    ray.kill(actor)
    return True


CallLimiterActor = ray.remote(CallLimiter)
