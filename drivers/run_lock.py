"""One driver a run: ``run.lock`` in the run's folder; and one person's edit at a time.

The lock is the kernel's (``flock``), so that it ends with its process however that ends, and a
process id that was given to another program cannot keep it. The file's text says who holds it. A
lock left by a process of another host cannot be judged from here: it is refused with what to do.
``edits_lock`` is the short one that rubric commands, and a driver that takes a run back, hold while
the rubric file and events.jsonl change together.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import ConfigError, RunStopped

_EDITS_TIMEOUT_S = 60.0
_EDITS_POLL_S = 0.02


class RunLock:
    """A held lock; ``release`` (or the end of the process) gives it back."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; doing it twice is harmless."""
        if self._descriptor < 0:
            return
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def take_run_lock(path: Path) -> RunLock:
    """Take the lock or raise ConfigError that names the holder; a dead holder's is taken over."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f"got {path.parent} for the run's files, which cannot be written "
                f"({error.strerror}), wanted a folder that this user can write: set runs_dir"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_still_at(descriptor, path):  # its holder removed it meanwhile
                os.close(descriptor)
                continue
            _refuse_other_host(descriptor, path)
            _write_holder(descriptor)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise ConfigError(
                f"got a run that process {holder.get('pid', '?')} on {holder.get('host', '?')} is "
                f"writing ({path}), wanted one driver a run: wait for it, stop it, or give this "
                "run another name"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        return RunLock(path, descriptor)


def _refuse_other_host(descriptor: int, path: Path) -> None:
    holder = _holder(descriptor)
    if holder and holder.get("host") != socket.gethostname():
        raise ConfigError(
            f"got {path} left by process {holder.get('pid')} on host {holder.get('host')!r}, "
            "which cannot be looked at from here, wanted a run that nobody writes: when that "
            f"driver has ended, remove the file ({path}) and start again"
        )


def _write_holder(descriptor: int) -> None:
    text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()})
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
    os.fsync(descriptor)


def _holder(descriptor: int) -> dict[str, object]:
    text = os.pread(descriptor, 4096, 0)
    try:
        found = json.loads(text)
    except ValueError:  # empty, or its holder died while writing it
        return {}
    return found if isinstance(found, dict) else {}


def _is_still_at(descriptor: int, path: Path) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def edits_lock(path: Path, timeout_s: float = _EDITS_TIMEOUT_S) -> Iterator[None]:
    """Hold ``path`` alone; others wait their turn, RunStopped after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while (descriptor := _taken(path)) is None:
        if time.monotonic() >= end:
            raise RunStopped(
                f"got {path} held by another process for {timeout_s:g} s, wanted a turn to change "
                "this run's rubrics: nothing of this was done; try again"
            )
        time.sleep(_EDITS_POLL_S)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _taken(path: Path) -> int | None:
    """Return the locked file's descriptor, None while another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_still_at(descriptor, path):
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
