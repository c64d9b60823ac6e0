"""Several people and a driver at one run: events.jsonl and rubrics.sqlite agree, and keep all."""

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from actors.rubric_log import RubricLog
from core.errors import RunStopped
from drivers.rubrics import main
from drivers.run_files import RunFiles
from drivers.run_lock import edits_lock
from tests.run_example import make_run

_PERSON = """
import sys
from drivers.rubrics import main
for number in range(25):
    assert main(["rollback", sys.argv[1], "--rubric", "q1", "--to", str(number % 2)]) == 0
"""


def test_people_who_roll_back_side_by_side_write_a_line_a_version(tmp_path: Path):
    files = make_run(tmp_path / "runs" / "mine").files
    people = [
        subprocess.Popen(
            [sys.executable, "-c", _PERSON, str(files.folder)], stdout=subprocess.DEVNULL
        )
        for _ in range(3)
    ]
    assert [p.wait(100) for p in people] == [0, 0, 0]
    log = RubricLog(files.rubrics, is_read_only=True)
    made = [v.version for v in log.history("q1") if v.key.startswith("rollback")]
    log.close()
    rows = [json.loads(line) for line in files.events.read_bytes().splitlines()]
    lines = Counter(row["to_version"] for row in rows if row["method"] == "person")
    assert len(made) >= 25
    assert lines == dict.fromkeys(made, 1)


def test_a_second_editor_waits_its_turn(tmp_path: Path):
    files = RunFiles(tmp_path)
    order: list[str] = []

    def second() -> None:
        with files.editing():
            order.append("second")

    with files.editing():
        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        order.append("first")
    other.join(30)
    assert order == ["first", "second"]
    assert not (tmp_path / "edits.lock").exists()


def test_an_editor_that_never_gets_its_turn_says_what_it_waited_for(tmp_path: Path):
    path = tmp_path / "edits.lock"
    with (
        edits_lock(path),
        pytest.raises(RunStopped, match="nothing of this was done"),
        edits_lock(path, timeout_s=0.1),
    ):
        pass
    with edits_lock(path, timeout_s=0.1):  # free again, whoever held it
        pass


def test_a_lock_that_a_killed_editor_left_is_no_lock(tmp_path: Path):
    path = tmp_path / "edits.lock"
    code = (
        "import os, sys; from pathlib import Path; from drivers.run_lock import edits_lock\n"
        "with edits_lock(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert path.exists()
    with edits_lock(path, timeout_s=5):
        pass


def test_a_reason_whose_bytes_are_no_text_is_kept_as_far_as_it_is_one(tmp_path: Path):
    files = make_run(tmp_path / "runs" / "mine").files
    arguments = ["--rubric", "q1", "--to", "0", "--reason", "too\udcffvague"]
    assert main(["rollback", str(files.folder), *arguments]) == 0
    log = RubricLog(files.rubrics, is_read_only=True)
    (edit,) = log.history("q1")[-1].edits
    log.close()
    assert edit.reason == "back to version 0: too?vague"
    assert b"too?vague" in files.events.read_bytes()
