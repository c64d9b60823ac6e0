"""RARE at task level in the loop on fakes: versions, activation, gate, calls, resume."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from core.query import Query
from core.records import Completion, GradedGroup, ScoredGroup, Verdict
from core.rubric import Criterion, Rubric
from core.writer_requests import TaskRevisionRequest, WriterRequest
from drivers.loop import Position, TrainLoop
from drivers.past_groups import past_groups
from drivers.run_files import RunFiles
from tests.fakes import FakeJudge, FakeRecorder, FakeStore, FakeWriter
from tests.unit.loop_rig import SharedRig, make_config

KEY = "task:films"
RUBRIC = Rubric(
    criteria=(
        Criterion(id="c1", text="Is it short", max=2),
        Criterion(id="c2", text="Is it kind", max=2),
    )
)


def config_of(*, steps: int = 8, deadline_s: float = 10.0, age: int = 0, **task: object):  # type: ignore[no-untyped-def]
    """Two groups of two a step; evidence of three steps is six groups of six queries."""
    numbers = {"revisions": 1, "min_groups": 4, "max_groups": 5, "max_mean_shift": 1.0}
    evolution = {
        "method": "rare",
        "scope": "task",
        "deadline_s": deadline_s,
        "task": numbers | task,
    }
    return make_config(loop__steps=steps, loop__max_policy_age=age, evolution=evolution)


class FileRecorder(FakeRecorder):
    """Writes the rollouts as a run does, too; ``after`` is called at the end of each step."""

    def __init__(self, files: RunFiles) -> None:
        super().__init__()
        self.files = files
        self.after: Callable[[int], None] = lambda step: None

    def step(self, step: int, groups: Sequence[ScoredGroup], metrics) -> None:  # type: ignore[no-untyped-def]
        super().step(step, groups, metrics)
        self.files.write_rollouts(step, groups)
        self.after(step)


class TaskRig(SharedRig):
    """All queries are of the task ``films`` (or of ``tasks``) and share its rubric."""

    def __init__(  # type: ignore[no-untyped-def]
        self, config, folder: Path, tasks: Sequence[str] = ("films",), **parts: object
    ) -> None:
        super().__init__(config, folder, RUBRIC, tasks, **parts)
        self.files = RunFiles(folder / "run")
        self.recorder = FileRecorder(self.files)

    async def go_on(self, start: Position, past: Sequence[GradedGroup]) -> Position:
        return await asyncio.wait_for(self.loop().run(start, past), 20)

    def versions(self) -> dict[int, set[int]]:
        """Rubric versions that each step's groups were rewarded under."""
        return {step: {g.rubric.version for g in groups} for step, groups, _ in self.recorder.steps}


def revision(request: WriterRequest) -> str:
    """Make the first criterion's check another one."""
    assert isinstance(request, TaskRevisionRequest)
    version = request.rubric.version + 1
    criteria = [
        {
            "id": c.id,
            "check": f"Is it short, take {version}" if c.id == "c1" else c.text,
            "scoring_rule": "2 = yes; 1 = nearly; 0 = no",
            "max_points": c.max,
        }
        for c in request.rubric.criteria
    ]
    return json.dumps(
        {
            "task_id": request.task,
            "rubric_version": version,
            "generated_at_step": request.step,
            "generated_from_trigger": "scheduled_recent_rollouts",
            "diagnosis": {
                "mastered": "",
                "unreachable_now": "",
                "current_frontier": "",
                "rationale": "all are short",
            },
            "criteria": criteria,
        }
    )


async def test_a_revision_is_in_force_from_the_next_step_on_and_not_before(tmp_path: Path) -> None:
    rig = TaskRig(config_of(), tmp_path, writer=FakeWriter(revision))
    await rig.run()
    # one revision of eight steps: round(8 / 2) = 4
    assert rig.versions() == {s: {0} if s <= 4 else {1} for s in range(1, 9)}
    (commit,) = rig.store.commits
    assert (commit.query_id, commit.step, commit.from_version) == (KEY, 4, 0)
    assert commit.rubric.ids == RUBRIC.ids
    (edit,) = commit.edits
    assert (edit.branch, edit.status, edit.new and edit.new.text) == (
        "task",
        "accepted",
        "Is it short, take 1",
    )
    assert edit.evidence.analysis == "rationale: all are short"
    ((origin, recorded, from_version, to_version),) = rig.recorder.edits
    assert (origin.rubric_id, origin.step, from_version, to_version) == (KEY, 4, 0, 1)
    assert recorded == edit


