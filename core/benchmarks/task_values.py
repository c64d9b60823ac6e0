"""One number a task, so that two evaluations of the same tasks can be compared pair by pair.

It is what one task adds to the benchmark's headline: a proportion where the headline is in percent,
a score on the judge's scale elsewhere; None where the task could not be judged. ``stratum`` is the
group within which tasks are resampled.
"""

from collections.abc import Callable, Mapping

from core.benchmarks.pairwise import VALUES
from core.rows import Row


def task_value(benchmark: str, outcome: Row) -> float | None:
    """Return what one outcome counts; KeyError for a benchmark that is not known."""
    return _VALUES[benchmark](outcome)


def stratum(benchmark: str, outcome: Row) -> str:
    """Return the group of the task: capability, video type, constraint type, category."""
    return str(outcome.get(_STRATA.get(benchmark, ""), ""))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _arena(outcome: Row) -> float | None:
    return _mean(outcome["scores"] or [])


def _infobench(outcome: Row) -> float | None:
    return _mean([float(met) for met in outcome["eval"] if met is not None])


def _writingbench(outcome: Row) -> float | None:
    return _mean([float(s["score"]) for s in outcome["scores"] if s["score"] is not None])


def _pairwise(outcome: Row) -> float | None:
    return VALUES.get(outcome["verdict"] or "")


_VALUES: Mapping[str, Callable[[Row], float | None]] = {
    "arena_hard": _arena,
    "biggen": lambda outcome: outcome["score"],
    "followbench": lambda outcome: outcome["hard"],
    "healthbench": lambda outcome: outcome["score"],
    "infobench": _infobench,
    "pairwise": _pairwise,
    "script_metrics": lambda outcome: outcome["overall"],
    "writingbench": _writingbench,
}
_STRATA: Mapping[str, str] = {
    "arena_hard": "subcategory",
    "biggen": "capability",
    "followbench": "type",
    "script_metrics": "type",
    "writingbench": "domain1",
}
