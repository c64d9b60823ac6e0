"""A signal asks an offline run to end with a checkpoint; a second one interrupts it.

Under ``accelerate launch`` the processes may get it at different steps: ``agreed`` is asked by all
of them at the same step and gives all the same answer, so that they save together.
"""

import logging
import signal
from types import FrameType
from typing import Any

import torch

log = logging.getLogger("ratchet")


class StopSignals:
    """Holds SIGINT and SIGTERM while it is entered."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def agreed(self) -> int | None:
        """Return the signal that any process of the run got; all must ask together."""
        from accelerate import PartialState
        from accelerate.utils import gather

        state = PartialState()
        if state.num_processes == 1:
            return self._received
        mine = torch.tensor([self._received or 0], device=state.device)
        return int(gather(mine).max()) or None  # pyright: ignore[reportAttributeAccessIssue]

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._received is not None:
            raise KeyboardInterrupt
        self._received = number
        log.info("stopping after this step, with a checkpoint; again to end at once")
