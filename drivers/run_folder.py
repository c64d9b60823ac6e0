"""A run's life in its folder: one driver at a time, begun, recorded, finished.

``RunFiles`` knows what each file looks like; this knows when it is written. A run is finished when
its summary says that it made as many steps as are wanted. The summary and the report are made from
the files, as any other program could.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from actors.rubric_log import RubricLog
from core.config import RunConfig
from core.records import EditEvent, ScoredGroup
from drivers.run_files import RunFiles, write_json
from drivers.run_lock import RunLock
from drivers.trackers import Trackers, open_trackers

logger = logging.getLogger(__name__)


class RunRecorder:
    """``ports.Recorder`` over the run's files and trackers."""

    def __init__(self, files: RunFiles, trackers: Trackers) -> None:
        self._files = files
        self._trackers = trackers

    def edit(self, event: EditEvent) -> None:
        """Write one edit, accepted or not."""
        self._files.write_edit(event)

    def step(self, step: int, groups: Sequence[ScoredGroup], metrics: Mapping[str, float]) -> None:
        """Write one training step: its rollouts, then its metrics."""
        self._files.write_rollouts(step, groups)
        # Policy versions count steps, so step s makes version s.
        self._files.write_step(step, step, metrics)
        self._trackers.log(step, metrics)

    def evaluation(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Write the rollouts of a held-out evaluation."""
        self._files.write_eval(step, groups)


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files = RunFiles(self.path)
        self.checkpoints = self.files.checkpoints
        self.policy = self.files.policy
        self.rubrics = self.files.rubrics
        self._last_step = 0

    def locked(self) -> RunLock:
        """Hold the run against other drivers (a context manager)."""
        return self.files.lock()

    def start_over(self) -> None:
        """Remove what an earlier run left; the caller holds the lock."""
        self.files.clear()

    def is_finished(self, num_steps: int) -> bool:
        """Whether the run has ended after at least this many steps."""
        if not self.files.summary.is_file():
            return False
        try:
            made = json.loads(self.files.summary.read_bytes())["steps"]
            return self.files.start_step + made >= num_steps
        except (ValueError, KeyError, TypeError):
            return False

    def begin(self, config_text: str, last_step: int) -> None:
        """Write the config and take the files back to ``last_step`` (0 for a new run)."""
        self.files.write_config(config_text)
        self.files.truncate_after(last_step)
        self._last_step = last_step

    @contextmanager
    def recorder(self) -> Iterator[RunRecorder]:
        """Open TensorBoard and the config's trackers beside the files."""
        config = self.files.read_config()
        opened = open_trackers(
            config.trackers,
            self.files.tensorboard,
            config.name,
            config.model_dump(mode="json"),
            first_step=self._last_step + 1,
        )
        try:
            yield RunRecorder(self.files, opened)
        finally:
            opened.close()

    def finish(
        self,
        config: RunConfig,
        *,
        wall_s: float,
        is_resumed: bool,
        install_s: float | None = None,
    ) -> None:
        """Write summary.json and the report from the files."""
        from drivers.report import write_report
        from drivers.summary import summarize

        summary = summarize(
            config, self.files, wall_s=wall_s, is_resumed=is_resumed, install_s=install_s
        )
        # The store was ended, not closed: whoever copies rubrics.sqlite alone shall have all of it.
        RubricLog(self.rubrics).close()
        write_report(self.files)
        # Last, because it marks the run as finished: a report that fails is made by the next start.
        write_json(self.files.summary, summary)
        logger.info("report in %s", self.files.report)
