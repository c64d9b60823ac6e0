"""A signal to ``ratchet bench`` ends the part and all processes that it started."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from drivers.bench.results import read_results, write_part

_PART = """
import signal, subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"],
                         start_new_session=True)
folder = Path(sys.argv[1])
(folder / "made").write_text("x")
(folder / "pid.tmp").write_text(str(child.pid))
(folder / "pid.tmp").rename(folder / "pid")
signal.signal(signal.SIGINT, {handler})
try:
    time.sleep(120)
finally:
    (folder / "made").unlink()
"""

_BENCH = """
import sys
from drivers.bench import command
command.part_command = lambda name, options: [sys.executable, "-c", sys.argv[1], sys.argv[2]]
raise SystemExit(command.main(["store", "overlap", "--out", sys.argv[3]]))
"""


def start(folder: Path, handler: str) -> "tuple[subprocess.Popen[str], int]":
    """A benchmark whose first part waits; returns it and the pid of what the part started."""
    out = folder / "bench.json"
    write_part(out, "real", {"figure": 1})
    arguments = [_PART.replace("{handler}", handler), str(folder), str(out)]
    bench = subprocess.Popen(
        [sys.executable, "-c", _BENCH, *arguments], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20.0
    while not (folder / "pid").exists():
        assert time.monotonic() < deadline, "the test waited 20 s for the part to start"
        time.sleep(0.05)
    return bench, int((folder / "pid").read_text())


def is_gone(pid: int) -> bool:
    """Ended; whether init has taken it off the list already is a matter of luck."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_lets_the_part_clean_up_and_ends_what_it_left(
    tmp_path: Path, number: signal.Signals
) -> None:
    bench, below = start(tmp_path, "signal.default_int_handler")
    bench.send_signal(number)
    _, said = bench.communicate(timeout=20.0)
    assert bench.returncode == 128 + number
    assert f"stopped by {number.name}; nothing of it runs any more" in said
    assert not (tmp_path / "made").exists()
    assert is_gone(below)
    assert read_results(tmp_path / "bench.json")["real"] == {"figure": 1}
    assert "overlap" not in json.loads((tmp_path / "bench.json").read_text())


def test_a_second_signal_kills_a_part_that_does_not_end(tmp_path: Path) -> None:
    bench, below = start(tmp_path, "signal.SIG_IGN")
    os.kill(bench.pid, signal.SIGTERM)
    time.sleep(1.0)
    assert bench.poll() is None
    os.kill(bench.pid, signal.SIGINT)
    bench.communicate(timeout=20.0)
    assert bench.returncode == 128 + signal.SIGTERM
    assert is_gone(below)
