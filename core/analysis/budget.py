"""How much of what is saturated a budget of B replacements covers, and how far it moves rewards.

RARE appendix D. The saturated criteria of an event are those that it replaced and those that it
left although every rollout has full score on them. Only replaced criteria change a reward, so that
it moves by at most their share of the summed maxima; before the event all of them were full.
"""

from collections import Counter
from collections.abc import Sequence

from core.analysis.evidence import ReplacementEvent, RunEvidence, events_of, is_saturable
from core.analysis.moments import FULL, mean
from core.rows import Row


def budget_coverage(runs: Sequence[RunEvidence]) -> Row:
    """Return how many criteria are saturated an event, what each budget covers, and the bound.

    Raises NotInFiles without replacements.
    """
    events = events_of(runs)
    counts = [num_saturated(e) for e in events]
    budgets = sorted({r.budget for r in runs if r.events and r.budget is not None})
    drops = [_drop(e) for e in events]
    bounds = [_bound(e) for e in events]
    largest = max([*counts, *budgets])
    return {
        "events": len(events),
        "budgets": budgets,
        "saturated": sum(counts),
        "replaced": sum(len(e.pairs) for e in events),
        "share_replaced": sum(len(e.pairs) for e in events) / sum(counts),
        "mean_reward_change": mean(drops),
        "max_reward_change": max(drops),
        "mean_bound": mean(bounds),
        "within_bound": sum(d <= b + FULL for d, b in zip(drops, bounds, strict=True)),
        "saturated_an_event": [
            {"saturated": n, "events": c} for n, c in sorted(Counter(counts).items())
        ],
        "coverage": [_coverage(b, counts) for b in range(1, largest + 1)],
    }


def num_saturated(event: ReplacementEvent) -> int:
    """Return how many criteria were saturated before the event."""
    new = {p.new.id for p in event.pairs}
    left = [c for c in event.group.rubric.criteria if c.id not in new and is_saturable(c)]
    return len(event.pairs) + sum(event.group.is_saturated(c) is True for c in left)


def _coverage(budget: int, counts: Sequence[int]) -> Row:
    over = sum(n > budget for n in counts)
    return {
        "budget": budget,
        "events_over": over,
        "events_over_share": over / len(counts),
        "events_covered_share": 1.0 - over / len(counts),
        "criteria_covered_share": sum(min(budget, n) for n in counts) / sum(counts),
    }


def _drop(event: ReplacementEvent) -> float:
    """The largest change of a rollout's sum over maxima."""
    replaced = sum(p.new.max for p in event.pairs)
    lost = max(1.0 - share for share in event.summed)
    return replaced * lost / event.group.rubric.total_max


def _bound(event: ReplacementEvent) -> float:
    return sum(p.new.max for p in event.pairs) / event.group.rubric.total_max
