"""The processes that train side by side: each holds one trainer and does a step when told to.

An arm is a spawned process, so that its peak memory is its own: ``run`` gets one end of a pipe and
a setup, builds its trainer, and answers every "step" with ``StepFigures``. While one arm works the
others wait for their pipe and use no core.
Memory is the highest resident size of the whole process during the step: the kernel's high-water
mark, set back right before (``/proc/self/clear_refs``), so what loading needed is not counted.
An arm that dies or does not answer within its limit ends the measurement by name.
"""

import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

ANSWER_LIMIT_S = 400.0
"""Longest wait for a trainer to be built or to do one step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFigures:
    """What one training step took."""

    seconds: float
    peak_mb: float
    """Highest resident size of the process during the step, MB of 10^6 bytes."""


class Arm:
    """One training process."""

    def __init__(self, name: str, run: Callable[[Connection, Any], None], setup: Any) -> None:
        self.name = name
        self.steps: list[StepFigures] = []
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_guarded, args=(run, theirs, setup), daemon=True)
        self._process.start()
        theirs.close()
        self.first_answer: Any = self._answer("be built")

    def step(self) -> StepFigures:
        """Let it do one training step."""
        self._ours.send("step")
        figures: StepFigures = self._answer("do a step")
        self.steps.append(figures)
        return figures

    def close(self) -> None:
        """End the process."""
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(10.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._ours.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, what: str) -> Any:
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while not self._ours.poll(1.0):
            if time.monotonic() > deadline:
                self.close()
                raise TimeoutError(
                    f"the benchmark waited {ANSWER_LIMIT_S:.0f} s for the arm {self.name!r} to "
                    f"{what} and got no answer: is the machine busy, or did it run out of memory?"
                )
            if not self._process.is_alive() and not self._ours.poll(0.0):
                self.close()
                raise RuntimeError(f"the arm {self.name!r} died while it had to {what}: see above")
        try:
            answer = self._ours.recv()
        except EOFError:
            self.close()
            raise RuntimeError(f"the arm {self.name!r} died while it had to {what}") from None
        if isinstance(answer, BaseException):
            self.close()
            raise RuntimeError(f"the arm {self.name!r} failed to {what}") from answer
        return answer


def in_own_process(name: str, run: Callable[[Connection, Any], None], setup: Any) -> Any:
    """The first answer of a process that has nothing more to do."""
    with Arm(name, run, setup) as arm:
        return arm.first_answer


def steps_asked_for(connection: Connection) -> Iterator[None]:
    """One item for every step that the benchmark asks for, until it hangs up."""
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        yield


@contextmanager
def measured(connection: Connection) -> Iterator[None]:
    """Measure the block as one step and answer with its figures."""
    reset_peak()
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    connection.send(StepFigures(seconds=seconds, peak_mb=peak_mb()))


def reset_peak() -> None:
    """Set the high-water mark of this process back to what it holds now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_mb() -> float:
    """Highest resident size since ``reset_peak``."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    if found is None:
        raise RuntimeError("got no VmHWM in /proc/self/status, wanted a Linux kernel")
    return int(found[1]) * 1024 / 1e6


def num_threads() -> int:
    """Threads that every arm gives to torch: the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _guarded(run: Callable[[Connection, Any], None], connection: Connection, setup: Any) -> None:
    """In the new process: whatever goes wrong is sent, so that the benchmark can name it.

    SIGTERM, with which ``close`` ends it, unwinds it too, so its temporary folder goes with it.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    import torch

    torch.set_num_threads(num_threads())
    try:
        run(connection, setup)
    except KeyboardInterrupt:
        return
    except Exception as error:
        import traceback

        traceback.print_exc()
        connection.send(RuntimeError(f"{type(error).__name__}: {error}"))
