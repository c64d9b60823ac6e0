"""Stacks of the driver's threads and of the run's processes on this host, as text.

Other processes are read with py-spy, which comes with ``ray[default]``. Where it may not look into
them (a container without SYS_PTRACE), its reason stands instead.
"""

import os
import shutil
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import psutil

_TITLES = (
    *("ray::RolloutWorker", "ray::ControlWorker", "ray::PolicyLearner", "ray::RubricStore"),
    *("ray::ServeReplica", "ray::ProxyActor", "VLLM::"),
)
"""How the processes name themselves whose stacks tell why a run waits."""
_TIMEOUT_S = 20.0
_MAX_PROCESSES = 32


def all_stacks() -> str:
    """Return the threads of this process, then each process that a run may wait for."""
    texts = ["# threads of the driver", thread_stacks()]
    for pid, title in run_processes()[:_MAX_PROCESSES]:
        texts += ["", f"# process {pid} {title}", process_stacks(pid)]
    return "\n".join(texts)


def thread_stacks() -> str:
    """Return every thread of this process with its frames."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    texts: list[str] = []
    for ident, frame in sys._current_frames().items():
        texts.append(f"thread {names.get(ident, ident)}")
        texts.append("".join(traceback.format_stack(frame)).rstrip())
    return "\n".join(texts)


def run_processes() -> list[tuple[int, str]]:
    """Return id and title of this user's Ray actors and engines on this host."""
    found: list[tuple[int, str]] = []
    for process in psutil.process_iter(["pid", "cmdline", "uids"]):
        title = " ".join(process.info["cmdline"] or ()).strip()
        uids = process.info["uids"]
        is_own = uids is not None and uids.real == os.getuid()
        if is_own and title.startswith(_TITLES):
            found.append((process.info["pid"], title[:80]))
    return sorted(found)


def process_stacks(pid: int) -> str:
    """Return what py-spy says of a process, or why it says nothing."""
    tool = py_spy()
    if tool is None:
        return "no stacks: py-spy is not installed (it comes with ray[default])"
    command = [tool, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no stacks: {error}"
    return done.stdout.strip() or f"no stacks: {done.stderr.strip() or 'py-spy said nothing'}"


def py_spy() -> str | None:
    """Return the program beside this Python, or on the PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")
