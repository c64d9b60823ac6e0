"""The deadline of an edit: what is late is counted, what is broken is not taken for late."""

import asyncio
import gc
from pathlib import Path

import pytest

from core.records import Completion
from core.writer_requests import WriterRequest
from drivers.methods.desk import EditIsLate
from tests.fakes import FakeJudge, FakeWriter
from tests.unit.loop_rig import Rig, make_config

METHODS = {
    "care": {"method": "care"},
    "care in the same step": {"method": "care", "apply": "same_step"},
    "rare": {"method": "rare"},
    "rler": {"method": "rler"},
}


class Broken(FakeWriter):
    """A writer behind which something did not answer within a limit of its own."""

    async def write(self, request: WriterRequest) -> Completion:
        raise TimeoutError("the driver waited 120 s for the RubricStore")


async def test_only_the_deadlines_own_end_is_a_late_edit(tmp_path: Path) -> None:
    config = make_config(evolution={"method": "care", "deadline_s": 0.05})
    desk = Rig(config, tmp_path).loop()._desk
    with pytest.raises(EditIsLate, match=r"not within 0\.05 s"):
        async with desk.deadline():
            await asyncio.sleep(5)
    with pytest.raises(TimeoutError, match="the RubricStore"):
        async with desk.deadline():
            raise TimeoutError("the driver waited for the RubricStore")


@pytest.mark.parametrize("name", METHODS)
async def test_a_part_that_does_not_answer_ends_the_run_and_is_no_late_edit(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge = FakeJudge(always_full=["Is it short", "Is it kind"])
    run = Rig(make_config(evolution=METHODS[name]), tmp_path, writer=Broken(), judge=judge)
    with pytest.raises(TimeoutError, match="waited 120 s for the RubricStore"):
        await run.run()
    assert run.recorder.edits == []
    gc.collect()
    assert "never retrieved" not in caplog.text  # no edit's error is left to the garbage collector


@pytest.mark.parametrize(("switches", "branch"), [({"adaptive": False}, "chase"), ({}, "adaptive")])
async def test_a_late_edit_is_booked_on_a_branch_that_is_on(
    switches: dict[str, bool], branch: str, tmp_path: Path
) -> None:
    evolution = {"method": "care", "apply": "same_step", "deadline_s": 0.05, "care": switches}
    config = make_config(loop__steps=1, evolution=evolution)
    run = Rig(config, tmp_path, writer=FakeWriter(delay_s=5.0))
    await run.run()
    assert {(e.status, e.branch) for _, e, _, _ in run.recorder.edits} == {("failed", branch)}
