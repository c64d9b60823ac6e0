"""The files of a run, in one folder: where each lies, and the one writer of them.

Other tools read these files, so their shapes are a contract (``core/rows.py``). A step's rollouts
appear as one whole file; metrics and edits are whole lines, on disk when a call returns; a step's
metrics line is written last, so that a step with one is complete. ``truncate_after`` takes a
resumed run back to its checkpoint: nothing of a step that will be done again stays.
"""

import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.rubric_log import APPROVED, RubricVersion
from core.config import RunConfig
from core.errors import ConfigError
from core.records import EditEvent, EditOrigin, Evidence, RubricEdit, ScoredGroup
from core.rows import Row, event_row, json_line, rollout_row
from core.validation import first_problem
from drivers.jsonl_files import append_rows, keep_rows, read_rows, write_whole
from drivers.run_lock import RunLock, edits_lock, take_run_lock


class RunFiles:
    """One run's folder. Reading needs no lock; a driver that writes holds ``lock()``."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = self.folder / "config.yaml"
        self.metrics = self.folder / "metrics.jsonl"
        self.events = self.folder / "events.jsonl"
        self.rollouts = self.folder / "rollouts"
        self.eval = self.folder / "eval"
        self.rubrics = self.folder / "rubrics.sqlite"
        self.branch = self.folder / "branch.json"
        """Where a branch came from; a run of its own has none."""
        self.spending = self.folder / "spending.json"
        """What the run has spent on judge and writer (``drivers/spending.py``)."""
        self.summary = self.folder / "summary.json"
        self.health = self.folder / "health.json"
        self.report = self.folder / "report.html"
        self.picture = self.folder / "report.png"
        self.checkpoints = self.folder / "checkpoints"
        self.policy = self.folder / "policy"
        self.tensorboard = self.folder / "tensorboard"
        self.live = self.folder / "live.json"
        """How the run stands, while its driver works (``drivers/live_file.py``)."""
        self.stalls = self.folder / "stalls"
        """What the run waited for when it stood still (``drivers/stall_watchdog.py``)."""

    def lock(self) -> RunLock:
        """Take ``run.lock``; ConfigError when another driver writes this run."""
        return take_run_lock(self.folder / "run.lock")

    def editing(self) -> AbstractContextManager[None]:
        """Hold ``edits.lock`` while the rubric file and events.jsonl change together: a commit
        whose line is not written yet looks to another process as if a crash had lost the line."""
        return edits_lock(self.folder / "edits.lock")

    def clear(self) -> None:
        """Remove all that a run leaves here (``fresh=true``); other files in the folder stay."""
        folders = (self.rollouts, self.eval, self.checkpoints, self.policy, self.tensorboard)
        for path in (*folders, self.stalls):
            shutil.rmtree(path, ignore_errors=True)
        made = (self.summary, self.health, self.report, self.picture)
        files = (self.config, self.metrics, self.events, *made)
        sidecars = [self.rubrics.with_name(self.rubrics.name + end) for end in ("-wal", "-shm")]
        for path in (*files, self.live, self.branch, self.spending, self.rubrics, *sidecars):
            path.unlink(missing_ok=True)

    # -------------------------------------------------------------- writing
    def write_config(self, text: str) -> None:
        """Write the resolved config (YAML)."""
        write_whole(self.config, text.encode("utf-8", "backslashreplace"))

    def write_rollouts(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Write a step's rollouts as one whole file."""
        write_whole(self._step_file(self.rollouts, step), _rollout_lines(step, groups))

    def write_eval(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Write a held-out evaluation's rollouts as one whole file."""
        write_whole(self._step_file(self.eval, step), _rollout_lines(step, groups))

    def write_edit(self, event: EditEvent) -> None:
        """Append one edit, accepted or not, of the draw or step whose rollouts it rests on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        append_rows(self.events, [event_row(event)])

    def write_step(self, step: int, policy_version: int, metrics: Mapping[str, float]) -> None:
        """Append a step's metrics line; its rollouts and edits are written before.

        JSON has no NaN or infinity: such a value is written as null.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        values = {k: float(v) if math.isfinite(v) else None for k, v in metrics.items()}
        row = {"step": step, "policy_version": policy_version, "time": time.time(), **values}
        append_rows(self.metrics, [row])

    def restore_edits(self, versions: Iterable[RubricVersion]) -> int:
        """Append edits that the store acknowledged and whose line a crash kept from being written;
        return how many lines."""
        missing = self.missing_edits(versions)
        append_rows(self.events, missing)
        return len(missing)

    def missing_edits(self, versions: Iterable[RubricVersion]) -> list[Row]:
        """Return the lines of accepted edits that are in the store and not in events.jsonl."""
        written = Counter(
            _edit_key(row) for row in read_rows(self.events) if row["status"] == "accepted"
        )
        acknowledged = [
            event_row(_acknowledged(edit, v))
            for v in versions
            if v.version > 0
            for edit in v.edits
            if edit.status == "accepted"
        ]
        missing: list[Row] = []
        for row in acknowledged:
            if written[_edit_key(row)] > 0:
                written[_edit_key(row)] -= 1
            else:
                missing.append(row)
        return missing

    def truncate_after(self, step: int) -> None:
        """Leave out everything of steps after ``step``, and any half line."""
        keep_rows(self.metrics, lambda row: row["step"] <= step)
        keep_rows(self.events, lambda row: row["step"] <= step)
        for folder in (self.rollouts, self.eval):
            for found, path in step_files(folder):
                if found > step:
                    path.unlink()
        for path in (self.summary, self.report, self.picture):
            path.unlink(missing_ok=True)

    # -------------------------------------------------------------- reading
    @property
    def start_step(self) -> int:
        """The step that the run's first one follows: 0, or for a branch its checkpoint's."""
        if not self.branch.is_file():
            return 0
        return int(json.loads(self.branch.read_bytes())["step"])

    def read_config(self) -> RunConfig:
        """Read the config; ConfigError when this is not a run's folder."""
        import yaml
        from pydantic import ValidationError

        if not self.config.is_file():
            raise ConfigError(f"got {self.folder} without config.yaml, wanted a run's folder")
        try:
            return RunConfig.model_validate(yaml.safe_load(self.config.read_bytes()))
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            is_ours = isinstance(error, ValidationError)
            what = first_problem(error) if is_ours else " ".join(str(error).split())[:300]
            raise ConfigError(
                f"{self.config}: got a config that cannot be read ({what}), wanted the one that "
                "the run wrote"
            ) from None

    def read_rollouts(self) -> Iterable[tuple[int, list[Row]]]:
        """Read the rollouts step by step, in order: (step, its rows)."""
        for step, path in step_files(self.rollouts):
            yield step, list(read_rows(path))

    def _step_file(self, folder: Path, step: int) -> Path:
        return folder / f"step_{step:05d}.jsonl"


def _acknowledged(edit: RubricEdit, version: RubricVersion) -> EditEvent:
    """The event of a version's edit; of an approved one without its place in rollouts, which a
    resume may have redone."""
    if version.key.startswith(APPROVED):
        edit = replace(edit, evidence=Evidence(analysis=edit.evidence.analysis))
    return EditEvent(
        edit=edit,
        origin=EditOrigin(rubric_id=version.query_id, step=version.step),
        from_version=version.version - 1,
        to_version=version.version,
        seconds=version.seconds,
    )


def _edit_key(row: Row) -> tuple[str, int, str]:
    """What tells the edits of a run apart: one version can hold several."""
    content = json.dumps([row["branch"], row["old"], row["new"]], sort_keys=True)
    return row["query_id"], row["to_version"], content


def step_files(folder: Path) -> list[tuple[int, Path]]:
    """Return a folder's ``step_N.jsonl`` files with their steps, in order."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob("step_*.jsonl"):
        number = path.stem.removeprefix("step_")
        if number.isdigit():
            found.append((int(number), path))
    return sorted(found)


def _rollout_lines(step: int, groups: Sequence[ScoredGroup]) -> bytes:
    return b"".join(json_line(rollout_row(step, g, r)) for g in groups for r in g.rollouts)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object a person can read."""
    write_whole(path, json.dumps(value, indent=2).encode() + b"\n")
