"""Whole runs as a person starts them: ``python -m drivers.train`` in a process of its own.

``small_run`` is the shipped quickstart, small enough for a test: its first four queries, so that
each is drawn every second step, groups of four short rollouts. ``Driver`` starts the command, waits
for what its files say, finds the run's processes and sends signals. Every process that the run ever
had is remembered, so that what stays behind is found though its parents are gone. What the files of
a run must say whatever happened to its processes is checked by ``assert_whole``.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from drivers.queries import QueryStream
from drivers.report_check import check_run
from drivers.run_files import RunFiles

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "drivers" / "configs" / "quickstart.yaml"
GROUPS, ROLLOUTS, SEED = 2, 4, 0
START_TIMEOUT_S = 240.0
STEP_TIMEOUT_S = 90.0
END_TIMEOUT_S = 120.0

Row = dict[str, Any]


def first_queries(path: Path, number: int = 4) -> list[str]:
    """Write the quickstart's first queries to ``path`` and return their ids."""
    lines = (QUICKSTART.parent / "data" / "quickstart.jsonl").read_text("utf-8").splitlines()
    path.write_text("\n".join(lines[:number]) + "\n", encoding="utf-8")
    return [json.loads(line)["id"] for line in lines[:number]]


def small_run(runs_dir: Path, name: str, queries: Path, *overrides: str) -> list[str]:
    """Return the command of a run; ``overrides`` come last and win."""
    return [
        *(sys.executable, "-m", "drivers.train", "--config", str(QUICKSTART)),
        f"name={name}",
        f"runs_dir={runs_dir}",
        f"seed={SEED}",
        f"data.train={queries}",
        "data.eval=null",
        f"loop.groups_per_step={GROUPS}",
        "loop.eval_every=0",
        f"sampling.group_size={ROLLOUTS}",
        "sampling.max_new_tokens=24",
        "rollout.max_num_seqs=16",
        *overrides,
    ]


def read_lines(path: Path) -> list[Row]:
    """Read a JSONL file that may be being written: whole lines only."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Driver:
    """One start of the command; a context manager that leaves no process behind."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self.files = RunFiles(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._log = folder.parent / f"{folder.name}-{time.monotonic_ns()}.log"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RATCHET_"))}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True
            )
        self._seen: dict[int, psutil.Process] = {}
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._remember, daemon=True)
        self._watch.start()

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        """End whatever is left: only what this driver started, by its process id."""
        self.kill()
        self._is_over.set()
        self._watch.join()
        for process in self.left_over(0.0):
            process.kill()

    # ------------------------------------------------------------------ waiting
    @property
    def output(self) -> str:
        """What the command printed until now."""
        return self._log.read_text("utf-8", "replace")

    def wait_until(self, what: str, is_true: Callable[[], bool], timeout_s: float) -> None:
        """Poll; fails when the driver ends meanwhile or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not is_true():
            code = self.process.poll()
            assert code is None, f"the driver ended ({code}) before {what}:\n{self.output[-6000:]}"
            assert time.monotonic() < deadline, (
                f"waited {timeout_s:.0f} s for {what}:\n{self.output[-6000:]}"
            )
            time.sleep(0.1)

    def wait_for_step(self, step: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the step has its line in metrics.jsonl."""
        self.wait_until(f"step {step}", lambda: self.num_steps >= step, timeout_s)

    @property
    def num_steps(self) -> int:
        """The last step with a line in metrics.jsonl."""
        rows = read_lines(self.files.metrics)
        return rows[-1]["step"] if rows else 0

    def wait(self, timeout_s: float) -> int:
        """Return the exit code; fails when the driver does not end in time."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"waited {timeout_s:.0f} s for the driver to end:\n{self.output[-6000:]}"
            ) from None

    # ------------------------------------------------------------------ processes
    def interrupt(self) -> None:
        """Ask for an end with a checkpoint."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL the driver."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def actor(self, class_name: str) -> psutil.Process:
        """Return the live process of the run's only actor of this class."""
        found = [p for p in self._children() if _title(p).startswith(f"ray::{class_name}")]
        assert len(found) == 1, f"got {[_title(p) for p in self._children()]}, wanted {class_name}"
        return found[0]

    def left_over(self, timeout_s: float) -> list[psutil.Process]:
        """Return the run's processes that still run ``timeout_s`` after now."""
        deadline = time.monotonic() + timeout_s
        while True:
            alive = [p for p in list(self._seen.values()) if _is_alive(p)]
            if not alive or time.monotonic() > deadline:
                return alive
            time.sleep(0.2)

    def _remember(self) -> None:
        while not self._is_over.wait(0.3):
            for process in self._children():
                self._seen.setdefault(process.pid, process)

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---------------------------------------------------------------------- what a run's files must say
def accepted_events(files: RunFiles) -> Counter[str]:
    """Return the accepted edits of events.jsonl, each as text that names its place."""
    return Counter(
        _edit_text(row["query_id"], row["from_version"], row["to_version"], row["step"], row)
        for row in read_lines(files.events)
        if row["status"] == "accepted"
    )


