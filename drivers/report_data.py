"""What a run's picture is drawn from: means by step, edits, and the history of one rubric."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from actors.rubric_log import RubricLog, RubricVersion
from core.config import RunConfig
from core.query import is_shared
from core.rows import Row, puts_in_veto
from drivers.jsonl_files import read_rows
from drivers.run_files import RunFiles, step_files
from drivers.summary import StepNumbers, step_numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportData:
    """Everything the picture is drawn from."""

    config: RunConfig
    steps: Sequence[StepNumbers]
    evals: Sequence[StepNumbers]
    """Held-out evaluations, by step."""
    events: Sequence[Row]
    history: Sequence[RubricVersion]
    """All versions of the shown rubric; empty when the run has no rubrics."""


def read_report_data(files: RunFiles) -> ReportData:
    """Read a run; ConfigError when the folder is not one."""
    events = list(read_rows(files.events))
    return ReportData(
        config=files.read_config(),
        steps=[step_numbers(step, rows) for step, rows in files.read_rollouts()],
        evals=[step_numbers(step, list(read_rows(path))) for step, path in step_files(files.eval)],
        events=events,
        history=_history(files, events),
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
