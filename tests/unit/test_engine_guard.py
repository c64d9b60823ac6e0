"""The engine guard on real small processes: owner, engine core, worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from actors import engine_guard
from core.engine_args import OWNER_ENV

ROOT = str(Path(__file__).resolve().parents[2])
WORKER = "import actors.engine_guard, time; print('guarded', flush=True); time.sleep(60)"
CORE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"


def start_core(owner: int) -> subprocess.Popen[str]:
    """Start a core process with a guarded worker in it."""
    env = {**os.environ, OWNER_ENV: str(owner), "PYTHONPATH": ROOT}
    return subprocess.Popen(
        [sys.executable, "-c", CORE], env=env, stdout=subprocess.PIPE, text=True
    )


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_the_engine_ends_soon_after_its_owner_was_killed() -> None:
    owner = subprocess.Popen(["sleep", "60"])
    core = start_core(owner.pid)
    try:
        assert core.stdout is not None
        assert core.stdout.readline() == "guarded\n"
        process = psutil.Process(core.pid)
        processes = [process, *process.children(recursive=True)]
        time.sleep(0.3)
        assert len(alive(processes)) == 2
        owner.kill()
        owner.wait()
        deadline = time.monotonic() + 10
        while alive(processes) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive(processes) == []
    finally:
        owner.kill()
        core.kill()
        core.wait()


def test_the_shared_memory_of_a_killed_engine_is_removed() -> None:
    owner = subprocess.Popen(["sleep", "60"])
    worker = (
        "import multiprocessing, time\n"
        "from multiprocessing import resource_tracker, shared_memory\n"
        "resource_tracker.register = lambda *_: None\n"  # as when the tracker was killed
        "memory = shared_memory.SharedMemory(create=True, size=4096)\n"
        "lock = multiprocessing.get_context('spawn').Lock()\n"
        "print(memory.name, flush=True)\n"
        "import actors.engine_guard\n"
        "time.sleep(60)\n"
    )
    env = {**os.environ, OWNER_ENV: str(owner.pid), "PYTHONPATH": ROOT}
    process = subprocess.Popen(
        [sys.executable, "-c", worker], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        segment = Path("/dev/shm") / process.stdout.readline().strip()
        mapped = engine_guard.shared_memory_of([process.pid])
        assert segment in mapped
        assert all(path.exists() for path in mapped)
        owner.kill()
        owner.wait()
        assert process.wait(timeout=30) == -signal.SIGKILL
        assert not any(path.exists() for path in mapped)
    finally:
        owner.kill()
        process.kill()
        process.wait()


def test_an_engine_whose_owner_ended_before_it_came_up_ends_at_once() -> None:
    owner = subprocess.Popen(["true"])
    owner.wait()
    core = start_core(owner.pid)
    try:
        core.communicate(timeout=30)  # the worker holds the pipe too: both have ended
        assert core.returncode == -signal.SIGKILL
    finally:
        core.kill()
        core.wait()


def test_a_process_that_ended_meanwhile_does_not_save_the_ones_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[int] = []

    def kill(pid: int, number: int) -> None:
        if pid == 11:
            raise ProcessLookupError
        killed.append(pid)

    monkeypatch.setattr(engine_guard, "wait_for_end", lambda pid: None)
    monkeypatch.setattr(engine_guard, "engine_chain", lambda owner: [10, 11, 12])
    monkeypatch.setattr(engine_guard, "shared_memory_of", lambda pids: set())
    monkeypatch.setattr(engine_guard.os, "kill", kill)
    engine_guard._end_engine_after(9)
    assert killed == [10, 12]
