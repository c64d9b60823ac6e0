"""A benchmark's part in a process of its own that ends with all it started, whatever stops it.

The part is the leader of a session of its own, so Ctrl-C in a terminal reaches only who watches it.
SIGINT or SIGTERM to the watcher becomes SIGINT for the part: its ``finally`` blocks and context
managers end what they began (Ray's own handler of SIGTERM would end it without them). What is still
there after ``END_S``, or at a second signal, is killed: the part and all processes below it.
"""

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

log = logging.getLogger("ratchet")

END_S = 90.0
"""Longest wait for a part to end what it began."""
_POLL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A signal ended the part."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def run_supervised(command: Sequence[str], *, end_s: float = END_S) -> int:
    """Return the command's exit code; raises Stopped once a signal has ended all of it."""
    received: list[int] = []
    before = {s: signal.signal(s, lambda number, _: received.append(number)) for s in _SIGNALS}
    try:
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and not received:
            time.sleep(_POLL_S)
        if not received:
            return process.returncode
        _end(process, received, end_s)
        raise Stopped(received[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruptible() -> None:
    """In the part: take SIGINT as an interrupt, also where a shell started us to ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(process: "subprocess.Popen[bytes]", received: Sequence[int], end_s: float) -> None:
    log.info("ending the part's processes; again to kill them")
    below = _below(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + end_s
    while process.poll() is None and time.monotonic() < deadline and len(received) == 1:
        below |= _below(process.pid)  # as long as their parents live they are found
        time.sleep(_POLL_S)
    if process.poll() is None:
        log.warning("the part's processes are killed: its temporary folder may be left")
    below |= _below(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _kill(below)
    process.wait()


def _below(pid: int) -> "set[psutil.Process]":
    try:
        import psutil
    except ImportError:  # a part that needs little else starts nothing outside its session
        return set()
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def _kill(processes: "Collection[psutil.Process]") -> None:
    if not processes:
        return
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()  # never another process that got its number
    psutil.wait_procs(list(processes), timeout=5.0)
