"""What a report shows, gathered from a run's files in one pass over its rollouts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from actors.rubric_log import RubricLog, RubricVersion
from core.config import RunConfig
from core.config_evolution import rubric_scope
from core.query import is_shared
from core.rows import Row, puts_in_veto, row_rubric_id
from drivers.jsonl_files import read_rows
from drivers.run_files import RunFiles, step_files
from drivers.summary import StepNumbers, mean, step_numbers, summary_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportData:
    """Everything the page and the picture are drawn from."""

    config: RunConfig
    steps: Sequence[StepNumbers]
    evals: Sequence[StepNumbers]
    """Held-out evaluations, by step."""
    events: Sequence[Row]
    history: Sequence[RubricVersion]
    """All versions of the shown rubric; empty when the run has no rubrics."""
    examples: Sequence[Row]
    """Rollouts under the shown rubric: the best of its first and of its last draws."""
    failures: Mapping[str, int]
    """Verdicts without a score, by kind."""
    timing: Mapping[str, float]
    """Mean seconds a step, by ``timing_s/*`` name."""
    numbers: Mapping[str, object]
    """The summary's numbers that the files give."""


def read_report_data(files: RunFiles) -> ReportData:
    """Read a run; ConfigError when the folder is not one."""
    config = files.read_config()
    events = list(read_rows(files.events))
    metrics = list(read_rows(files.metrics))
    history = _history(files, events)
    shown = history[0].query_id if history else ""
    scope = rubric_scope(config.evolution)
    steps: list[StepNumbers] = []
    failures: Counter[str] = Counter()
    draws: list[Row] = []
    for step, rows in files.read_rollouts():
        steps.append(step_numbers(step, rows))
        failures.update(_failure_kinds(rows))
        draws += _best(r for r in rows if row_rubric_id(r, scope) == shown)
    numbers = summary_of(config, steps, metrics, events, times={}, is_resumed=False)
    return ReportData(
        config=config,
        steps=steps,
        evals=[step_numbers(step, list(read_rows(path))) for step, path in step_files(files.eval)],
        events=events,
        history=history,
        examples=[draws[0], draws[-1]] if len(draws) > 1 else draws,
        failures=failures,
        timing=_mean_timing(metrics),
        numbers={name: value for name, value in numbers.items() if name != "resumed"},
    )


def _history(files: RunFiles, events: Iterable[Row]) -> tuple[RubricVersion, ...]:
    """The versions of the rubric that tells most: a [Resist] criterion, then many versions."""
    if not files.rubrics.is_file():
        return ()
    resisted = {e["query_id"] for e in events if puts_in_veto(e)}
    with closing(RubricLog(files.rubrics, is_read_only=True)) as log:
        num_versions = Counter(v.query_id for v in log.edited())
        ids = log.query_ids()
        if not ids:
            return ()
        return log.history(max(ids, key=lambda i: (i in resisted, num_versions[i])))


def rubric_name(rubric_id: str) -> str:
    """Return whose rubric it is, in words."""
    return rubric_id if is_shared(rubric_id) else f"query {rubric_id}"


def _failure_kinds(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        for verdict in (*row["verdicts"].values(), *row["gold"].values()):
            if verdict["failure"] is not None:
                yield verdict["failure"]


def _best(rows: Iterable[Row]) -> list[Row]:
    graded = [row for row in rows if row["reward"] is not None]
    return [max(graded, key=lambda row: row["reward"])] if graded else []


def _mean_timing(metrics: Sequence[Row]) -> dict[str, float]:
    names = sorted({name for row in metrics for name in row if name.startswith("timing_s/")})
    means = {name: mean([row.get(name) for row in metrics]) for name in names}
    return {name: value for name, value in means.items() if value is not None}
