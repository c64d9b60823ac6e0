"""Means, population deviations and intervals as RARE's appendix takes them.

All deviations have the divisor n (RARE appendix A.4). Intervals are percentile bootstraps with
10,000 resamples of clusters within types and the paper's seed.
"""

import math
import statistics
from collections.abc import Sequence

from core.analysis.evidence import ReplacementEvent
from core.rows import Row
from core.statistics import bootstrap_interval, paired_difference

SEED = 20260831
"""RARE appendix A.4."""
EPS = 1e-6
"""Added to the deviation that standardises (RARE appendix A.4)."""
FULL = 1e-12
"""A mean closer to full credit than this is full credit (RARE appendix A.4)."""


def mean(values: Sequence[float]) -> float:
    """Return the mean; ValueError for no values."""
    if not values:
        raise ValueError("got no values, wanted at least one to take the mean of")
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Return the population variance; exactly 0 for values that differ by rounding only."""
    if not is_spread(values):
        return 0.0
    centre = mean(values)
    return math.fsum((v - centre) ** 2 for v in values) / len(values)


def is_spread(values: Sequence[float]) -> bool:
    """Whether the values differ by more than rounding."""
    return max(values) - min(values) > FULL


def has_headroom(values: Sequence[float]) -> bool:
    """Whether the mean of shares of the maximum is below full credit."""
    return mean(values) < 1.0 - FULL


def standardised(values: Sequence[float]) -> tuple[float, ...]:
    """Return (x - mean) / (population deviation + 1e-6); 0 for values without spread."""
    scale = math.sqrt(variance(values)) + EPS
    centre = mean(values)
    is_flat = not is_spread(values)
    return tuple(0.0 if is_flat else (v - centre) / scale for v in values)


def mean_abs_standardised(values: Sequence[float]) -> float:
    """Return the mean size of the standardised values."""
    return mean([abs(z) for z in standardised(values)])


# ------------------------------------------------------------------ rows of results
def share_row(flags: Sequence[bool], events: Sequence[ReplacementEvent]) -> Row:
    """Return a share over events with its count and interval; None where there is no event."""
    return mean_row([float(f) for f in flags], events) | {"count": sum(flags)}


def mean_row(values: Sequence[float], events: Sequence[ReplacementEvent]) -> Row:
    """Return the mean of one value an event with its clustered 95 % interval."""
    if not values:
        return {"value": None, "n": 0}
    interval = bootstrap_interval(
        values,
        clusters=[e.group.cluster for e in events],
        strata=[e.group.type for e in events],
        seed=SEED,
    )
    return {"value": mean(values), "low": interval.low, "high": interval.high, "n": len(values)}


def difference_row(
    a: Sequence[float], b: Sequence[float], events: Sequence[ReplacementEvent]
) -> Row:
    """Return the mean of ``a - b`` over events, its interval, and the change relative to ``b``.

    ``relative`` is of the two overall means; None where the mean of ``b`` is 0.
    """
    keys = [e.key for e in events]
    found = paired_difference(
        dict(zip(keys, a, strict=True)),
        dict(zip(keys, b, strict=True)),
        clusters={e.key: e.group.cluster for e in events},
        strata={e.key: e.group.type for e in events},
        seed=SEED,
    )
    base = mean(b)
    return {
        "value": found.difference,
        "low": found.interval.low,
        "high": found.interval.high,
        "n": found.num_pairs,
        "relative": found.difference / base if base else None,
    }


def box_row(values: Sequence[float]) -> Row:
    """Return what a box plot shows: mean, quartiles (linear between values), and the outermost
    values within 1.5 interquartile ranges of the box (RARE appendix A.4)."""
    ordered = sorted(values)
    if len(ordered) > 1:
        q1, median, q3 = statistics.quantiles(ordered, n=4, method="inclusive")
    else:
        q1 = median = q3 = ordered[0]
    reach = 1.5 * (q3 - q1)
    return {
        "n": len(ordered),
        "mean": mean(ordered),
        "q1": q1,
        "median": median,
        "q3": q3,
        "whisker_low": min(v for v in ordered if v >= q1 - reach),
        "whisker_high": max(v for v in ordered if v <= q3 + reach),
    }
