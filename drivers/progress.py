"""The run's progress: a bar on a terminal, one line a step in a log."""

import logging
import sys
from collections.abc import Mapping
from typing import NoReturn

from tqdm import tqdm

log = logging.getLogger(__name__)


class Progress:
    """Shows reward, gold (if there is any), edits, queue depths and policy age after each step."""

    def __init__(self, num_steps: int, done: int) -> None:
        self._num_steps = num_steps
        self._num_edits = 0
        self._bar: tqdm[NoReturn] | None = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=num_steps, initial=done, unit="step", dynamic_ncols=True)

    def step(self, step: int, metrics: Mapping[str, float], queues: Mapping[str, int]) -> None:
        """Show one finished step."""
        self._num_edits += int(
            metrics.get("evolving_rubrics/num_new_rubrics", 0)
            + metrics.get("evolving_rubrics/num_overrides", 0)
        )
        shown = {
            "reward": f"{metrics.get('critic/rewards/mean', float('nan')):.3f}",
            **({"gold": f"{metrics['gold/mean']:.3f}"} if "gold/mean" in metrics else {}),
            "edits": str(self._num_edits),
            "age": f"{metrics.get('training/off_policy/trajectory_staleness/max', 0):.0f}",
            "queues": "/".join(str(n) for n in queues.values()),
        }
        if self._bar is not None:
            self._bar.set_postfix(shown)
            self._bar.update(1)
        line = "  ".join(f"{name} {value}" for name, value in shown.items())
        seconds = metrics.get("timing_s/step", 0.0)
        message = f"step {step}/{self._num_steps}  {line}  {seconds:.1f} s"
        log.info(message) if self._bar is None else log.debug(message)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
