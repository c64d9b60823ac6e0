import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from drivers import inspect
from drivers.live_file import LiveFile, read_live, written
from drivers.run_files import RunFiles
from drivers.whereabouts import Whereabouts

EDIT = {
    "step": 2,
    "query_id": "q1",
    "method": "care",
    "branch": "chase",
    "status": "accepted",
    "reason": "",
    "from_version": 0,
    "to_version": 1,
    "old": None,
    "new": {"id": "c9", "text": "Names \x1b[31mboth sides"},
    "evidence": {},
    "seconds": 1.0,
}


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(tmp_path / "my_run")
    files.folder.mkdir()
    files.config.write_text("name: my_run\n")
    lines = [
        {"step": i, "policy_version": i, "time": 0.0, "critic/rewards/mean": i / 4} for i in (1, 2)
    ]
    files.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3')
    refused = EDIT | {"status": "refused", "reason": "too short", "step": 1}
    files.events.write_text("".join(json.dumps(edit) + "\n" for edit in (refused, EDIT)))
    return files


def live_of(files: RunFiles, **figures: float) -> LiveFile:
    now = [100.0]
    table = Whereabouts(lambda: now[0])
    table.enter("judging", "q7", "3 criteria", "Judge")
    now[0] = 104.0
    live = LiveFile(files.live, "my_run", 30, table)
    live.sources = [lambda: {"queue/drawn": 1.0, "judge/latency_s/p95": 0.25, **figures}]
    return live


def shown(files: RunFiles, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert inspect.main([str(files.folder), *options]) == 0
    return capsys.readouterr().out


def test_a_live_run_shows_queues_judge_waits_and_edits(
    files: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    live_of(files).write()
    text = shown(files, capsys)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "my_run: step 2/30, policy version 2 (live, 0 s ago)"
    assert "queues drawn 1" in lines
    assert "judge latency_s p95 0.25" in lines
    assert "reward rewards mean 0.5" in lines
    assert "4.0 s judging Judge q7 3 criteria" in lines
    assert lines[lines.index("last edits") + 2] == "2 q1 chase accepted Names [31mboth sides"
    assert lines[lines.index("last edits") + 3] == "1 q1 chase refused too short"
    assert "\x1b" not in text


def test_json_has_everything_and_says_what_is_live(
    files: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    live_of(files, bad=float("nan")).write()
    found: dict[str, Any] = json.loads(shown(files, capsys, "--json"))
    assert (found["state"], found["step"], found["live"]["pid"]) == ("live", 2, os.getpid())
    assert found["live"]["figures"]["bad"] is None
    assert found["live"]["under_way"][0]["seconds"] == 4.0
    assert [edit["status"] for edit in found["edits"]] == ["refused", "accepted"]


def test_a_driver_that_is_gone_and_one_that_ended_are_told_apart(
    files: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    live_of(files).write()
    old = read_live(files.live)
    assert old is not None
    files.live.write_text(json.dumps({**old, "time": time.time() - 60}))
    assert "no sign of its driver" in shown(files, capsys)
    files.live.unlink()
    assert "not running" in shown(files, capsys)


def test_a_damaged_live_file_is_no_live_file(
    files: RunFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    for damaged in ("", "[1]", "{", '{"time": "soon"}', '{"time": 1}'):
        files.live.write_text(damaged)
        assert "not running" in shown(files, capsys)


def test_stalls_are_pointed_at(files: RunFiles, capsys: pytest.CaptureFixture[str]) -> None:
    files.stalls.mkdir()
    (files.stalls / "stall_001.txt").write_text("x")
    assert "see stalls/stall_001.txt" in shown(files, capsys)


def test_a_folder_that_is_no_runs_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect.main([str(tmp_path)]) == 2
    assert "wanted the folder of a run" in capsys.readouterr().err


async def test_the_file_is_there_while_the_block_runs_and_gone_afterwards(files: RunFiles) -> None:
    live = live_of(files)
    async with written(live, 0.01):
        while read_live(files.live) is None:
            await asyncio.sleep(0.01)
    assert not files.live.exists()


async def test_a_folder_that_takes_no_file_does_not_end_the_run(files: RunFiles) -> None:
    live = live_of(files)
    live.path = files.folder / "absent" / "live.json"
    async with written(live, 0.01):
        await asyncio.sleep(0.05)
        (files.folder / "absent").mkdir()
        while read_live(live.path) is None:
            await asyncio.sleep(0.01)
