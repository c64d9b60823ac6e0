"""What an offline run writes while TRL trains it: metrics, checkpoints' marks, an end on request.

A callback of the Hugging Face trainer. metrics.jsonl gets one line a step, with the validation of
an epoch's end in its last step's line; the line is on disk before the step's checkpoint is. Only
the first process writes. A loss that is no number ends the run: the trainer would go on.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from core.errors import RunStopped
from drivers.offline_run import mark_whole
from drivers.run_files import RunFiles
from drivers.trackers import Trackers

log = logging.getLogger("ratchet")

# TRL's names, and ours where the table of metrics has one for the same thing.
_NAMES = {
    "loss": "loss",
    "epoch": "epoch",
    "learning_rate": "actor/lr",
    "grad_norm": "actor/grad_norm",
    "entropy": "actor/entropy",
    "mean_token_accuracy": "mean_token_accuracy",
    "rewards/chosen": "rewards/chosen",
    "rewards/rejected": "rewards/rejected",
    "rewards/accuracies": "rewards/accuracies",
    "rewards/margins": "rewards/margins",
    "logps/chosen": "logps/chosen",
    "logps/rejected": "logps/rejected",
    "eval_loss": "val/loss",
    "eval_mean_token_accuracy": "val/mean_token_accuracy",
    "eval_rewards/accuracies": "val/rewards/accuracies",
    "eval_rewards/margins": "val/rewards/margins",
}


class OfflineRecorder(TrainerCallback):
    """Writes the run's files from what the trainer logs."""

    def __init__(
        self,
        files: RunFiles,
        trackers: Trackers | None,
        stop_signal: Callable[[], int | None],
        wall_s: Callable[[], float],
        fingerprint: str,
    ) -> None:
        """``trackers`` is None in every process but the first; ``stop_signal`` is the number of
        the signal that any process got."""
        self._files = files
        self._trackers = trackers
        self._stop_signal = stop_signal
        self._wall_s = wall_s
        self._fingerprint = fingerprint
        self._row: dict[str, float] = {}
        self._bar: tqdm[NoReturn] | None = None
        self._began = 0.0
        self.stopped_by: int | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._trackers is not None and sys.stderr.isatty():
            self._bar = tqdm(
                total=state.max_steps, initial=state.global_step, unit="step", dynamic_ncols=True
            )

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._write(state)
        self._began = time.monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._row["timing_s/step"] = time.monotonic() - self._began
        if self._bar is not None:
            self._bar.update(1)
        self.stopped_by = self._stop_signal()
        if self.stopped_by is not None:
            control.should_training_stop = True
            control.should_save = not _is_epoch_end(state)  # an epoch's end saves by itself

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        logs = logs or {}
        if not {"loss", "eval_loss"} & set(logs):  # the trainer's own summary
            return
        for given, name in _NAMES.items():
            if isinstance(logs.get(given), int | float):
                self._row[name] = float(logs[given])
        for name in ("loss", "val/loss"):
            value = self._row.get(name, 0.0)
            if not math.isfinite(value):
                self._write(state)
                raise RunStopped(
                    f"got a {name} of {value} at step {state.global_step}, wanted a number: lower "
                    "learner.lr, or look at the rows; the same command goes on from the last "
                    "checkpoint"
                )
        if "eval_loss" in logs or (control.should_save and not control.should_evaluate):
            self._write(state)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if not _is_epoch_end(state):  # stopped amid it: the step's checkpoint is there
            control.should_evaluate = control.should_save = False
        if not control.should_evaluate:
            self._write(state)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        from accelerate import PartialState

        PartialState().wait_for_everyone()  # every process writes its part of a checkpoint
        if self._trackers is not None:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            mark_whole(folder, state.global_step, self._wall_s(), self._fingerprint)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._write(state)
        if self._bar is not None:
            self._bar.close()

    def _write(self, state: TrainerState) -> None:
        """Write what is known of the step, once."""
        row, self._row = self._row, {}
        if self._trackers is None or not {"loss", "val/loss"} & set(row):
            return
        step = state.global_step
        self._files.write_step(step, step, row)
        self._trackers.log(step, row)
        shown = "  ".join(f"{k} {row[k]:.4g}" for k in ("loss", "val/loss", "actor/lr") if k in row)
        (log.info if self._bar is None else log.debug)(
            "step %d/%d  %s  %.1f s", step, state.max_steps, shown, row.get("timing_s/step", 0.0)
        )


def _is_epoch_end(state: TrainerState) -> bool:
    return float(state.epoch or 0.0).is_integer()
