"""Which replica a query's judge calls should go to, so that its engine's prefix cache is used.

All calls of a query go to the replica that the query's name points to (rendezvous hashing: a
replica that comes or goes moves only its own share of the queries), as long as that replica has not
clearly more to do than the others; then to the next in the query's own order, and so on. A replica
that is full, or of which nothing is known, is never waited for while another one is free.
Pure: names, loads and places in, an order of tries out. ``serve/routing.py`` is Serve's side of it.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

_SPREAD = 1.25
"""A query's replica takes its calls up to so much more than the mean of those that are free."""
_GROUP = 8
"""And in any case up to so many: on an idle system the usual group of eight stays together."""

Loads = Mapping[str, int | None]
"""Calls under way at each replica, None where it is not known."""


def preference(key: str, replicas: Sequence[str]) -> list[str]:
    """Return the replicas in the order of this key."""
    return sorted(replicas, key=lambda name: hashlib.blake2b(f"{key}\0{name}".encode()).digest())


def tries(key: str, loads: Loads, places: int) -> list[list[str]]:
    """Return sets of replicas to try one after the other; within one the least loaded is taken.

    ``places`` is how many calls a replica works on at a time. Of the first set one is known to have
    a free one, unless that is known of none.
    """
    order = preference(key, list(loads))
    unknown = [name for name in order if loads[name] is None]
    free = {n: load for n, load in loads.items() if load is not None and load < places}
    first = _first(order, free, unknown) if free else unknown[:1] or order
    rest = [name for name in order if name not in first]
    return [first, rest] if rest else [first]


def _first(order: Sequence[str], free: Mapping[str, int], unknown: Sequence[str]) -> list[str]:
    bound = max(_GROUP, math.ceil(_SPREAD * (sum(free.values()) + 1) / len(free)))
    wanted = next((n for n in order if n in unknown or free.get(n, bound) < bound), "")
    if wanted in free:
        return [wanted]
    known = [n for n in order if n in free]
    taken = next((n for n in known if free[n] < bound), min(known, key=lambda n: free[n]))
    # Serve takes the known one and asks the other in the background how full it is.
    return [wanted, taken] if wanted else [taken]
