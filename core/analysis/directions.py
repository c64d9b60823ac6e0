"""Which direction of replacement gives the stronger signal: RARE table 3.

(a) Events by the direction that their run asked for. The advantage of replacements alone takes the
summed scores over their combined maximum, standardises them within the group (population deviation
plus 1e-6) and averages their sizes; a group that the replacements leave tied has 0 and counts.
(b) Events of Mixed runs that hold both directions, so that query, step, writer call, judge and
rollouts are the same. Each criterion has its own headroom, variance and standardised scores; they
are averaged within a direction, then over events (RARE appendix A.4).
"""

from collections.abc import Callable, Mapping, Sequence

from core.analysis.evidence import NotInFiles, Pair, ReplacementEvent, RunEvidence, events_of
from core.analysis.moments import (
    difference_row,
    has_headroom,
    is_spread,
    mean,
    mean_abs_standardised,
    mean_row,
    share_row,
    variance,
)
from core.rows import Row

DIRECTIONS = ("negative", "positive")

_Statistic = Callable[[Sequence[float]], float]

STATISTICS: Mapping[str, _Statistic] = {
    "headroom": lambda x: 1.0 - mean(x),
    "variance": variance,
    "abs_standardised": mean_abs_standardised,
    "headroom_rate": lambda x: float(has_headroom(x)),
}
"""Of one criterion's scores (shares of its maximum) over the rollouts of an event."""


def by_direction(runs: Sequence[RunEvidence]) -> Row:
    """Return table 3(a): a row for each direction that the runs asked for.

    Raises NotInFiles without replacements.
    """
    events_of(runs)
    rows: list[Row] = []
    for direction in sorted({r.polarity for r in runs if r.events}):
        events = [e for r in runs if r.polarity == direction for e in r.events]
        summed = [e.summed for e in events]
        sizes = [mean_abs_standardised(x) for x in summed]
        spread = [size for size, x in zip(sizes, summed, strict=True) if is_spread(x)]
        rows.append(
            {
                "direction": direction or "unknown",
                "events": len(events),
                "headroom_reopened": share_row([has_headroom(x) for x in summed], events),
                "variance_restored": share_row([is_spread(x) for x in summed], events),
                "abs_advantage": mean_row(sizes, events),
                "abs_advantage_of_restored": mean(spread) if spread else None,
            }
        )
    return {"directions": rows}


def matched(runs: Sequence[RunEvidence]) -> Row:
    """Return table 3(b): negative against positive replacements of the same event.

    ``relative`` is the change of the overall means; ``headroom_rate`` differs in points (0..1).
    Raises NotInFiles when no event holds both directions.
    """
    events = events_of(runs)
    both = [e for e in events if all(_of(e, d) for d in DIRECTIONS)]
    if not both:
        found = sorted({p.polarity or "unknown" for e in events for p in e.pairs})
        raise NotInFiles(
            f"no event replaces a criterion in both directions (directions found: "
            f"{', '.join(found)}): it takes a run with evolution.rare.polarity=mixed"
        )
    counts = {d: sum(len(_of(e, d)) for e in events) for d in DIRECTIONS}
    return {
        "events": len(events),
        "matched_events": len(both),
        **{f"{d}_replacements": counts[d] for d in DIRECTIONS},
        "statistics": [_compared(name, of, both) for name, of in STATISTICS.items()],
    }


def _of(event: ReplacementEvent, direction: str) -> list[Pair]:
    return [p for p in event.pairs if p.polarity == direction]


def _compared(name: str, of: _Statistic, events: Sequence[ReplacementEvent]) -> Row:
    negative, positive = (
        [mean([of(e.shares(p)) for p in _of(e, d)]) for e in events] for d in DIRECTIONS
    )
    return {
        "statistic": name,
        "negative": mean(negative),
        "positive": mean(positive),
        "difference": difference_row(negative, positive, events),
    }
