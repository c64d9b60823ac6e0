"""MPO in the loop on fakes: calls, versions, activation, failures."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.records import Completion
from core.rubric import Criterion, Rubric
from core.writer_requests import (
    MetaAnalysisRequest,
    MetaMergeRequest,
    MetaRefineRequest,
    WriterRequest,
)
from tests.fakes import FakeStore, FakeWriter
from tests.unit.loop_rig import SharedRig, make_config

KEY = "task:essays"
RUBRIC = Rubric(criteria=(Criterion(id="general", text="Is it good?", max=5),))


def config_of(*, steps: int = 5, deadline_s: float = 10.0, **mpo: object):  # type: ignore[no-untyped-def]
    """Two groups of two a step, so at most four samples."""
    numbers = {"every_steps": 2, "num_samples": 3, "max_points": 2, "max_criteria": 4}
    evolution = {"method": "mpo", "deadline_s": deadline_s, "mpo": numbers | mpo}
    return make_config(loop__steps=steps, evolution=evolution)


class MpoRig(SharedRig):
    """All queries are of the task ``essays`` (or of ``tasks``) and share its rubric."""

    def __init__(  # type: ignore[no-untyped-def]
        self, config, folder: Path, tasks: Sequence[str] = ("essays",), **parts: object
    ) -> None:
        super().__init__(config, folder, RUBRIC, tasks, **parts)

    def ids(self) -> dict[int, set[tuple[str, ...]]]:
        """Criteria that each step's groups were rewarded under."""
        return {step: {g.rubric.ids for g in groups} for step, groups, _ in self.recorder.steps}

    def asked(self) -> list[str]:
        return [type(r).__name__ for r in self.writer.requests]


def items(*names: str) -> str:
    inner = "".join(f"<item>{n}\n- (0): no\n- (1): half\n- (2): yes</item>" for n in names)
    return f"<rubric>{inner}</rubric>"


def reply(request: WriterRequest) -> str:
    if isinstance(request, MetaAnalysisRequest):
        return f"too kind to {request.sample.response}"
    if isinstance(request, MetaRefineRequest):
        assert request.analysis == f"too kind to {request.sample.response}"
        return items(f"after {request.sample.response}")
    assert isinstance(request, MetaMergeRequest)
    return items(f"Claim {request.rubric.version + 1}", "Style")


async def test_the_merged_criteria_are_in_force_from_the_next_step_on(tmp_path: Path) -> None:
    rig = MpoRig(config_of(), tmp_path, writer=FakeWriter(reply))
    await rig.run()
    first, second = ("mpo_1_1", "mpo_1_2"), ("mpo_2_1", "mpo_2_2")
    # after steps 2 and 4 of five
    assert rig.ids() == {
        1: {("general",)}, 2: {("general",)}, 3: {first}, 4: {first}, 5: {second},
    }  # fmt: skip
    assert [(c.query_id, c.step, c.from_version) for c in rig.store.commits] == [
        (KEY, 2, 0),
        (KEY, 4, 1),
    ]
    new = rig.store.commits[0].rubric.criterion("mpo_1_1")
    assert (new.text, new.max, new.weight) == ("Claim 1", 2, 1.0)
    assert new.levels == {0: "no", 1: "half", 2: "yes"}
    assert {e.branch for _, e, _, _ in rig.recorder.edits} == {"task"}
    assert {c.key for c in rig.store.commits} == {f"{KEY}:0:task:2", f"{KEY}:0:task:4"}


async def test_two_calls_a_sample_and_one_merge_are_spent_on_rollouts_of_that_step(
    tmp_path: Path,
) -> None:
    rig = MpoRig(config_of(steps=3), tmp_path, writer=FakeWriter(reply))
    await rig.run()
    asked = rig.asked()
    assert (asked.count("MetaAnalysisRequest"), asked.count("MetaRefineRequest")) == (3, 3)
    assert asked[-1] == "MetaMergeRequest"
    assert len(asked) == 7
    of_step = {
        s.graded.rollout.response
        for g in rig.recorder.steps[1][1]
        for s in g.rollouts
    }  # fmt: skip
    samples = [r.sample for r in rig.writer.requests if isinstance(r, MetaAnalysisRequest)]
    assert {s.response for s in samples} < of_step
    assert len({s.response for s in samples}) == 3
    merge = rig.writer.requests[-1]
    assert isinstance(merge, MetaMergeRequest)
    assert len(merge.refinements) == 3
    calls = sum(m["evolving_rubrics/writer_calls"] for _, _, m in rig.recorder.steps)
    assert calls == 7


