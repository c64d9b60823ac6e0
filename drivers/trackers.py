"""Where metrics go beside metrics.jsonl: TensorBoard always, W&B and MLflow when asked.

A tracker is a view, never the record: metrics.jsonl is. One that was asked for and is not installed
is refused at the start; one that fails during the run (a lost network) is logged once and left out,
since a run must not end over its curves. Libraries are imported when a tracker is opened.
"""

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from core.errors import ConfigError

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """Takes a step's metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show these values at this step."""
        ...

    def close(self) -> None:
        """Send what is still waiting."""
        ...


class TensorBoardTracker:
    """Event files in the run's ``tensorboard`` folder."""

    def __init__(self, folder: Path, *, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # A resumed run hides what a killed one wrote after the checkpoint.
        self._writer = SummaryWriter(log_dir=str(folder), purge_step=first_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """A W&B run of the same name; its own environment variables choose project and mode."""

    def __init__(self, run_name: str, config: Mapping[str, Any]) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        self._run = wandb.init(name=run_name, id=run_name, resume="allow", config=dict(config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class MlflowTracker:
    """An MLflow run of the same name; MLFLOW_TRACKING_URI says where."""

    def __init__(self, run_name: str, config: Mapping[str, Any]) -> None:
        import mlflow  # pyright: ignore[reportMissingImports]

        self._mlflow = mlflow
        mlflow.start_run(run_name=run_name)
        mlflow.log_dict(dict(config), "config.json")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(metrics), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class Trackers:
    """All trackers of a run as one; a failing one is dropped, with a warning."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = list(trackers)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show a step's metrics everywhere."""
        self._each("log", step, metrics)

    def close(self) -> None:
        """Close all."""
        self._each("close")

    def _each(self, method: str, *args: object) -> None:
        for tracker in list(self._trackers):
            try:
                getattr(tracker, method)(*args)
            except Exception:
                logger.warning(
                    "%s failed and is left out from here on; metrics.jsonl has everything",
                    type(tracker).__name__,
                    exc_info=True,
                )
                self._trackers.remove(tracker)


def open_trackers(
    names: Sequence[str],
    folder: Path,
    run_name: str,
    config: Mapping[str, Any],
    *,
    first_step: int = 1,
) -> Trackers:
    """Open TensorBoard in ``folder`` and each of ``names`` ("wandb", "mlflow")."""
    trackers: list[Tracker] = [TensorBoardTracker(folder, first_step=first_step)]
    for name in names:
        if name not in ("wandb", "mlflow"):
            raise ConfigError(f"got tracker {name!r}, wanted wandb or mlflow")
        if find_spec(name) is None:
            raise ConfigError(
                f"got tracker {name!r}, which is not installed: run `pip install {name}`"
            )
        kind = WandbTracker if name == "wandb" else MlflowTracker
        trackers.append(kind(run_name, config))
    return Trackers(trackers)
