"""Chance that only names and a seed decide: the same on every machine and in any order.

Ranking things by such a number draws a sample that does not change when the list is shuffled, and
changes least when it grows: RARE's "fixed seeded hash ranking" (appendix A.3.1).
"""

import hashlib
from collections import Counter
from collections.abc import Mapping


def seeded_rank(seed: int, *parts: str) -> int:
    """Return a number of 64 bits that seed and names decide."""
    data = "\x00".join((str(seed), *parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def stratified_sample(strata: Mapping[str, str], num: int, *, seed: int = 0) -> tuple[str, ...]:
    """Return ``num`` of the names (all, if there are fewer), each stratum with its share.

    ``strata`` gives each name's stratum. Shares are proportional, fractions go to the largest
    remainders, and a stratum that would come away empty gets one while another has more than one.
    Sorted by stratum, then by rank. ValueError for fewer than one.
    """
    if num < 1:
        raise ValueError(f"got a sample of {num}, wanted at least 1")
    members: dict[str, list[str]] = {}
    for name in sorted(strata, key=lambda n: seeded_rank(seed, "sample", strata[n], n)):
        members.setdefault(strata[name], []).append(name)
    sizes = {stratum: len(names) for stratum, names in members.items()}
    taken = _allocated(sizes, min(num, len(strata)))
    return tuple(name for stratum in sorted(members) for name in members[stratum][: taken[stratum]])


def _allocated(sizes: Mapping[str, int], num: int) -> dict[str, int]:
    """Return how many to take of each stratum; the sum is ``num``."""
    total = sum(sizes.values())
    if total == 0:
        return {}
    taken: Counter[str] = Counter({s: num * size // total for s, size in sizes.items()})
    by_remainder = sorted(sizes, key=lambda s: (-(num * sizes[s] % total), s))
    for stratum in by_remainder[: num - taken.total()]:
        taken[stratum] += 1
    for stratum in sorted(s for s in sizes if taken[s] == 0):
        richest = max(sorted(taken), key=lambda s: taken[s])
        if taken[richest] > 1:
            taken[richest] -= 1
            taken[stratum] += 1
    return dict(taken)