async def test_one_writer_call_and_one_judge_call_a_representative_are_spent(
    tmp_path: Path,
) -> None:
    rig = TaskRig(config_of(), tmp_path, writer=FakeWriter(revision))
    await rig.run()
    (request,) = rig.writer.requests
    assert isinstance(request, TaskRevisionRequest)
    assert (request.task, request.step, len(request.cases)) == ("films", 4, 5)
    groups = [g for s, gs, _ in rig.recorder.steps if 2 <= s <= 4 for g in gs]
    assert {c.query_id for c in request.cases} < {g.query.id for g in groups}
    means = [c.group_mean for c in request.cases]
    assert means == sorted(means)
    texts = {c.response for c in request.cases}
    changed = [r for r in rig.judge.requests if [c.text for c in r.criteria] == [
        "Is it short, take 1"
    ]]  # fmt: skip
    # the second criterion did not change: its verdicts are in the store
    assert sorted(r.response for r in changed) == sorted(texts)
    assert rig.judge.rescores == []
    assert len(rig.judge.requests) == 8 * 2 * 2 + 5 + _eval_calls(rig)


def _eval_calls(rig: TaskRig) -> int:
    return 2 * len(rig.recorder.evaluations)


async def test_draws_of_the_next_step_wait_for_a_slow_revision(tmp_path: Path) -> None:
    rig = TaskRig(config_of(), tmp_path, writer=FakeWriter(revision, delay_s=0.3))
    await rig.run()
    assert rig.versions()[5] == {1}
    _, _, metrics = rig.recorder.steps[4]
    assert metrics["timing_s/evolve_exposed"] > 0.1


async def test_a_late_revision_is_discarded_and_the_draws_go_on(tmp_path: Path) -> None:
    config = config_of(deadline_s=0.1)
    rig = TaskRig(config, tmp_path, writer=FakeWriter(revision, delay_s=5))
    await rig.run()
    assert set().union(*rig.versions().values()) == {0}
    assert rig.store.commits == []
    ((_, edit, _, _),) = rig.recorder.edits
    assert (edit.status, edit.reason) == ("failed", "no revision within 0.1 s")
    missed = sum(m["evolving_rubrics/deadline_missed"] for _, _, m in rig.recorder.steps)
    assert missed == 1


async def test_a_reply_that_breaks_the_rules_is_asked_for_again_with_the_reason(
    tmp_path: Path,
) -> None:
    def second_try(request: WriterRequest) -> str:
        assert isinstance(request, TaskRevisionRequest)
        return revision(request) if request.error else "nonsense"

    rig = TaskRig(config_of(), tmp_path, writer=FakeWriter(second_try))
    await rig.run()
    assert len(rig.writer.requests) == 2
    assert rig.versions()[5] == {1}


async def test_tries_that_are_used_up_leave_the_old_rubric(tmp_path: Path) -> None:
    rig = TaskRig(config_of(max_attempts=3), tmp_path, writer=FakeWriter(lambda _: "no"))
    await rig.run()
    assert len(rig.writer.requests) == 3
    assert [r.error == "" for r in rig.writer.requests] == [True, False, False]  # type: ignore[union-attr]
    ((_, edit, _, _),) = rig.recorder.edits
    assert edit.status == "failed"
    assert edit.reason.startswith("3 tries, the last refused: got no JSON object")


async def test_too_few_queries_ask_nobody_and_are_recorded(tmp_path: Path) -> None:
    rig = TaskRig(config_of(min_groups=7, max_groups=8), tmp_path, writer=FakeWriter(revision))
    await rig.run()
    assert rig.writer.requests == []
    ((_, edit, _, _),) = rig.recorder.edits
    assert edit.status == "failed"
    assert edit.reason.startswith("got 6 queries")


