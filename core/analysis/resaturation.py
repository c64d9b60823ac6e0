"""Whether a replacement that told rollouts apart is satisfied by all when its query comes again.

RARE section 5.1 and appendix A.4: of the replacements that reopened headroom, those that recur
unchanged at the query's next visit; resaturated means that all rollouts have full credit there. At
that visit a saturated criterion may have been replaced before the rewards, so that its own scores
are not in the rollouts any more: that it was replaced says that it was saturated. With two epochs
the next visit is the paper's second epoch; with more, every pair of visits counts.
"""

from collections import Counter
from collections.abc import Sequence

from core.analysis.evidence import Group, NotInFiles, RunEvidence, events_of, replaced_at
from core.analysis.moments import has_headroom
from core.rows import Row
from core.rubric import Criterion


def resaturation(runs: Sequence[RunEvidence]) -> Row:
    """Return the cohort, how much of it resaturated, and by direction.

    Raises NotInFiles without replacements, and when none recurs.
    """
    events_of(runs)
    fates: Counter[tuple[str, str]] = Counter()
    for run in runs:
        _add_fates(run, fates)
    cohort = _count(fates, "resaturated") + _count(fates, "open")
    if not cohort:
        raise NotInFiles(
            "no replacement that reopened headroom recurs unchanged at its query's next visit "
            f"({_count(fates, 'not_drawn_again')} were not drawn again, {_count(fates, 'changed')} "
            "were changed before)"
        )
    directions = sorted({direction for _, direction in fates})
    return {
        "reopened": sum(fates.values()),
        **{fate: _count(fates, fate) for fate in ("not_drawn_again", "changed", "unscored")},
        "cohort": cohort,
        "resaturated": _count(fates, "resaturated"),
        "share": _count(fates, "resaturated") / cohort,
        "directions": [_direction_row(fates, d) for d in directions],
    }


def _add_fates(run: RunEvidence, fates: Counter[tuple[str, str]]) -> None:
    visits = {(g.query_id, g.visit): g for g in run.groups}
    replaced = replaced_at(run)
    for event in run.events:
        place = (event.group.query_id, event.group.visit + 1)
        for pair in event.pairs:
            if has_headroom(event.shares(pair)):
                fate = _fate(pair.new, visits.get(place), replaced.get(place, ()))
                fates[fate, pair.polarity or "unknown"] += 1


def _fate(criterion: Criterion, group: Group | None, replaced: Sequence[Criterion]) -> str:
    if group is None:
        return "not_drawn_again"
    if criterion in replaced:
        return "resaturated"
    if criterion not in group.rubric.criteria:
        return "changed"
    is_saturated = group.is_saturated(criterion)
    if is_saturated is None:
        return "unscored"
    return "resaturated" if is_saturated else "open"


def _count(fates: Counter[tuple[str, str]], fate: str) -> int:
    return sum(number for (found, _), number in fates.items() if found == fate)


def _direction_row(fates: Counter[tuple[str, str]], direction: str) -> Row:
    resaturated = fates["resaturated", direction]
    cohort = resaturated + fates["open", direction]
    return {
        "direction": direction,
        "cohort": cohort,
        "resaturated": resaturated,
        "share": resaturated / cohort if cohort else None,
    }
