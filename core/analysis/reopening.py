"""Whether replacements tell apart what was tied: reopened headroom and restored variance.

RARE section 5.1 and figure 2. An event counts once: the summed scores of all its replacements over
their combined maximum, one value a rollout. Headroom is 1 minus their mean and, like the variance,
was 0 under the replaced criteria.
"""

from collections.abc import Sequence

from core.analysis.evidence import ReplacementEvent, RunEvidence, events_of, sizes_of
from core.analysis.moments import (
    box_row,
    has_headroom,
    is_spread,
    mean,
    mean_row,
    share_row,
    variance,
)
from core.rows import Row


def reopening(runs: Sequence[RunEvidence]) -> Row:
    """Return the shares of events with headroom and with variance, and the event means by type.

    Raises NotInFiles without replacements.
    """
    events = events_of(runs)
    summed = [e.summed for e in events]
    return {
        "events": len(events),
        "criteria": sum(len(e.pairs) for e in events),
        "discarded": sum(r.num_discarded for r in runs),
        "unmatched": sum(r.num_unmatched for r in runs),
        "group_sizes": sizes_of(e.group for e in events),
        "headroom_reopened": share_row([has_headroom(x) for x in summed], events),
        "variance_restored": share_row([is_spread(x) for x in summed], events),
        "headroom": mean_row([1.0 - mean(x) for x in summed], events),
        "variance": mean_row([variance(x) for x in summed], events),
        "event_means": _by_type(events),
    }


def _by_type(events: Sequence[ReplacementEvent]) -> list[Row]:
    means: dict[str, list[float]] = {}
    for event in events:
        means.setdefault(event.group.type, []).append(mean(event.summed))
    return [{"type": name, **box_row(values)} for name, values in sorted(means.items())]
