"""One pass over a run's rollouts for its report: scores by criterion and step, and what was said.

A criterion is known by its tagged text, over all rubrics that hold it, since ids are a rubric's
own. Of rubrics that were edited, the rollouts that an edit names and the best and worst of each
draw are kept; everything else is only counted. A verdict without a score is counted as a failure
and is in no mean.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.config_evolution import Scope
from core.rows import Row, row_rubric_id
from core.rubric import Criterion
from drivers.report_rubrics import RubricTexts
from drivers.summary import StepNumbers, step_numbers

MAX_ROLLOUTS = 24
"""Kept of each rubric, besides those that an edit names."""


@dataclass(slots=True)
class CriterionScores:
    """One criterion's scores over the run."""

    criterion: Criterion
    by_step: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """Sum of score over maximum, and count, by step."""
    num_vetoes: int = 0
    num_failed: int = 0

    @property
    def num_scores(self) -> int:
        """How many verdicts have a score."""
        return int(sum(count for _, count in self.by_step.values()))

    def add(self, step: int, verdict: Row) -> None:
        """Count one verdict."""
        if verdict["score"] is None:
            self.num_failed += 1
            return
        cell = self.by_step.setdefault(step, [0.0, 0.0])
        cell[0] += verdict["score"] / verdict["max"]
        cell[1] += 1
        self.num_vetoes += self.criterion.is_resist and verdict["score"] < verdict["max"]


@dataclass(slots=True)
class Scan:
    """What one pass found."""

    steps: list[StepNumbers] = field(default_factory=list[StepNumbers])
    criteria: dict[str, CriterionScores] = field(default_factory=dict[str, CriterionScores])
    """By tagged text."""
    rollouts: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    """Of each rubric that is shown."""
    failures: Counter[str] = field(default_factory=Counter[str])


def scan_rollouts(
    rollouts: Iterable[tuple[int, Sequence[Row]]],
    texts: RubricTexts,
    scope: Scope,
    events: Sequence[Row],
    shown: Collection[str],
) -> Scan:
    """Read all rollouts once; ``shown`` names the rubrics whose rollouts are kept."""
    found = Scan()
    named = _named(events)
    for step, rows in rollouts:
        found.steps.append(step_numbers(step, rows))
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            rubric_id = row_rubric_id(row, scope)
            _count(found, step, row, texts.criteria(rubric_id, row["rubric_version"]))
            groups.setdefault((rubric_id, row["query_id"]), []).append(row)
        for (rubric_id, _), group in groups.items():
            if rubric_id in shown:
                kept = found.rollouts.setdefault(rubric_id, [])
                kept += _telling(group, named.get((step, rubric_id), set()), len(kept))
    return found


def _named(events: Sequence[Row]) -> dict[tuple[int, str], set[int]]:
    """Return the rollouts that accepted edits rest on, by step and rubric."""
    named: dict[tuple[int, str], set[int]] = {}
    for event in events:
        if event["status"] == "accepted":
            indices = named.setdefault((event["step"], event["query_id"]), set())
            indices.update(event["evidence"]["rollouts"])
    return named


def _count(found: Scan, step: int, row: Row, criteria: Mapping[str, Criterion]) -> None:
    for criterion_id, verdict in row["verdicts"].items():
        if verdict["failure"] is not None:
            found.failures[verdict["failure"]] += 1
        criterion = criteria.get(criterion_id)
        if criterion is not None:
            scores = found.criteria.setdefault(criterion.tagged, CriterionScores(criterion))
            scores.add(step, verdict)
    for verdict in row["gold"].values():
        if verdict["failure"] is not None:
            found.failures[verdict["failure"]] += 1


def _telling(group: Sequence[Row], named: Collection[int], num_kept: int) -> list[Row]:
    """Return the rollouts that an edit names; and while there is room the best and the worst."""
    graded = sorted(
        (row for row in group if row["reward"] is not None), key=lambda row: row["reward"]
    )
    room = num_kept < MAX_ROLLOUTS and graded
    edges = {graded[0]["index"], graded[-1]["index"]} if room else set[int]()
    return [row for row in group if row["index"] in named or row["index"] in edges]
