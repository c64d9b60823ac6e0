"""The mode in which edits wait for a person: the loop proposes, the command decides."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from actors.rubric_log import RubricLog, RubricVersion
from core.records import Commit, CommitResult, Verdict
from core.rubric import Rubric
from core.writer_requests import ContrastRequest
from drivers.checkpoint import latest_checkpoint
from drivers.rubrics import main
from tests.fakes import FakeWriter
from tests.unit.loop_rig import NUM_QUERIES, Rig, make_config


class FileStore:
    """The store's port over a real rubric file."""

    def __init__(self, path: Path) -> None:
        self.log = RubricLog(path)

    async def register(self, rubrics: Mapping[str, Rubric]) -> None:
        self.log.register(rubrics)

    async def current(self, query_id: str) -> Rubric:
        return self.log.current(query_id)

    async def commit(self, commit: Commit) -> CommitResult:
        return self.log.commit(commit)

    async def history(self, query_id: str) -> Sequence[RubricVersion]:
        return self.log.history(query_id)

    async def propose(self, commit: Commit) -> None:
        self.log.propose(commit)

    async def num_waiting(self, query_id: str) -> int:
        return self.log.num_waiting(query_id)

    async def cached_verdicts(self, keys: Sequence[str]) -> Mapping[str, Verdict]:
        return self.log.cached_verdicts(keys)

    async def put_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        self.log.put_verdicts(verdicts)

    async def snapshot(self, folder: str, step: int) -> None:
        self.log.snapshot(folder, step)

    async def restore(self, folder: str, step: int) -> None:
        self.log.restore(folder, step)


def contrast_reply(request: ContrastRequest) -> str:
    kept = [c.tagged for c in (*request.satisfied, *request.unsatisfied)]
    new = f"[llm] Names a thing beyond set {len(kept)}"
    return f"<ANALYSIS>gap</ANALYSIS><FINAL_SET>{json.dumps([*kept, new])}</FINAL_SET>"


async def test_edits_wait_until_a_person_approves_and_then_score_the_next_visit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = tmp_path / "run"
    store = FileStore(run / "rubrics.sqlite")
    evolution = {"method": "care", "approval": "person"}
    first = Rig(
        make_config(loop__steps=8, evolution=evolution),
        tmp_path / "checkpoints",
        writer=FakeWriter(contrast_reply),
        store=store,
    )
    await first.run()  # every query twice
    groups = [g for _, gs, _ in first.recorder.steps for g in gs]
    assert {g.draw.visit for g in groups} == {0, 1}
    assert {g.rubric.version for g in groups} == {0}
    # One waits for each query, made at its first visit: no second one is asked for meanwhile.
    waiting = store.log.waiting()
    assert sorted(e.commit.query_id for e in waiting) == [f"q{i}" for i in range(NUM_QUERIES)]
    assert {e.commit.visit for e in waiting} == {0}
    assert isinstance(first.writer, FakeWriter)
    assert len(first.writer.requests) == NUM_QUERIES
    assert {edit.status for _, edit, _, _ in first.recorder.edits} == {"waiting"}

    assert main(["reject", str(run), str(waiting[0].id)]) == 0
    assert main(["approve", str(run), "--all"]) == 0
    assert capsys.readouterr().out.count("is approved: version 1") == NUM_QUERIES - 1
    found = latest_checkpoint(tmp_path / "checkpoints")
    assert found is not None
    await store.restore(str(found.folder / "store"), found.position.step)
    second = Rig(
        make_config(loop__steps=12, evolution=evolution),
        tmp_path / "checkpoints",
        writer=FakeWriter(contrast_reply),
        store=store,
    )
    await second.run(found.position)
    rejected = waiting[0].commit.query_id
    for _, gs, _ in second.recorder.steps:
        for group in gs:
            is_approved = group.query.id != rejected
            assert group.rubric.version == is_approved
            assert ("Names a thing beyond set 2" in group.rubric.criteria[-1].text) == is_approved
    # Every query was drawn once more, and has another edit waiting now.
    assert [store.log.num_waiting(f"q{i}") for i in range(NUM_QUERIES)] == [1] * NUM_QUERIES


async def test_nothing_is_rescored_for_an_edit_that_waits(tmp_path: Path):
    evolution = {"method": "care", "apply": "same_step", "approval": "person"}
    store = FileStore(tmp_path / "rubrics.sqlite")
    run = Rig(
        make_config(loop__steps=2, evolution=evolution),
        tmp_path / "checkpoints",
        writer=FakeWriter(contrast_reply),
        store=store,
    )
    await run.run()
    assert {edit.status for _, edit, _, _ in run.recorder.edits} == {"waiting"}
    assert run.judge.rescores == []