async def test_the_gate_refuses_a_candidate_that_gives_all_the_same_reward(tmp_path: Path) -> None:
    class Same(FakeJudge):
        def verdict(self, criterion: Criterion, response: str) -> Verdict:
            # before, c1 alone tells answers apart; the candidate takes that away
            is_telling = criterion.text == "Is it short"
            given = super().verdict(criterion, response)
            return given if is_telling else replace(given, score=1.0)

    rig = TaskRig(config_of(), tmp_path, judge=Same(), writer=FakeWriter(revision))
    await rig.run()
    reasons = refusals(rig)
    assert reasons[0].startswith("gate: 5 representatives, 1 distinct new rewards")


async def test_the_gate_refuses_a_candidate_that_moves_the_mean(tmp_path: Path) -> None:
    rig = TaskRig(config_of(max_mean_shift=0.001), tmp_path, writer=FakeWriter(revision))
    await rig.run()
    (reason,) = refusals(rig)
    assert "wanted a shift of at most 0.001" in reason


async def test_the_gate_refuses_where_the_judge_fails_on_too_many(tmp_path: Path) -> None:
    class FailsOnNew(FakeJudge):
        def verdict(self, criterion: Criterion, response: str) -> Verdict:
            if "take" not in criterion.text:
                return super().verdict(criterion, response)
            return Verdict(criterion_id=criterion.id, score=None, max=2, failure="timeout")

    rig = TaskRig(config_of(), tmp_path, judge=FailsOnNew(), writer=FakeWriter(revision))
    await rig.run()
    assert refusals(rig) == ["gate: got scores of 0 of 5 representatives, wanted 4"]


def refusals(rig: TaskRig) -> list[str]:
    """The reasons of the refused edits; nothing was committed and all steps had the old rubric."""
    assert rig.store.commits == []
    assert set().union(*rig.versions().values()) == {0}
    counted = sum(m["evolving_rubrics/refused_by_gate"] for _, _, m in rig.recorder.steps)
    assert counted == 1
    assert all(e.status == "refused" for _, e, _, _ in rig.recorder.edits)
    return [e.reason for _, e, _, _ in rig.recorder.edits]


async def test_every_task_of_a_run_has_its_own_rubric_and_revision(tmp_path: Path) -> None:
    config = config_of(min_groups=2, max_groups=3)
    rig = TaskRig(config, tmp_path, writer=FakeWriter(revision), tasks=("films", "songs"))
    await rig.run()
    assert {c.query_id for c in rig.store.commits} == {KEY, "task:songs"}
    for request in rig.writer.requests:
        assert isinstance(request, TaskRevisionRequest)
        tasks = {rig.queries[c.query_id].task for c in request.cases}
        assert tasks == {request.task}


