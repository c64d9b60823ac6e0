"""Old and new criteria on rollouts that neither has seen: discrimination and retention.

RARE appendix C, tables 6 and 7. For each query with a replacement that recurs, two checkpoints
answer with matched seeds, and a judge scores the replaced criteria and their replacements jointly
on the same responses. An event counts once: for each rollout the scores of its old (of its new)
criteria are summed and divided by their combined maximum. Headroom: the scores average below 1;
positive variance: their population variance is above 0; a full group has full credit on every
criterion for all rollouts. The same is given for single pairs of criteria.
An event with a response or score missing at a checkpoint is missing there, and counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.analysis.evidence import NotInFiles, ReplacementEvent, RunEvidence, events_of
from core.analysis.moments import FULL, has_headroom, is_spread, mean
from core.records import Verdict
from core.rows import Row
from core.rubric import Criterion

CHECKPOINTS = ("before", "after")
SIDES = ("new", "old")

_Scores = Sequence[Sequence[float]]
"""[criterion][G], shares of the maximum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FreshEvent:
    """An event's criteria on the fresh rollouts of one checkpoint."""

    type: str
    maxima: tuple[int, ...]
    """[pair]"""
    new: tuple[tuple[float, ...], ...]
    """[pair][G], shares of the maximum."""
    old: tuple[tuple[float, ...], ...]


def recurring(run: RunEvidence) -> list[ReplacementEvent]:
    """Return the events of first visits whose query is drawn again; NotInFiles without any."""
    events_of([run])
    drawn = {(g.query_id, g.visit) for g in run.groups}
    found = [
        e
        for e in run.events
        if e.group.visit == 0 and (e.group.query_id, e.group.visit + 1) in drawn
    ]
    if not found:
        raise NotInFiles("no replacement of a query's first visit whose query is drawn again")
    return found


def joint_criteria(event: ReplacementEvent) -> tuple[Criterion, ...]:
    """Return old and new criteria in one list, under ids that tell them apart."""
    return tuple(
        c.model_copy(update={"id": f"{side} {c.id}"})
        for pair in event.pairs
        for side, c in (("old", pair.old), ("new", pair.new))
    )


def fresh_event(
    event: ReplacementEvent, verdicts: Sequence[Sequence[Verdict]]
) -> FreshEvent | None:
    """Return the event's scores from ``verdicts[g][c]`` on ``joint_criteria``; None when one of
    them is missing."""
    columns: list[tuple[float, ...]] = []
    for c in range(2 * len(event.pairs)):
        scores = [row[c].score for row in verdicts]
        if any(score is None for score in scores):
            return None
        tops = [row[c].max for row in verdicts]
        columns.append(tuple(s / top for s, top in zip(scores, tops, strict=True) if s is not None))
    return FreshEvent(
        type=event.group.type,
        maxima=tuple(p.new.max for p in event.pairs),
        old=tuple(columns[0::2]),
        new=tuple(columns[1::2]),
    )


def fresh_tables(found: Mapping[str, Sequence[FreshEvent | None]]) -> Row:
    """Return tables 6 (all) and 7 (by type), per event and per pair of criteria.

    ``found`` has the events of each checkpoint, None where one is missing.
    """
    known = {name: [e for e in events if e is not None] for name, events in found.items()}
    pairs = {name: [p for e in events for p in _single(e)] for name, events in known.items()}
    types = sorted({e.type for events in known.values() for e in events})
    return {
        "events": max((len(events) for events in found.values()), default=0),
        "missing": {name: len(found[name]) - len(known[name]) for name in found},
        "by_event": _rows(known),
        "by_pair": _rows(pairs),
        "by_type": [
            row
            for kind in types
            for row in _rows(
                {n: [e for e in es if e.type == kind] for n, es in known.items()}, kind
            )
        ],
        "told_apart_where_old_is_saturated": {
            name: _told_apart(events) for name, events in known.items()
        },
    }


def _single(event: FreshEvent) -> list[FreshEvent]:
    return [
        replace(event, maxima=(top,), new=(new,), old=(old,))
        for top, new, old in zip(event.maxima, event.new, event.old, strict=True)
    ]


def _rows(events: Mapping[str, Sequence[FreshEvent]], kind: str | None = None) -> list[Row]:
    head = {} if kind is None else {"type": kind}
    return [
        {**head, "checkpoint": name, "criteria": side, **_numbers(found, side)}
        for name, found in events.items()
        for side in SIDES
        if found
    ]


def _numbers(events: Sequence[FreshEvent], side: str) -> Row:
    summed = [_summed(e, _of(e, side)) for e in events]
    full = [share >= 1.0 - FULL for x in summed for share in x]
    return {
        "n": len(events),
        "score": mean([mean(x) for x in summed]),
        "headroom": mean([float(has_headroom(x)) for x in summed]),
        "variance": mean([float(is_spread(x)) for x in summed]),
        "full_groups": mean([float(min(x) >= 1.0 - FULL) for x in summed]),
        "full_rollouts": mean([float(f) for f in full]),
    }


def _told_apart(events: Sequence[FreshEvent]) -> Row:
    """Of the events whose old criteria are still full everywhere, those that the new tell apart."""
    still = [e for e in events if not has_headroom(_summed(e, e.old))]
    apart = sum(is_spread(_summed(e, e.new)) for e in still)
    return {
        "old_saturated": len(still),
        "count": apart,
        "share": apart / len(still) if still else None,
    }


def _of(event: FreshEvent, side: str) -> _Scores:
    return event.new if side == "new" else event.old


def _summed(event: FreshEvent, scores: _Scores) -> list[float]:
    total = sum(event.maxima)
    columns = list(zip(event.maxima, scores, strict=True))
    return [sum(top * row[g] for top, row in columns) / total for g in range(len(scores[0]))]
