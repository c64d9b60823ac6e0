"""A run's files: their exact keys, whole lines, going back to a step, one driver at a time."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actors.rubric_log import RubricLog, RubricVersion
from core.errors import ConfigError
from core.records import EditEvent, EditOrigin, RubricEdit
from core.rubric import Criterion, Rubric
from drivers.jsonl_files import append_rows, read_rows
from drivers.run_folder import RunFolder
from drivers.run_lock import take_run_lock
from drivers.runs_root import runs_root
from drivers.trackers import Trackers, open_trackers
from tests.run_example import HACK, NUM_STEPS, example_group, example_query, make_run


def test_a_rollout_line_has_exactly_the_keys_that_other_tools_read(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    rows = list(read_rows(folder.files.rollouts / "step_00004.jsonl"))
    assert len(rows) == 8
    assert set(rows[0]) == {
        "step", "query_id", "index", "visit", "response", "num_tokens", "finish_reason",
        "policy_version", "rubric_version", "verdicts", "reward", "vetoed", "graded", "advantage",
        "gold",
    }  # fmt: skip
    assert rows[0]["response"] == HACK  # with its lone surrogate
    assert rows[0]["policy_version"] == [3, 3]
    assert (rows[0]["rubric_version"], rows[0]["reward"], rows[0]["vetoed"]) == (1, 0.0, True)
    assert rows[1]["verdicts"]["c0"] == {"score": 1.0, "max": 1, "reason": "seen", "failure": None}
    assert rows[1]["num_tokens"] == 3
    failed = next(
        r
        for r in read_rows(folder.files.rollouts / "step_00002.jsonl")
        if r["query_id"] == "q2" and r["index"] == 3
    )
    assert (failed["reward"], failed["graded"]) == (None, False)
    assert failed["verdicts"]["c0"]["failure"] == "timeout"


def test_an_event_line_has_exactly_the_keys_that_other_tools_read(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    event = next(e for e in read_rows(folder.files.events) if e["status"] == "accepted")
    assert list(event) == [
        "step", "query_id", "method", "branch", "status", "reason", "from_version", "to_version",
        "old", "new", "evidence", "seconds",
    ]  # fmt: skip
    assert event["old"] is None
    assert event["new"]["kind"] == "resist"
    assert set(event["evidence"]) == {"rollouts", "quotes", "analysis"}


def test_a_metrics_line_has_step_version_time_and_no_nan(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    folder.files.write_step(1, 1, {"a": float("nan"), "b": float("inf"), "c": 2})
    (row,) = read_rows(folder.files.metrics)
    assert (row["step"], row["policy_version"], row["a"], row["b"], row["c"]) == (
        1, 1, None, None, 2.0,
    )  # fmt: skip
    assert abs(row["time"] - time.time()) < 60
    assert "NaN" not in folder.files.metrics.read_text()


def test_going_back_to_a_step_leaves_nothing_of_later_ones_and_no_half_line(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    files = folder.files
    before = files.metrics.read_bytes().splitlines(keepends=True)
    with files.metrics.open("ab") as file:
        file.write(b'{"step": 13, "policy')
    with files.events.open("ab") as file:
        file.write(b'{"step": 2')
    files.truncate_after(5)
    assert files.metrics.read_bytes() == b"".join(before[:5])
    assert max(e["step"] for e in read_rows(files.events)) == 5
    assert [p.name for p in sorted(files.rollouts.iterdir())] == [
        f"step_{n:05d}.jsonl" for n in range(1, 6)
    ]
    files.truncate_after(0)
    assert list(read_rows(files.metrics)) == []


def test_a_half_line_is_not_read_and_is_cut_before_the_next_line(tmp_path: Path):
    path = tmp_path / "lines.jsonl"
    append_rows(path, [{"a": 1}])
    with path.open("ab") as file:
        file.write(b'{"a": 2, "b": "cut of')
    assert list(read_rows(path)) == [{"a": 1}]
    append_rows(path, [{"a": 3}])
    assert path.read_bytes() == b'{"a": 1}\n{"a": 3}\n'
    path.write_bytes(b'{"a": 1}\nbroken\n{"a": 3}\n')
    with pytest.raises(ConfigError, match=r"lines.jsonl:2: got a line that is not JSON"):
        list(read_rows(path))


@pytest.mark.parametrize(
    "text", ["\ud800", "line\u2028break\x85\r\n", "\x00 nul", "naïve 漢字 \U0001f600"]
)
def test_any_text_of_a_policy_comes_back_as_it_was(tmp_path: Path, text: str):
    path = tmp_path / "lines.jsonl"
    append_rows(path, [{"t": text}, {"t": "next"}])
    assert list(read_rows(path)) == [{"t": text}, {"t": "next"}]
    assert path.read_bytes().count(b"\n") == 2


def test_an_edit_whose_line_a_crash_lost_is_written_from_the_store(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    lines = list(read_rows(folder.files.events))
    folder.files.events.write_bytes(b"")
    append_rows(folder.files.events, [e for e in lines if e["status"] != "accepted"])
    edited = RubricLog(folder.rubrics).edited()
    assert folder.files.restore_edits(edited) == 1
    assert folder.files.restore_edits(edited) == 0
    (again,) = [e for e in read_rows(folder.files.events) if e["status"] == "accepted"]
    (lost,) = [e for e in lines if e["status"] == "accepted"]
    assert {**again, "seconds": 0.0} == {**lost, "seconds": 0.0}


def test_a_crash_between_two_lines_of_one_version_loses_none_of_them(tmp_path: Path):
    files = RunFolder(tmp_path / "run").files
    origin = EditOrigin(rubric_id="q1", step=3)
    edits = [
        RubricEdit(
            method="rare",
            branch="replacement",
            status="accepted",
            reason="",
            old=Criterion(id=f"c{i}", text=f"Old {i}"),
            new=Criterion(id=f"c{i}", text=f"New {i}", levels={0: "no", 1: "yes"}),
        )
        for i in range(3)
    ]
    files.write_edit(
        EditEvent(edit=edits[1], origin=origin, from_version=0, to_version=1, seconds=0.5)
    )
    rubric = Rubric(criteria=tuple(e.new for e in edits if e.new), version=1)
    version = RubricVersion(query_id="q1", version=1, rubric=rubric, edits=tuple(edits), step=3)
    assert files.restore_edits([version]) == 2
    assert files.restore_edits([version]) == 0
    assert sorted(row["new"]["id"] for row in read_rows(files.events)) == ["c0", "c1", "c2"]


def test_a_finished_run_is_known_by_its_summary_and_starting_over_removes_it(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    (folder.path / "notes.txt").write_text("mine")
    assert not folder.is_finished(NUM_STEPS)
    folder.finish(folder.files.read_config(), wall_s=30.0, is_resumed=True)
    assert folder.is_finished(NUM_STEPS)
    assert not folder.is_finished(NUM_STEPS + 1)
    folder.start_over()
    assert [p.name for p in folder.path.iterdir()] == ["notes.txt"]


def test_a_run_whose_report_fails_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run")

    def full_disk(_: object) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr("drivers.report.write_report", full_disk)
    with pytest.raises(OSError, match="no space"):
        folder.finish(folder.files.read_config(), wall_s=30.0, is_resumed=False)
    assert not folder.is_finished(NUM_STEPS)


def test_the_rubrics_of_a_finished_run_are_in_one_file(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    killed = (
        "import os, sys\n"
        "from actors.rubric_log import RubricLog\n"
        "from core.records import Verdict\n"
        "log = RubricLog(sys.argv[1])\n"
        "log.put_verdicts({'k': Verdict(criterion_id='c', score=1, max=1)})\n"
        "os._exit(1)\n"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", killed, str(folder.rubrics)], cwd=root, timeout=60)
    assert folder.rubrics.with_name("rubrics.sqlite-wal").stat().st_size > 0
    folder.finish(folder.files.read_config(), wall_s=30.0, is_resumed=False)
    copied = shutil.copy(folder.rubrics, tmp_path / "copied.sqlite")
    log = RubricLog(copied, is_read_only=True)
    assert set(log.cached_verdicts(["k"])) == {"k"}
    log.close()


def test_two_drivers_cannot_write_one_run(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    with (
        folder.locked(),
        pytest.raises(ConfigError, match=rf"process {os.getpid()} on .* is writing"),
    ):
        folder.locked()
    with folder.locked():
        pass
    assert not (folder.path / "run.lock").exists()


def test_the_lock_of_a_killed_driver_is_taken_over(tmp_path: Path):
    path = tmp_path / "run.lock"
    code = (
        "import sys, time; from pathlib import Path; from drivers.run_lock import take_run_lock\n"
        "take_run_lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "held\n"
            with pytest.raises(ConfigError, match=f"process {driver.pid} "):
                take_run_lock(path)
        finally:
            driver.kill()
    assert json.loads(path.read_text())["pid"] == driver.pid
    take_run_lock(path).release()


def test_the_lock_of_another_host_is_refused_with_what_to_do(tmp_path: Path):
    path = tmp_path / "run.lock"
    path.write_text(json.dumps({"pid": 1, "host": "elsewhere.example", "time": 0}))
    with pytest.raises(ConfigError, match=r"host 'elsewhere.example'.*remove the file"):
        take_run_lock(path)
    path.write_text("")
    take_run_lock(path).release()


def test_runs_lie_where_the_config_or_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    job = {"RAY_JOB_CONFIG_JSON_ENV_VAR": '{"runtime_env": {}}'}
    assert runs_root(env={}) == tmp_path / "runs"
    assert runs_root(env={"RATCHET_RUNS_DIR": "/data/runs"}) == Path("/data/runs")
    assert runs_root("mine", env={"RATCHET_RUNS_DIR": "/data/runs"}) == tmp_path / "mine"
    assert runs_root("~/r", env={}) == Path("/home/someone/r")
    assert runs_root(env=job) == Path("/home/someone/.ratchet/runs")
    assert runs_root(env={**job, "RATCHET_RUNS_DIR": "/data/runs"}) == Path("/data/runs")
    assert runs_root("/data/x", env=job) == Path("/data/x")
    with pytest.raises(ConfigError, match=r"runs_dir='runs' inside a Ray job.*absolute"):
        runs_root("runs", env=job)


def test_tensorboard_gets_the_metrics_and_an_unknown_tracker_is_refused(tmp_path: Path):
    trackers = open_trackers((), tmp_path / "tb", "r", {})
    trackers.log(1, {"critic/rewards/mean": 0.25})
    trackers.log(2, {"critic/rewards/mean": 0.5})
    trackers.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("critic/rewards/mean")] == [
        (1, 0.25), (2, 0.5),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="wanted wandb or mlflow"):
        open_trackers(("comet",), tmp_path / "tb", "r", {})


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on():
    class Broken:
        calls = 0

        def log(self, step: int, metrics: object) -> None:
            self.calls += 1
            raise OSError("network gone")

        def close(self) -> None:
            raise AssertionError("was left out before")

    broken = Broken()
    trackers = Trackers([broken])
    trackers.log(1, {})
    trackers.log(2, {})
    trackers.close()
    assert broken.calls == 1


def test_a_recorder_writes_the_files_and_tensorboard_from_where_the_run_stands(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    folder.begin(folder.files.config.read_text(), last_step=11)
    query = example_query("q2")
    group = example_group(query, query.rubric, 12)
    with folder.recorder() as recorder:
        recorder.step(12, [group], {"critic/rewards/mean": 0.75})
        recorder.evaluation(12, [group])
    assert [r["step"] for r in read_rows(folder.files.metrics)] == list(range(1, 13))
    assert len(list(read_rows(folder.files.rollouts / "step_00012.jsonl"))) == 4
    assert len(list(read_rows(folder.files.eval / "step_00012.jsonl"))) == 4
    assert list(folder.files.tensorboard.glob("events.*"))
