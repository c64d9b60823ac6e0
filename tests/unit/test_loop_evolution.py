"""Evolution in the loop on fakes: same step, next visit, late, refused, cached."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from core.records import Commit, CommitResult
from core.writer_requests import ContrastRequest, ReplacementRequest
from tests.fakes import FakeJudge, FakeStore, FakeWriter
from tests.unit.loop_rig import NUM_QUERIES, Rig, make_config, make_queries, replacement_reply


def contrast_reply(request: ContrastRequest) -> str:
    kept = [c.tagged for c in (*request.satisfied, *request.unsatisfied)]
    new = f"[llm] Names a thing beyond set {len(kept)}"
    return f"<ANALYSIS>gap</ANALYSIS><FINAL_SET>{json.dumps([*kept, new])}</FINAL_SET>"


def care(**changes: object) -> dict[str, object]:
    return {"method": "care", **changes}


async def test_next_visit_edits_change_the_rubric_of_the_next_draw_only(tmp_path: Path) -> None:
    config = make_config(loop__steps=8, evolution=care())
    rig = Rig(config, tmp_path, writer=FakeWriter(contrast_reply))
    await rig.run()
    for step, groups, _ in rig.recorder.steps:
        for group in groups:
            assert group.rubric.version == group.draw.visit, step
            for scored in group.rollouts:
                assert set(scored.graded.verdicts) == set(group.rubric.ids)


async def test_an_edit_that_misses_its_deadline_is_refused_and_the_old_rubric_is_used(
    tmp_path: Path,
) -> None:
    class SlowStart(FakeWriter):
        async def write(self, request):  # type: ignore[no-untyped-def]
            self.delay_s = 0.25 if len(self.requests) < NUM_QUERIES else 0.0
            return await super().write(request)

    config = make_config(loop__steps=8, loop__max_policy_age=3, evolution=care(deadline_s=0.2))
    rig = Rig(config, tmp_path, writer=SlowStart(contrast_reply))
    await rig.run()
    second_visits = [g for _, groups, _ in rig.recorder.steps for g in groups if g.draw.visit == 1]
    assert second_visits
    assert all(g.rubric.version == 0 for g in second_visits)
    statuses = {edit.status for _, edit, _, _ in rig.recorder.edits}
    assert statuses & {"failed", "refused"}
    missed = sum(
        m["evolving_rubrics/deadline_missed"] + m["evolving_rubrics/commit_conflicts"]
        for _, _, m in rig.recorder.steps
    )
    assert missed > 0


async def test_next_visit_edits_are_not_on_the_critical_path(tmp_path: Path) -> None:
    """The writer answers only after two steps have trained, and they do train."""
    config = make_config(loop__steps=4, evolution=care(deadline_s=15))
    trained_two = asyncio.Event()

    class WaitsForTraining(FakeWriter):
        async def write(self, request):  # type: ignore[no-untyped-def]
            await trained_two.wait()
            return await super().write(request)

    rig = Rig(config, tmp_path, writer=WaitsForTraining(contrast_reply))
    original = rig.recorder.step

    def step(number: int, groups: object, metrics: object) -> None:
        original(number, groups, metrics)  # type: ignore[arg-type]
        if number == 2:
            trained_two.set()

    rig.recorder.step = step  # type: ignore[method-assign]
    await rig.run()
    assert len(rig.store.commits) == 8


def replaced_again(request: ReplacementRequest) -> str:
    """The checks of each version are new ones."""
    return replacement_reply(
        request, lambda i: f"Fresh check for {i} after {request.rubric.version}"
    )


async def test_saturated_criteria_are_replaced_and_the_same_rollouts_rescored_once(
    tmp_path: Path,
) -> None:
    config = make_config(loop__steps=4, evolution={"method": "rare"})
    judge = FakeJudge(always_full=["Is it short"])
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(replaced_again))
    await rig.run()
    assert len(judge.rescores) == 8
    generated = len(rig.pool.requests)
    assert generated == 4 * 2 * 2
    for _, groups, _ in rig.recorder.steps:
        for group in groups:
            assert group.rubric.version >= 1
            assert group.rubric.ids == ("c1", "c2")
            assert group.rubric.total_max == 2
            replaced = group.rubric.criterion("c1")
            for scored in group.rollouts:
                response = scored.graded.rollout.response
                assert scored.graded.verdicts["c1"] == judge.verdict(replaced, response)
    assert all(c.from_version + 1 == c.rubric.version for c in rig.store.commits)


async def test_a_writer_that_never_gives_a_usable_replacement_leaves_rubric_and_rewards(
    tmp_path: Path,
) -> None:
    config = make_config(loop__steps=2, evolution={"method": "rare", "rare": {"max_attempts": 3}})
    judge = FakeJudge(always_full=["Is it short"])
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(lambda _: "nonsense"))
    await rig.run()
    assert len(rig.writer.requests) == 4 * 3
    assert sum(bool(r.error) for r in rig.writer.requests) == 4 * 2
    assert rig.store.commits == []
    assert [e.status for _, e, _, _ in rig.recorder.edits] == ["failed"] * 4
    rewards = [s.reward for _, gs, _ in rig.recorder.steps for g in gs for s in g.rollouts]
    assert all(r is not None and r >= 0.5 for r in rewards)


async def test_ratchet_replaces_in_the_same_step_and_contrasts_for_the_next_visit(
    tmp_path: Path,
) -> None:
    def reply(request: object) -> str:
        is_contrast = isinstance(request, ContrastRequest)
        write: Callable[..., str] = contrast_reply if is_contrast else replaced_again
        return write(request)

    ungated = {"anchor_passes": False, "discriminates": False, "not_redundant": False}
    evolution = {"method": "ratchet", "trigger": {"when": "always"}, "gates": ungated}
    config = make_config(loop__steps=4, evolution=evolution)
    judge = FakeJudge(always_full=["Is it short"])
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(reply))
    await rig.run()
    for query_id in make_queries():
        commits = [c for c in rig.store.commits if c.query_id == query_id]
        assert [c.key.rsplit(":", 1)[1] for c in commits] == ["replacement", "contrast"]
        assert [c.rubric.version for c in commits] == [1, 2]
        assert {c.writer for c in commits} == {"fake writer"}


async def test_same_step_care_rewards_the_group_under_the_edited_rubric(tmp_path: Path) -> None:
    config = make_config(loop__steps=2, evolution=care(apply="same_step"))
    judge = FakeJudge()
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(contrast_reply))
    await rig.run()
    assert len(judge.rescores) == 4
    assert all(len(r.criteria) == 1 for r in judge.rescores)
    for _, groups, _ in rig.recorder.steps:
        assert all(g.rubric.version == 1 for g in groups)


async def test_verdicts_that_the_store_has_are_not_asked_for_again(tmp_path: Path) -> None:
    store = FakeStore()
    first = Rig(make_config(loop__steps=2), tmp_path / "a", store=store)
    await first.run()
    second = Rig(make_config(loop__steps=2), tmp_path / "b", store=store)
    await second.run()
    assert first.judge.requests
    assert second.judge.requests == []
    assert second.trained() == first.trained()


async def test_a_step_that_is_done_again_finds_its_rescored_verdicts_in_the_store(
    tmp_path: Path,
) -> None:
    config = make_config(loop__steps=2, evolution={"method": "rare"})
    first = Rig(
        config,
        tmp_path / "a",
        judge=FakeJudge(always_full=["Is it short"]),
        writer=FakeWriter(replaced_again),
    )
    await first.run()
    store = FakeStore()
    store.verdicts = first.store.verdicts
    second = Rig(
        config,
        tmp_path / "b",
        judge=FakeJudge(always_full=["Is it short"]),
        writer=FakeWriter(replaced_again),
        store=store,
    )
    await second.run()
    assert len(first.judge.rescores) == 4
    assert second.judge.rescores == []
    assert [c.rubric for c in second.store.commits] == [c.rubric for c in first.store.commits]
    rewards = [
        [s.reward for _, gs, _ in rig.recorder.steps for g in gs for s in g.rollouts]
        for rig in (first, second)
    ]
    assert rewards[0] == rewards[1]


class Forgetful(FakeStore):
    """Answers every commit as one that was applied before; ``applies`` tells whether it was."""

    def __init__(self, applies: bool) -> None:
        super().__init__()
        self.applies = applies

    async def commit(self, commit: Commit) -> CommitResult:
        if self.applies:
            await super().commit(commit)
        version = self.rubrics[commit.query_id].version
        return CommitResult(status="duplicate", version=version)


@pytest.mark.parametrize("applies", [True, False])
async def test_a_duplicate_counts_as_applied_only_if_the_store_holds_that_rubric(
    tmp_path: Path, applies: bool
) -> None:
    config = make_config(loop__steps=1, evolution={"method": "rare"})
    judge = FakeJudge(always_full=["Is it short"])
    store = Forgetful(applies)
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(replaced_again), store=store)
    await rig.run()
    statuses = {edit.status for _, edit, _, _ in rig.recorder.edits}
    versions = {g.rubric.version for _, groups, _ in rig.recorder.steps for g in groups}
    assert statuses == ({"accepted"} if applies else {"refused"})
    assert versions == ({1} if applies else {0})
