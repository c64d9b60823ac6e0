"""Runs one side of the end-to-end benchmark in processes of its own and reads what it measured.

Ours is ``python -m drivers.train`` on a config file, as a person runs it: its figures are read from
the run's ``metrics.jsonl``. TRL's is ``python -m drivers.bench.end_to_end_trl``, which appends a
line a step. A step's seconds are from the end of the step before to its own end. Both run in a
session of their own, which is ended whatever happens, and in a temporary folder that is removed.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers.bench.end_to_end_work import Work, queries

log = logging.getLogger("ratchet")

SIDE_TIMEOUT_S = 900.0
"""Longest wait for one side."""
RUN_NAME = "bench"
_POLL_S = 1.0
_END_S = 60.0

Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one side did in its measured steps."""

    steps: tuple[Line, ...]
    """A line a measured step."""
    seconds: float
    """From the end of the last warm-up step to the end of the last measured one."""
    rollouts: int
    tokens: float
    """Response tokens that it made."""

    @property
    def rollouts_per_s(self) -> float:
        """Rollouts per second of whole steps."""
        return self.rollouts / self.seconds

    @property
    def tokens_per_s(self) -> float:
        """Response tokens per second of whole steps."""
        return self.tokens / self.seconds

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.seconds / len(self.steps)

    @property
    def tokens_per_rollout(self) -> float:
        """Mean length of a response."""
        return self.tokens / self.rollouts

    def mean(self, name: str) -> float:
        """Mean of one figure of the steps."""
        return sum(float(line[name]) for line in self.steps) / len(self.steps)


def measured(lines: Sequence[Line], work: Work) -> Side:
    """Return the measured steps out of one line a step; each has ``time`` (when it ended) and
    ``response_length/mean``."""
    first, last = work.warmup_steps, work.warmup_steps + work.measured_steps
    if len(lines) < last:
        raise ValueError(f"got {len(lines)} steps, wanted at least {last}")
    steps = tuple(lines[first:last])
    rollouts = work.rollouts_per_step * len(steps)
    lengths = sum(float(line["response_length/mean"]) for line in steps)
    return Side(
        steps=steps,
        seconds=float(steps[-1]["time"]) - float(lines[first - 1]["time"]),
        rollouts=rollouts,
        tokens=lengths * work.rollouts_per_step,
    )


# ---------------------------------------------------------------------- ours
def run_config(work: Work, folder: Path) -> dict[str, Any]:
    """Return the config of our run."""
    return {
        "name": RUN_NAME,
        "seed": work.seed,
        "runs_dir": str(folder),
        "data": {"train": str(folder / "queries.jsonl")},
        "policy": {"model": work.model, "max_model_len": 512},
        "sampling": {
            "group_size": work.group_size,
            "max_new_tokens": work.max_new_tokens,
            "temperature": 1.0,
        },
        "rollout": {"max_num_seqs": 64},
        "learner": {
            "lr": work.lr,
            "mini_batches": 1,
            "token_budget": 2048,
            "logprob_chunk": 2048,
            "kl_coef": 0.0,
            "weight_decay": 0.0,
        },
        "judge": {"backend": "rules"},
        "evolution": {"method": "static"},
        "loop": {
            "steps": work.warmup_steps + work.measured_steps,
            "groups_per_step": work.groups_per_step,
            "max_policy_age": 0,
            "checkpoint_every": 0,
        },
    }


def run_ours(work: Work) -> Side:
    """Run our training command and return its measured steps."""
    with _folder() as folder:
        rows = [query.model_dump(mode="json", exclude_none=True) for query in queries()]
        lines = [json.dumps(row | {"rubric": row["rubric"]["criteria"]}) for row in rows]
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        config = folder / "run.yaml"  # JSON is YAML
        config.write_text(json.dumps(run_config(work, folder)), encoding="utf-8")
        command = [sys.executable, "-m", "drivers.train", "--config", str(config)]
        found = folder / RUN_NAME / "metrics.jsonl"
        return measured(_run("ours", command, found, folder), work)


# ---------------------------------------------------------------------- TRL's
def run_trl(work: Work) -> Side:
    """Run TRL's trainer and return its measured steps."""
    with _folder() as folder:
        asked, found = folder / "work.json", folder / "steps.jsonl"
        asked.write_text(json.dumps(work.as_json()), encoding="utf-8")
        command = [sys.executable, "-m", "drivers.bench.end_to_end_trl", str(asked), str(found)]
        return measured(_run(f"TRL at {work.trl_micro_batch}", command, found, folder), work)


# ---------------------------------------------------------------------- processes
@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A short path: Ray puts sockets under it."""
    folder = Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(who: str, command: Sequence[str], found: Path, folder: Path) -> list[Line]:
    """Run to the end, telling of each step; return the lines it wrote."""
    output = folder / "output.txt"
    env = os.environ | {"RAY_TMPDIR": str(folder), "TMPDIR": str(folder), "HF_HUB_OFFLINE": "1"}
    env.pop("RAY_ADDRESS", None)  # a cluster of its own, on this machine
    log.info("%s: starting", who)
    with output.open("w", encoding="utf-8") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        try:
            _follow(who, process, found)
        finally:
            _end(process)
    if process.returncode != 0:
        tail = output.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise RuntimeError(f"{who}: got exit code {process.returncode}, wanted 0:\n{tail}")
    return _lines(found)


def _follow(who: str, process: "subprocess.Popen[bytes]", found: Path) -> None:
    began, told = time.monotonic(), 0
    while process.poll() is None:
        waited = time.monotonic() - began
        if waited > SIDE_TIMEOUT_S:
            raise TimeoutError(
                f"the benchmark waited {SIDE_TIMEOUT_S:.0f} s for {who} and it had not ended"
            )
        lines = _lines(found)
        for line in lines[told:]:
            log.info("%s: step %d done, %.0f s since its start", who, line["step"], waited)
        told = len(lines)
        time.sleep(_POLL_S)


def _lines(path: Path) -> list[Line]:
    """Return the whole lines of the file so far."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a side that still runs: a run ends its processes at the second signal."""
    for _ in range(2):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(_POLL_S)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with contextlib.suppress(ProcessLookupError):  # what is left of its session
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_END_S)
