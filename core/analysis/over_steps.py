"""Curves over a run's steps: when initial criteria first saturate, how many are replaced.

First saturation (RARE appendix A.4.1, figure 6): the cumulative share of initial criteria that have
had full score from a whole group at least once, each counted at its first time and before it is
replaced. Replaced criteria a query (RARE figure 4a) are shown as they are and smoothed by a centred
mean over nine steps; the paper smooths too and does not say how. Beside them stand the held-out
scores of the steps that have some.
"""

from collections import Counter
from collections.abc import Sequence

from core.analysis.evidence import NotInFiles, RunEvidence, is_saturable, replaced_at
from core.analysis.moments import mean
from core.rows import Row

SMOOTHED_OVER = 9
_HELD_OUT = ("val/gold/mean", "val/reward/mean")


def first_saturation(runs: Sequence[RunEvidence]) -> Row:
    """Return the curve of one run; NotInFiles when no initial criterion can saturate."""
    (run,) = runs
    drawn = {g.rubric_id for g in run.groups}
    initial = {i: r for i, r in run.initial.items() if i in drawn}
    total = sum(is_saturable(c) for r in initial.values() for c in r.criteria)
    if not total:
        raise NotInFiles("no query with an initial criterion that can saturate was drawn")
    firsts = Counter(_first_steps(run).values())
    reached, curve = 0, list[Row]()
    for step in sorted({g.step for g in run.groups}):
        reached += firsts[step]
        curve.append({"step": step, "reached": reached, "share": reached / total})
    return {
        "initial_criteria": total,
        "ever_saturated": reached,
        "share": reached / total,
        "rubrics_not_drawn": len(run.initial) - len(initial),
        "curve": curve,
    }


def _first_steps(run: RunEvidence) -> dict[tuple[str, str], int]:
    """The step of first saturation, by rubric id and criterion id."""
    replaced = replaced_at(run)
    found: dict[tuple[str, str], int] = {}
    for group in run.groups:
        gone = replaced.get((group.query_id, group.visit), ())
        for criterion in run.initial[group.rubric_id].criteria:
            key = (group.rubric_id, criterion.id)
            if key in found or not is_saturable(criterion):
                continue
            still = criterion in group.rubric.criteria and group.is_saturated(criterion) is True
            if criterion in gone or still:
                found[key] = group.step
    return found


def replaced_over_steps(runs: Sequence[RunEvidence]) -> Row:
    """Return replaced criteria a query and step of one run, with held-out scores.

    Raises NotInFiles without replacements.
    """
    (run,) = runs
    if not run.events:
        raise NotInFiles("no accepted replacement of a saturated criterion in the run")
    queries = Counter(g.step for g in run.groups)
    replaced: Counter[int] = Counter()
    for event in run.events:
        replaced[event.group.step] += len(event.pairs)
    steps = sorted(queries)
    values = [replaced[s] / queries[s] for s in steps]
    held_out = {row["step"]: row for row in run.metrics}
    curve = [
        {
            "step": step,
            "replaced": replaced[step],
            "a_query": value,
            "smoothed": mean(values[max(0, i - SMOOTHED_OVER // 2) : i + SMOOTHED_OVER // 2 + 1]),
            **{name: held_out.get(step, {}).get(name) for name in _HELD_OUT},
        }
        for i, (step, value) in enumerate(zip(steps, values, strict=True))
    ]
    return {
        "replaced": sum(replaced.values()),
        "a_query": sum(replaced.values()) / sum(queries.values()),
        "smoothed_over": SMOOTHED_OVER,
        "curve": curve,
    }