def accepted_in_store(files: RunFiles) -> Counter[str]:
    """Return the accepted edits of the live versions in rubrics.sqlite, in the same form."""
    db = sqlite3.connect(f"file:{files.rubrics}?mode=ro", uri=True)
    try:
        rows = db.execute(
            "SELECT c.query_id, c.from_version, c.to_version, c.step, c.edits FROM commits c "
            "JOIN versions v ON v.key = c.key"
        ).fetchall()
    finally:
        db.close()
    return Counter(
        _edit_text(*place, edit)
        for *place, edits in rows
        for edit in json.loads(edits)
        if edit["status"] == "accepted"
    )


def _edit_text(query_id: str, start: int, end: int, step: int, edit: Mapping[str, Any]) -> str:
    content = {key: edit[key] for key in ("method", "branch", "old", "new", "evidence")}
    return json.dumps([query_id, start, end, step, content], sort_keys=True)


def assert_whole(files: RunFiles, query_ids: Sequence[str], num_steps: int) -> None:
    """Assert what holds for every run, however it was stopped or killed on its way."""
    assert_drawn_in_order(files, query_ids, num_steps)
    metrics = read_lines(files.metrics)
    assert [row["step"] for row in metrics] == list(range(1, num_steps + 1))
    assert [row["policy_version"] for row in metrics] == list(range(1, num_steps + 1))
    assert_versions_follow(files)
    assert accepted_events(files) == accepted_in_store(files)
    for claim in check_run(files, min_gain=-1.0):
        # A short run need neither gain nor meet a hack; everything else must hold of any run.
        if not claim.text.startswith(("gold rose", "an adaptive edit")):
            assert claim.holds, claim.lines()


def assert_drawn_in_order(files: RunFiles, query_ids: Sequence[str], num_steps: int) -> None:
    """The rollouts' queries and visits are those that the seed draws, group by group."""
    stream = QueryStream(tuple(query_ids), GROUPS, SEED)
    found = list(files.read_rollouts())
    assert [step for step, _ in found] == list(range(1, num_steps + 1))
    for step, rows in found:
        drawn = [stream.draw((step - 1) * GROUPS + i) for i in range(GROUPS)]
        wanted = [(d.query_id, d.visit, i) for d in drawn for i in range(ROLLOUTS)]
        assert [(r["query_id"], r["visit"], r["index"]) for r in rows] == wanted, f"step {step}"
        assert {r["step"] for r in rows} == {step}


def assert_versions_follow(files: RunFiles) -> None:
    """Each query's accepted edits form one chain from version 0, and a group is rewarded under the
    version that the edits of earlier steps (and its own step's replacements) had made."""
    ends: dict[str, list[tuple[int, int, str]]] = {}
    for row in read_lines(files.events):
        if row["status"] == "accepted":
            assert row["to_version"] == row["from_version"] + 1, row
            edit = (row["to_version"], row["step"], row["branch"])
            ends.setdefault(row["query_id"], []).append(edit)
    for query_id, edits in ends.items():
        versions = sorted({version for version, _, _ in edits})
        assert versions == list(range(1, len(versions) + 1)), (query_id, edits)
    for step, rows in files.read_rollouts():
        for query_id in {row["query_id"] for row in rows}:
            versions = {r["rubric_version"] for r in rows if r["query_id"] == query_id}
            made = [
                version
                for version, at, branch in ends.get(query_id, [])
                if at < step or (at == step and branch == "replacement")
            ]
            assert versions == {max(made, default=0)}, (step, query_id, versions, made)
