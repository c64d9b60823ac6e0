"""summary.json: a finished run in some twenty numbers, computed from the files it left.

Rewards, gold, vetoes and failed verdicts come from ``rollouts/``, edits from events.jsonl, times
from metrics.jsonl. A mean over the first or last five steps is the mean of the steps' means; a
number for which there is no data is null, never 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import RunConfig
from core.rows import Row, gold_value, puts_in_veto
from drivers.jsonl_files import read_rows
from drivers.run_files import RunFiles

NUM_EDGE_STEPS = 5
"""How many steps at either end of a run are compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepNumbers:
    """What the rollouts of one step add up to."""

    step: int
    reward: float | None
    """Mean over graded rollouts; None when there is none."""
    gold: float | None
    """Mean over rollouts whose gold criteria all have a score."""
    num_rollouts: int
    num_graded: int
    num_vetoed: int
    num_verdicts: int
    num_failed: int


def step_numbers(step: int, rows: Sequence[Row]) -> StepNumbers:
    """Add up one step's rollouts."""
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    golds = [g for row in rows if (g := gold_value(row["gold"])) is not None]
    verdicts = [v for row in rows for v in (*row["verdicts"].values(), *row["gold"].values())]
    return StepNumbers(
        step=step,
        reward=mean(rewards),
        gold=mean(golds),
        num_rollouts=len(rows),
        num_graded=len(rewards),
        num_vetoed=sum(row["vetoed"] for row in rows),
        num_verdicts=len(verdicts),
        num_failed=sum(v["score"] is None for v in verdicts),
    )


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are there; None when there is none."""
    numbers = [v for v in values if v is not None]
    return sum(numbers) / len(numbers) if numbers else None


def first_and_last(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Means over the first and the last five steps."""
    return mean(values[:NUM_EDGE_STEPS]), mean(values[-NUM_EDGE_STEPS:])


def summarize(
    config: RunConfig,
    files: RunFiles,
    *,
    wall_s: float,
    is_resumed: bool,
    install_s: float | None = None,
) -> dict[str, Any]:
    """Return the summary of the run whose files these are."""
    steps = [step_numbers(step, rows) for step, rows in files.read_rollouts()]
    return summary_of(
        config,
        steps,
        list(read_rows(files.metrics)),
        list(read_rows(files.events)),
        times={"install_s": install_s, "wall_s": wall_s},
        is_resumed=is_resumed,
    )


def summary_of(
    config: RunConfig,
    steps: Sequence[StepNumbers],
    metrics: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    *,
    times: Mapping[str, float | None],
    is_resumed: bool,
) -> dict[str, Any]:
    """Return the summary from the run's records."""
    reward_first5, reward_last5 = first_and_last([s.reward for s in steps])
    gold_first5, gold_last5 = first_and_last([s.gold for s in steps])
    step_s = _column(metrics, "timing_s/step")
    num_rollouts = sum(s.num_rollouts for s in steps)
    ages = _column(metrics, "training/off_policy/trajectory_staleness/max")
    return {
        "method": config.evolution.method,
        "steps": len(metrics),
        "seed": config.seed,
        **times,
        "step_s_mean": mean(step_s),
        "samples_per_s": num_rollouts / sum(step_s) if sum(step_s) else None,
        "reward_first5": reward_first5,
        "reward_last5": reward_last5,
        "gold_first5": gold_first5,
        "gold_last5": gold_last5,
        **edit_counts(events),
        "vetoed_frac": _share(sum(s.num_vetoed for s in steps), sum(s.num_graded for s in steps)),
        "judge_calls": int(total_of_running(_column(metrics, "judge/calls"))),
        "writer_calls": int(sum(_column(metrics, "evolving_rubrics/writer_calls"))),
        "judge_failed_frac": _share(
            sum(s.num_failed for s in steps), sum(s.num_verdicts for s in steps)
        ),
        "exposed_evolution_s": sum(_column(metrics, "timing_s/evolve_exposed")),
        "policy_age_max": int(max(ages, default=0)),
        "resumed": is_resumed,
    }


def edit_counts(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count edits by what became of them."""
    # A retirement has no new criterion; it comes with the edit that it made room for.
    accepted = [e for e in events if e["status"] == "accepted" and e["new"] is not None]
    return {
        "edits_adaptive": sum(e["branch"] == "adaptive" for e in accepted),
        "edits_chase": sum(e["branch"] == "chase" for e in accepted),
        "criteria_replaced": sum(e["branch"] == "replacement" for e in accepted),
        "edits_refused": sum(e["status"] == "refused" for e in events),
        "resist_criteria": sum(map(puts_in_veto, events)),
    }


def total_of_running(totals: Sequence[float]) -> float:
    """Add up a running total that begins at 0 again when a run is resumed."""
    total, previous = 0.0, 0.0
    for value in totals:
        total += value - previous if value >= previous else value
        previous = value
    return total


def _column(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in metrics if row.get(name) is not None]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
