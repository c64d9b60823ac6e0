"""Where a step's time goes, and how much of evolution is exposed.

From ``timing_s/*`` of metrics.jsonl. Parts overlap (evolution beside generation, judging beside
both), so that they need not add up to the step. ``evolve_total`` is all time that edits took,
summed over groups; ``evolve_exposed`` is how much later the step was because of them; hidden is the
rest. Several runs are compared by their mean step as CARE does (appendix C.2, table 11), against
the first static one.
"""

import math
from collections.abc import Sequence

from core.analysis.evidence import NotInFiles, RunEvidence
from core.analysis.moments import mean
from core.rows import Row

PREFIX = "timing_s/"
STEP = "timing_s/step"
_TOTAL, _EXPOSED = "timing_s/evolve_total", "timing_s/evolve_exposed"


def step_times(runs: Sequence[RunEvidence]) -> Row:
    """Return the parts of one run's steps in seconds, and its exposed and hidden evolution.

    Raises NotInFiles when no step has its time.
    """
    (run,) = runs
    steps = _column(run, STEP)
    names = sorted({n for row in run.metrics for n in row if n.startswith(PREFIX)})
    parts = [_part(name, _column(run, name, must_have=False), mean(steps)) for name in names]
    return {
        "steps": len(steps),
        "step_s": mean(steps),
        "evolution": _evolution(run, sum(steps)),
        "parts": [p for p in parts if p is not None],
    }


def compared_times(runs: Sequence[RunEvidence]) -> Row:
    """Return the mean step of each run, and its ratio to the first static run's (or the first's).

    Raises NotInFiles when not two runs have times.
    """
    timed = [r for r in runs if _column(r, STEP, must_have=False)]
    if len(timed) < 2:
        raise NotInFiles("fewer than two runs have step times to compare")
    base = next((r for r in timed if r.method == "static"), timed[0])
    base_s = mean(_column(base, STEP))
    return {
        "compared_with": base.name,
        "runs": [
            {
                "run": r.name,
                "method": r.method,
                "step_s": mean(_column(r, STEP)),
                "ratio": mean(_column(r, STEP)) / base_s,
                "exposed_s": _mean(_column(r, _EXPOSED, must_have=False)),
            }
            for r in timed
        ],
    }


def _column(run: RunEvidence, name: str, *, must_have: bool = True) -> list[float]:
    values = [float(row[name]) for row in run.metrics if row.get(name) is not None]
    if must_have and not values:
        raise NotInFiles(f"no step in metrics.jsonl has {name}")
    return values


def _part(name: str, values: Sequence[float], step_s: float) -> Row | None:
    if not values:
        return None
    ordered = sorted(values)
    return {
        "part": name.removeprefix(PREFIX),
        "mean_s": mean(values),
        "p50_s": percentile(ordered, 50),
        "p95_s": percentile(ordered, 95),
        "total_s": math.fsum(values),
        "of_step": mean(values) / step_s if step_s else None,
    }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the percentile of sorted values, linear between neighbours."""
    place = (len(ordered) - 1) * percent / 100.0
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _evolution(run: RunEvidence, steps_s: float) -> Row | None:
    """None for a run that has not both times."""
    total = _column(run, _TOTAL, must_have=False)
    exposed = _column(run, _EXPOSED, must_have=False)
    if not total or not exposed:
        return None
    total_s, exposed_s = math.fsum(total), math.fsum(exposed)
    hidden_s = max(0.0, total_s - exposed_s)
    return {
        "total_s": total_s,
        "exposed_s": exposed_s,
        "hidden_s": hidden_s,
        "hidden_share": hidden_s / total_s if total_s else None,
        "exposed_of_step": exposed_s / steps_s if steps_s else None,
    }


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None
