"""The engine guard on real small processes: owner, engine core, worker."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from core.engine_args import OWNER_ENV

ROOT = str(Path(__file__).resolve().parents[2])
WORKER = "import actors.engine_guard, time; print('guarded', flush=True); time.sleep(60)"
CORE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"


def start_core(owner: int) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start a core process with a guarded worker in it; return both once the guard is up."""
    env = {**os.environ, OWNER_ENV: str(owner), "PYTHONPATH": ROOT}
    core = subprocess.Popen(
        [sys.executable, "-c", CORE], env=env, stdout=subprocess.PIPE, text=True
    )
    assert core.stdout is not None
    assert core.stdout.readline() == "guarded\n"
    process = psutil.Process(core.pid)
    return core, [process, *process.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_the_engine_ends_soon_after_its_owner_was_killed() -> None:
    owner = subprocess.Popen(["sleep", "60"])
    core, processes = start_core(owner.pid)
    try:
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


def test_an_engine_whose_owner_ended_before_it_came_up_ends_at_once() -> None:
    owner = subprocess.Popen(["true"])
    owner.wait()
    core, processes = start_core(owner.pid)
    try:
        core.wait(timeout=10)
        deadline = time.monotonic() + 5
        while alive(processes) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive(processes) == []
    finally:
        core.kill()
        core.wait()