async def test_two_revisions_build_on_each_other(tmp_path: Path) -> None:
    config = config_of(steps=9, revisions=2, min_groups=4, max_groups=4)
    rig = TaskRig(config, tmp_path, writer=FakeWriter(revision))
    await rig.run()
    # after steps 3 and 6; the evidence of the second one is of steps 4 to 6, all of version 1
    assert rig.versions() == {s: {(s - 1) // 3} for s in range(1, 10)}
    assert [c.step for c in rig.store.commits] == [3, 6]
    assert len({c.key for c in rig.store.commits}) == 2


async def test_with_policy_age_groups_that_were_pinned_earlier_keep_their_version(
    tmp_path: Path,
) -> None:
    rig = TaskRig(config_of(age=2), tmp_path, writer=FakeWriter(revision))
    await rig.run()
    versions = rig.versions()
    assert all(versions[s] == {0} for s in range(1, 5))
    assert versions[8] == {1}
    for _, groups, _ in rig.recorder.steps:
        for group in groups:
            for scored in group.rollouts:
                assert set(scored.graded.verdicts) == set(group.rubric.ids)


async def test_a_store_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    class Gone(FakeStore):
        async def commit(self, commit):  # type: ignore[no-untyped-def]
            raise TimeoutError("the driver waited for the store")

    rig = TaskRig(config_of(), tmp_path, store=Gone(), writer=FakeWriter(revision))
    with pytest.raises(TimeoutError, match="waited for the store"):
        await rig.run()


async def test_a_client_that_waited_in_vain_is_no_late_revision(tmp_path: Path) -> None:
    class Hangs(FakeWriter):
        async def write(self, request: WriterRequest) -> Completion:
            raise TimeoutError("the driver waited for the writer")

    with pytest.raises(TimeoutError, match="waited for the writer"):
        await TaskRig(config_of(), tmp_path, writer=Hangs()).run()


# ------------------------------------------------------------------ resume
async def stopped_after(rig: TaskRig, step: int) -> Position:
    """Run until this step is done, as a person's stop does."""
    await rig.register()
    loop: TrainLoop = rig.loop()
    assert isinstance(rig.recorder, FileRecorder)
    rig.recorder.after = lambda done: loop.request_stop() if done == step else None
    return await asyncio.wait_for(loop.run(Position()), 20)


@pytest.mark.parametrize("step", [1, 2, 3])
async def test_a_resumed_run_has_the_same_evidence_and_makes_the_same_revision(
    tmp_path: Path, step: int
) -> None:
    whole = TaskRig(config_of(), tmp_path / "whole", writer=FakeWriter(revision))
    await whole.run()

    first = TaskRig(config_of(), tmp_path / "parts", writer=FakeWriter(revision))
    end = await stopped_after(first, step)
    assert end.step == step
    assert first.writer.requests == []
    second = TaskRig(
        config_of(), tmp_path / "parts", writer=FakeWriter(revision), store=first.store
    )
    second.pool.version = step
    queries: dict[str, Query] = second.queries
    past = await past_groups(second.files, second.store, queries, second.config.evolution, end.step)
    assert len(past) == 2 * min(step, 2)
    await second.go_on(end, past)
    assert second.writer.requests == whole.writer.requests
    assert [c.rubric for c in second.store.commits] == [c.rubric for c in whole.store.commits]


async def test_without_the_past_a_resumed_run_would_have_less_evidence(tmp_path: Path) -> None:
    first = TaskRig(config_of(), tmp_path, writer=FakeWriter(revision))
    end = await stopped_after(first, 3)
    second = TaskRig(config_of(), tmp_path, writer=FakeWriter(revision), store=first.store)
    await second.go_on(end, [])
    assert second.writer.requests == []
    assert second.recorder.edits[0][1].reason.startswith("got 2 queries")


async def test_a_checkpoint_waits_for_the_revision_of_its_step(tmp_path: Path) -> None:
    class Slow(FakeWriter):
        async def write(self, request: WriterRequest) -> Completion:
            await asyncio.sleep(0.2)
            return await super().write(request)

    rig = TaskRig(config_of(), tmp_path, writer=Slow(revision))
    end = await stopped_after(rig, 4)
    assert end.step == 4
    assert [c.step for c in rig.store.commits] == [4]


async def test_a_revision_that_a_later_step_did_not_wait_for_is_refused(tmp_path: Path) -> None:
    class SlowAfterStep3(FakeStore):
        is_slow = False

        async def current(self, query_id: str) -> Rubric:
            await asyncio.sleep(0.4 if self.is_slow else 0)
            return await super().current(query_id)

    store = SlowAfterStep3()
    rig = TaskRig(config_of(deadline_s=0.1), tmp_path, store=store, writer=FakeWriter(revision))
    assert isinstance(rig.recorder, FileRecorder)
    rig.recorder.after = lambda step: setattr(store, "is_slow", step == 3)
    await rig.run()
    assert store.commits == []
    ((_, edit, _, _),) = rig.recorder.edits
    assert edit.status == "refused"
    assert edit.reason == "a later step was graded without waiting for it"
    assert rig.versions()[8] == {0}


async def test_where_edits_wait_for_a_person_no_second_revision_is_asked_for(
    tmp_path: Path,
) -> None:
    config = make_config(
        loop__steps=9,
        evolution=config_of(revisions=2, max_groups=4).evolution.model_copy(
            update={"approval": "person"}
        ),
    )
    rig = TaskRig(config, tmp_path, writer=FakeWriter(revision))
    await rig.run()
    assert len(rig.writer.requests) == 1
    assert rig.store.commits == []
    assert [c.step for c in rig.store.proposed.values()] == [3]
    assert [e.status for _, e, _, _ in rig.recorder.edits] == ["waiting"]
