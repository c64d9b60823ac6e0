"""The analyses that a run's files suffice for: their names, where they come from, what computes
them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.analysis.budget import budget_coverage
from core.analysis.calls import call_accounting
from core.analysis.directions import by_direction, matched
from core.analysis.evidence import NotInFiles, RunEvidence
from core.analysis.false_saturation import false_saturation
from core.analysis.over_steps import first_saturation, replaced_over_steps
from core.analysis.reopening import reopening
from core.analysis.resaturation import resaturation
from core.analysis.times import compared_times, step_times
from core.rows import Row

Compute = Callable[[Sequence[RunEvidence]], Row]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileAnalysis:
    """One analysis; ``of`` takes one run, ``across`` all of them together."""

    name: str
    title: str
    source: str
    of: Compute
    across: Compute | None = None


def _pooled(name: str, title: str, source: str, of: Compute) -> FileAnalysis:
    """An analysis of events, which several runs put together."""
    return FileAnalysis(name=name, title=title, source=source, of=of, across=of)


FILE_ANALYSES: tuple[FileAnalysis, ...] = (
    _pooled("reopening", "reopened headroom and restored variance", "RARE 5.1", reopening),
    _pooled("resaturation", "resaturation on the next visit", "RARE 5.1, A.4", resaturation),
    _pooled("directions", "events by direction, advantage size", "RARE table 3a", by_direction),
    _pooled("matched", "negative against positive in one event", "RARE table 3b", matched),
    _pooled("budget", "what the budget of replacements covers", "RARE appendix D", budget_coverage),
    _pooled(
        "false_saturation", "false saturation by group size", "RARE appendix D", false_saturation
    ),
    FileAnalysis(
        name="first_saturation",
        title="when initial criteria first saturate",
        source="RARE A.4.1",
        of=first_saturation,
    ),
    FileAnalysis(
        name="replaced",
        title="replaced criteria over steps",
        source="RARE figure 4a",
        of=replaced_over_steps,
    ),
    FileAnalysis(
        name="calls",
        title="calls of judge and writer",
        source="RARE A.2.3, CARE C.2",
        of=call_accounting,
    ),
    FileAnalysis(
        name="times",
        title="where a step's time goes",
        source="CARE table 11",
        of=step_times,
        across=compared_times,
    ),
)


def computed(compute: Compute, runs: Sequence[RunEvidence]) -> Row:
    """Return the result, or why the files do not give it."""
    try:
        return compute(runs)
    except NotInFiles as reason:
        return {"missing": str(reason)}
