"""Ends vLLM's processes when the process that started the engine has ended.

vLLM's EngineCore is a child of the actor and its Worker a child of EngineCore. When the actor is
killed, neither notices: they keep their memory and cores for ever. Python's resource tracker, which
would remove their shared memory, is a child of the actor and is killed with it. This module is
imported in the innermost of them (vLLM resolves ``worker_extension_cls`` there) and starts a thread
that waits for the owner named in the environment; when the owner is gone it removes what the chain
up to it has mapped and kills the chain, itself last.
The wait is on a pidfd, so a reused process id cannot be taken for the owner.
"""

import contextlib
import logging
import os
import re
import select
import signal
import threading
from collections.abc import Iterable
from pathlib import Path

import psutil

from core.engine_args import OWNER_ENV

logger = logging.getLogger(__name__)

_SHARED = re.compile(r"/dev/shm/(?:psm_|sem\.mp-)[^\s/]+$", re.MULTILINE)


class EngineGuard:
    """A ``worker_extension_cls`` without methods: importing its module starts the guard."""


def engine_chain(owner: int) -> list[int]:
    """Return this process and its ancestors below ``owner``, outermost first.

    When the owner has ended, the outermost was handed to init or to another process; that one is
    left out because it was not started for this owner.
    """
    chain = [os.getpid()]
    for parent in psutil.Process().parents():
        if parent.pid == owner or not _is_started_for(owner, parent):
            break
        chain.append(parent.pid)
    return chain[::-1]


def _is_started_for(owner: int, process: psutil.Process) -> bool:
    """Whether it is one of the owner's engine processes: by environment, or by the title that
    vLLM sets where setproctitle is installed (which overwrites the visible environment)."""
    try:
        if any(word.startswith("VLLM::") for word in process.cmdline()):
            return True
        return process.environ().get(OWNER_ENV) == str(owner)
    except psutil.Error:
        return False


def wait_for_end(pid: int) -> None:
    """Return when the process has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([fd], [], [])
    finally:
        os.close(fd)


def shared_memory_of(pids: Iterable[int]) -> set[Path]:
    """Return the segments and semaphores of Python's multiprocessing that the processes have
    mapped: each is of the engine that mapped it, whose processes all end here."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended by itself meanwhile
            found |= {Path(path) for path in _SHARED.findall(Path(f"/proc/{pid}/maps").read_text())}
    return found


def remove_shared_memory(paths: Iterable[Path]) -> None:
    """Remove what is left of them; processes that still run keep what they have mapped."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _end_engine_after(owner: int) -> None:
    wait_for_end(owner)
    # First, since Ray may be killing this process too: the innermost has mapped what all share.
    remove_shared_memory(shared_memory_of([os.getpid()]))
    chain = engine_chain(owner)
    logger.warning("process %d, which started this engine, has ended: killing %s", owner, chain)
    remove_shared_memory(shared_memory_of(chain))
    for pid in chain:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
            os.kill(pid, signal.SIGKILL)


def start_guard() -> threading.Thread | None:
    """Watch the owner named in the environment, if there is one and it is another process."""
    owner = os.environ.get(OWNER_ENV, "")
    if not owner.isdigit() or int(owner) == os.getpid():
        return None
    thread = threading.Thread(
        target=_end_engine_after, args=(int(owner),), name="engine-guard", daemon=True
    )
    thread.start()
    return thread


# vLLM offers no setup call in its processes, only the import of this module.
start_guard()
