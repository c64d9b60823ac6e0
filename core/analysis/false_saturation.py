"""How often a smaller group would take a criterion for saturated that is not.

RARE appendix D, on the rescored scores of replacement events: a subset of k rollouts is falsely
saturated when all its scores are full although one of the whole group is not. The paper draws
subsets at random; here all of them count: of G rollouts with m below full, C(G - m, k) of the
C(G, k) subsets miss all m. The paper does not say what its rate is a share of, so both
denominators are given: all cases, and those that are open (not saturated in the whole group), of
which alone a subset can be wrong. A third number is the share of the seeming saturations that are
false. A case is one criterion, or one event with all its replacements.
"""

import math
from collections.abc import Sequence

from core.analysis.evidence import NotInFiles, ReplacementEvent, RunEvidence, events_of
from core.analysis.moments import FULL
from core.rows import Row

SIZES = (4, 6)


def false_saturation(runs: Sequence[RunEvidence], sizes: Sequence[int] = SIZES) -> Row:
    """Return a row for each unit (criterion, event) and subset size.

    Raises NotInFiles without replacements or without a group larger than a subset.
    """
    events = events_of(runs)
    criteria = [_criterion_case(e, shares) for e in events for shares in map(e.shares, e.pairs)]
    whole = [_criterion_case(e, e.summed) for e in events]
    rows = [
        row
        for unit, cases in (("criterion", criteria), ("event", whole))
        for size in sizes
        if (row := _rates(unit, size, cases)) is not None
    ]
    if not rows:
        raise NotInFiles(f"no group has more than {min(sizes)} rollouts to take subsets of")
    return {"events": len(events), "criteria": len(criteria), "rates": rows}


def missed_share(group_size: int, num_below: int, size: int) -> float:
    """Return the share of all subsets of ``size`` that hold none of the ``num_below`` rollouts."""
    return math.comb(group_size - num_below, size) / math.comb(group_size, size)


def _criterion_case(event: ReplacementEvent, shares: Sequence[float]) -> tuple[int, int]:
    """The group's size, and how many of its rollouts are below full."""
    return len(event.group.scores), sum(share < 1.0 - FULL for share in shares)


def _rates(unit: str, size: int, cases: Sequence[tuple[int, int]]) -> Row | None:
    used = [(g, m) for g, m in cases if g > size]
    if not used:
        return None
    still_open = [(g, m) for g, m in used if m > 0]
    false = math.fsum(missed_share(g, m, size) for g, m in still_open)
    apparent = false + len(used) - len(still_open)
    return {
        "unit": unit,
        "subset_size": size,
        "cases": len(used),
        "open_cases": len(still_open),
        "of_all": false / len(used),
        "of_open": false / len(still_open) if still_open else None,
        "of_seeming": false / apparent if apparent else None,
    }