async def test_the_reward_is_the_sum_of_scores_over_the_sum_of_maxima(tmp_path: Path) -> None:
    rig = MpoRig(config_of(), tmp_path, writer=FakeWriter(reply))
    await rig.run()
    for step, groups, _ in rig.recorder.steps:
        for scored in (s for g in groups for s in g.rollouts):
            total = sum(v.score or 0 for v in scored.graded.verdicts.values())
            assert scored.reward == pytest.approx(total / (5 if step <= 2 else 4))


async def test_the_samples_are_worked_on_side_by_side(tmp_path: Path) -> None:
    """No analysis is answered before all of them were asked."""

    class Together(FakeWriter):
        async def write(self, request: WriterRequest) -> Completion:
            answer = await super().write(request)
            async with asyncio.timeout(5):
                while len(self.requests) < 3:
                    await asyncio.sleep(0.01)
            return answer

    rig = MpoRig(config_of(steps=3), tmp_path, writer=Together(reply))
    await rig.run()
    assert len(rig.store.commits) == 1


async def test_a_sample_whose_calls_fail_is_left_out(tmp_path: Path) -> None:
    class FailsTwice(FakeWriter):
        """The first analysis does not come, and the first refinement holds no items."""

        async def write(self, request: WriterRequest) -> Completion:
            number = sum(type(r) is type(request) for r in self.requests)
            answer = await super().write(request)
            if number > 0 or isinstance(request, MetaMergeRequest):
                return answer
            if isinstance(request, MetaAnalysisRequest):
                return Completion(text="", finish_reason="", model="m", failure="timeout")
            return Completion(text="no items here", finish_reason="stop", model="m")

    rig = MpoRig(config_of(steps=3), tmp_path, writer=FailsTwice(reply))
    await rig.run()
    merge = rig.writer.requests[-1]
    assert isinstance(merge, MetaMergeRequest)
    assert len(merge.refinements) == 1
    assert rig.ids()[3] == {("mpo_1_1", "mpo_1_2")}
    assert {e.reason for _, e, _, _ in rig.recorder.edits} == {"merged from 1 of 3 samples"}


async def test_no_usable_sample_leaves_the_old_rubric_and_asks_for_no_merge(
    tmp_path: Path,
) -> None:
    rig = MpoRig(config_of(steps=3), tmp_path, writer=FakeWriter(lambda _: ""))
    await rig.run()
    assert rig.asked() == ["MetaAnalysisRequest"] * 3
    assert rig.store.commits == []
    ((_, edit, _, _),) = rig.recorder.edits
    assert edit.status == "failed"
    assert edit.reason.startswith("none of 3 samples was refined, the first: got an empty analysis")


async def test_an_unusable_merge_leaves_the_old_rubric_and_is_counted(tmp_path: Path) -> None:
    def no_merge(request: WriterRequest) -> str:
        return "nothing" if isinstance(request, MetaMergeRequest) else reply(request)

    rig = MpoRig(config_of(steps=3), tmp_path, writer=FakeWriter(no_merge))
    await rig.run()
    assert rig.ids()[3] == {("general",)}
    failed = sum(m["evolving_rubrics/failed"] for _, _, m in rig.recorder.steps)
    assert failed == 1


async def test_a_late_merge_is_discarded(tmp_path: Path) -> None:
    config = config_of(steps=3, deadline_s=0.1)
    rig = MpoRig(config, tmp_path, writer=FakeWriter(reply, delay_s=2))
    await rig.run()
    assert rig.ids()[3] == {("general",)}
    assert rig.store.commits == []
    ((_, edit, _, _),) = rig.recorder.edits
    assert edit.reason == "no revision within 0.1 s"


async def test_rares_adaptation_revises_at_evenly_spaced_steps(tmp_path: Path) -> None:
    config = config_of(steps=6, every_steps=None, revisions=2)
    rig = MpoRig(config, tmp_path, writer=FakeWriter(reply))
    await rig.run()
    assert [c.step for c in rig.store.commits] == [2, 4]


async def test_tasks_are_refined_apart(tmp_path: Path) -> None:
    rig = MpoRig(
        config_of(steps=3, num_samples=1), tmp_path, writer=FakeWriter(reply),
        tasks=("essays", "mails"),
    )  # fmt: skip
    await rig.run()
    tasks = {g.query.task for g in rig.recorder.steps[1][1]}
    assert {c.query_id for c in rig.store.commits} == {f"task:{t}" for t in tasks}
    for request in rig.writer.requests:
        if isinstance(request, MetaAnalysisRequest):
            task = rig.queries[request.sample.query_id].task
            assert request.query_id == f"task:{task}"


async def test_a_step_that_is_done_again_draws_the_same_samples(tmp_path: Path) -> None:
    runs = [
        MpoRig(config_of(steps=3), tmp_path / name, writer=FakeWriter(reply), store=FakeStore())
        for name in ("a", "b")
    ]
    for rig in runs:
        await rig.run()
    assert runs[0].writer.requests == runs[1].writer.requests
