import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.records import GenerateRequest, JudgeReply, JudgeRequest, Rollout
from drivers import serving, stacks
from drivers.loop import Position
from drivers.run_files import RunFiles
from drivers.stall_watchdog import MAX_LINES, stall_watchdog
from drivers.whereabouts import Whereabouts, at, tracking
from tests.fakes import FakeJudge, FakePool
from tests.unit.loop_rig import Rig, make_config

LIMIT_S = 0.2


def no_stacks() -> str:
    return "# no stacks"


def stall_files(folder: Path) -> list[str]:
    return [path.read_text("utf-8") for path in sorted(folder.glob("stall_*.txt"))]


async def told(folder: Path, number: int) -> list[str]:
    """Wait until so many stalls are on disk."""
    while len(texts := stall_files(folder)) < number or not texts[-1].strip():
        await asyncio.sleep(0.02)
    return texts


# ---------------------------------------------------------------------- the table
def test_a_stay_says_stage_actor_query_and_seconds() -> None:
    now = [10.0]
    table = Whereabouts(lambda: now[0])
    key = table.enter("generating", "q1", "visit 2 rollout 0", "RolloutWorker 1")
    now[0] = 13.5
    (stay,) = table.stays()
    line = "    3.5 s  generating on RolloutWorker 1: query 'q1' visit 2 rollout 0"
    assert stay.text(now[0]) == line
    assert table.last_change == 10.0
    table.leave(key)
    assert table.stays() == []
    assert table.last_change == 13.5


def test_nothing_is_kept_outside_tracking() -> None:
    with at("judging", "q1"):
        pass
    with tracking() as table:
        assert table.stays() == []


async def test_tasks_of_the_block_are_in_its_table_and_leave_it_on_errors() -> None:
    async def fail() -> None:
        with at("judging", "q1"):
            await asyncio.sleep(0)
            raise ValueError

    with tracking() as table:
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        assert [stay.stage for stay in table.stays()] == ["judging"]
        await asyncio.gather(task, return_exceptions=True)
        assert table.stays() == []


# ---------------------------------------------------------------------- the watchdog
async def test_a_stall_is_told_with_its_table_and_again_while_it_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "stalls"
    with tracking() as table:
        async with stall_watchdog(table, LIMIT_S, folder, no_stacks):
            with at("judging", "q7", actor="Judge"):
                texts = await told(folder, 2)
    assert all("judging on Judge: query 'q7'" in text for text in texts)
    assert all("# no stacks" in text and "stall watchdog" in text for text in texts)
    warning = caplog.records[0]
    assert warning.levelno == logging.WARNING
    assert "judging on Judge: query 'q7'" in warning.getMessage()


async def test_a_run_that_goes_on_is_not_called_stalled(tmp_path: Path) -> None:
    with tracking() as table:
        async with stall_watchdog(table, LIMIT_S, tmp_path, no_stacks):
            end = time.monotonic() + 3 * LIMIT_S
            while time.monotonic() < end:
                with at("judging", "q1"):
                    await asyncio.sleep(LIMIT_S / 20)
    assert stall_files(tmp_path) == []


async def test_zero_seconds_is_off(tmp_path: Path) -> None:
    with tracking() as table:
        async with stall_watchdog(table, 0.0, tmp_path, no_stacks):
            await asyncio.sleep(0.05)
            assert "stall watchdog" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_the_log_names_the_longest_waits_and_the_file_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tracking() as table:
        for i in range(MAX_LINES + 3):
            table.enter("judging", f"q{i}", "", "Judge")
        async with stall_watchdog(table, LIMIT_S, tmp_path, no_stacks):
            (text, *_) = await told(tmp_path, 1)
    message = caplog.records[0].getMessage()
    assert "'q0'" in message
    assert f"'q{MAX_LINES}'" not in message
    assert "and 3 more" in message
    assert f"'q{MAX_LINES + 2}'" in text


async def test_stacks_that_cannot_be_written_do_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def broken() -> str:
        calls.append(1)
        raise OSError("No space left on device")

    with tracking() as table:
        async with stall_watchdog(table, LIMIT_S, tmp_path, broken):
            while len(calls) < 2:
                await asyncio.sleep(0.02)
    assert any(r.exc_info and "could not be written" in r.getMessage() for r in caplog.records)


# ---------------------------------------------------------------------- in the loop
class HungPool(FakePool):
    """Never answers the last rollout of q1."""

    async def generate(self, request: GenerateRequest) -> Rollout:
        if request.query_id == "q1" and request.index == 1:
            with at("generating", request.query_id, actor="RolloutWorker 0"):
                await asyncio.Event().wait()
        return await super().generate(request)


class HungJudge(FakeJudge):
    """Never answers."""

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        await asyncio.Event().wait()
        return await super().grade(request)


async def stalled(rig: Rig, folder: Path) -> str:
    await rig.register()
    with tracking() as table:
        async with stall_watchdog(table, LIMIT_S, folder, no_stacks):
            running = asyncio.create_task(rig.loop().run(Position()))
            try:
                return (await told(folder, 1))[0]
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def test_a_hung_rollout_is_named_beside_the_groups_that_wait_for_it(tmp_path: Path) -> None:
    text = await stalled(Rig(make_config(), tmp_path / "c", pool=HungPool()), tmp_path)
    assert "generating on RolloutWorker 0: query 'q1'" in text
    assert text.count("scored, waiting for its step") == 1


async def test_a_silent_judge_is_named_with_its_queries(tmp_path: Path) -> None:
    text = await stalled(Rig(make_config(), tmp_path / "c", judge=HungJudge()), tmp_path)
    assert text.count("judging on Judge: query") == 4


async def test_looking_at_the_replicas_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"RUNNING": 2}
    app = SimpleNamespace(deployments={"Judge": SimpleNamespace(replica_states=states)})
    found = SimpleNamespace(applications={"ratchet-r-judge": app})
    monkeypatch.setattr("ray.serve.status", lambda: found)
    with tracking() as table:
        before = table.last_change
        assert await serving._num_running("ratchet-r-judge", "judge") == 2
        assert table.last_change == before


# ---------------------------------------------------------------------- stacks
def test_the_drivers_threads_are_in_the_stacks() -> None:
    assert "test_the_drivers_threads_are_in_the_stacks" in stacks.thread_stacks()


def test_another_process_is_read_or_the_reason_given() -> None:
    code = "import time\ndef resting():\n    time.sleep(60)\nresting()\n"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            deadline = time.monotonic() + 20
            while True:
                text = stacks.process_stacks(process.pid)
                if "resting" in text or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
        finally:
            process.kill()
    assert "resting" in text or text.startswith("no stacks: ")


def test_a_machine_without_py_spy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    assert "py-spy is not installed" in stacks.process_stacks(1)


def test_fresh_removes_the_stalls(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.stalls.mkdir()
    (files.stalls / "stall_001.txt").write_text("x")
    files.clear()
    assert not files.stalls.exists()
