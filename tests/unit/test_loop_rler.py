"""RLER in the loop: rubric versions, rewards and calls of two visits, computed by hand."""

from pathlib import Path

import pytest

from core.writer_requests import PoolRequest
from tests.fakes import FakeStore, FakeWriter
from tests.unit.loop_rig import NUM_QUERIES, Rig, make_config, rewards
from tests.unit.pool_builders import pool_reply
from tests.unit.scripted_groups import NamedPool, TableJudge

SHORT, KIND = "Is it short", "Is it kind"
RHYME, CAUSE, PRAISE, SOURCE = "Has a rhyme", "Names a cause", "Praises itself", "Cites a source"
SCORES = {
    SHORT: (1, 1, 0),
    KIND: (0, 1, 0),
    RHYME: (2, 0, 1),
    CAUSE: (2, 2, 2),
    PRAISE: (0, 0, 2),
    SOURCE: (0, 0, 2),
}
"""By index of the rollout; pool criteria have a maximum of 2."""


def two_visits(request: PoolRequest) -> str:
    """New criteria at the first visit; at the second one that is known and one that is new."""
    if not request.active:
        return pool_reply([RHYME, CAUSE], [PRAISE] if request.is_negative_asked else [])
    return pool_reply([CAUSE, SOURCE])


def rig(
    folder: Path,
    *,
    writer: FakeWriter | None = None,
    judge: TableJudge | None = None,
    store: FakeStore | None = None,
    steps: int = 8,
    **evolution: object,
) -> Rig:
    config = make_config(
        sampling__group_size=3,
        loop__steps=steps,
        evolution={"method": "rler", **evolution},
        reward={"weights": "checklist", "normaliser": "pos_sum_floor1"},
    )
    return Rig(
        config,
        folder,
        pool=NamedPool(),
        judge=judge or TableJudge(SCORES),
        writer=writer or FakeWriter(two_visits),
        store=store or FakeStore(),
    )


async def test_two_visits_make_four_versions_and_new_criteria_count_at_once(
    tmp_path: Path,
) -> None:
    run = rig(tmp_path, rler={"max_active": 2})
    await run.run()
    versions = [v.rubric for v in run.store.versions["q0"]]
    assert [tuple(c.text for c in v.criteria) for v in versions] == [
        (SHORT, KIND),
        (SHORT, KIND, RHYME, CAUSE, PRAISE),
        (SHORT, KIND, RHYME, PRAISE),  # the cause is the same for all
        (SHORT, KIND, RHYME, PRAISE, SOURCE),  # the cause is known, so it is not added again
        (SHORT, KIND, PRAISE, SOURCE),  # deviations .41, .47, .47: the rhyme goes
    ]
    assert versions[3].ids == ("c1", "c2", "pool_0_1", "pool_0_3", "pool_1_1")
    first, second = run.groups_of("q0")
    assert (first.rubric, second.rubric) == (versions[1], versions[3])
    # (1 + 0 + 2/2 + 2/2 - 0) / 4, (1 + 1 + 0 + 1 - 0) / 4, (0 + 0 + 1/2 + 1 - 2/2) / 4
    assert rewards(first) == pytest.approx([0.75, 0.75, 0.125])
    # (1 + 0 + 1 - 0 + 0) / 4, (1 + 1 + 0 - 0 + 0) / 4, (0 + 0 + 1/2 - 1 + 1) / 4
    assert rewards(second) == pytest.approx([0.5, 0.5, 0.125])


async def test_one_writer_call_a_group_and_one_joint_judge_call_a_rollout(tmp_path: Path) -> None:
    run = rig(tmp_path, rler={"max_active": 2})
    await run.run()
    num_groups = 2 * NUM_QUERIES
    assert len(run.writer.requests) == num_groups
    assert len(run.judge.requests) == 3 * num_groups
    assert {len(r.criteria) for r in run.judge.requests} == {5}
    assert run.judge.rescores == []
    seen = next(r for r in run.writer.requests if r.query_id == "q0" and r.active)
    assert [c.text for c in seen.initial] == [SHORT, KIND]
    assert [c.text for c in seen.active] == [RHYME, PRAISE]
    assert seen.responses == tuple(f"current q0 visit 1 rollout {i}" for i in range(3))


async def test_every_change_is_an_event(tmp_path: Path) -> None:
    run = rig(tmp_path, rler={"max_active": 2})
    await run.run()
    events = [
        (
            e.status,
            e.branch,
            e.old.text if e.old else None,
            e.new.text if e.new else None,
            start,
            end,
        )
        for origin, e, start, end in run.recorder.edits
        if origin.rubric_id == "q0"
    ]
    assert events == [
        ("accepted", "pool", None, RHYME, 0, 1),
        ("accepted", "pool", None, CAUSE, 0, 1),
        ("accepted", "pool", None, PRAISE, 0, 1),
        ("accepted", "pool", CAUSE, None, 1, 2),
        ("accepted", "pool", None, SOURCE, 2, 3),
        ("refused", "pool", None, None, 2, 2),
        ("accepted", "pool", RHYME, None, 3, 4),
    ]


async def test_as_rare_adapts_it_scores_are_summed_over_maxima(tmp_path: Path) -> None:
    run = rig(tmp_path, steps=4, rler={"negative": False})
    run.config = make_config(
        sampling__group_size=3,
        loop__steps=4,
        evolution={"method": "rler", "rler": {"negative": False}},
    )
    await run.run()
    (group,) = run.groups_of("q0")
    assert group.rubric.total_max == 1 + 1 + 2 + 2
    assert rewards(group) == pytest.approx([5 / 6, 4 / 6, 3 / 6])


async def test_a_writer_that_gives_nothing_leaves_the_rubric_and_trains_on(tmp_path: Path) -> None:
    run = rig(tmp_path, writer=FakeWriter(lambda _: "I have no idea."), steps=4)
    await run.run()
    assert run.store.commits == []
    (group,) = run.groups_of("q0")
    assert group.rubric.version == 0
    assert rewards(group) == pytest.approx([0.5, 1.0, 0.0])
    assert {e.status for _, e, _, _ in run.recorder.edits} == {"failed"}
    assert len(run.recorder.edits) == NUM_QUERIES
    assert sum(m["evolving_rubrics/failed"] for _, _, m in run.recorder.steps) == NUM_QUERIES


async def test_a_late_writer_is_counted_and_active_criteria_stay_in_force(tmp_path: Path) -> None:
    class LateAtTheSecondVisit(FakeWriter):
        async def write(self, request):  # type: ignore[no-untyped-def]
            self.delay_s = 15.0 if request.active else 0.0
            return await super().write(request)

    run = rig(tmp_path, writer=LateAtTheSecondVisit(two_visits), deadline_s=0.3)
    await run.run()
    second = run.groups_of("q0")[1]
    assert second.rubric.version == 2
    assert [c.text for c in second.rubric.criteria] == [SHORT, KIND, RHYME, PRAISE]
    missed = sum(m["evolving_rubrics/deadline_missed"] for _, _, m in run.recorder.steps)
    assert missed == NUM_QUERIES


async def test_with_fewer_than_two_graded_rollouts_nothing_leaves_the_pool(tmp_path: Path) -> None:
    scores = {**SCORES, SHORT: (1, None, None)}
    run = rig(tmp_path, judge=TableJudge(scores), steps=4)
    await run.run()
    (group,) = run.groups_of("q0")
    assert group.is_masked
    assert run.store.rubrics["q0"].version == 1


async def test_a_group_that_is_generated_again_finds_its_commit(tmp_path: Path) -> None:
    store = FakeStore()
    first = rig(tmp_path / "first", store=store, steps=4)
    await first.run()
    again = rig(tmp_path / "again", store=store, steps=4)
    await again.run()
    assert again.writer.requests == []
    assert again.judge.requests == []
    assert len(store.versions["q0"]) == 3
    assert again.groups_of("q0")[0].rubric == first.groups_of("q0")[0].rubric
    assert rewards(again.groups_of("q0")[0]) == rewards(first.groups_of("q0")[0])


async def test_two_runs_make_the_same_rubrics(tmp_path: Path) -> None:
    runs = [rig(tmp_path / name) for name in ("a", "b")]
    for run in runs:
        await run.run()
    assert runs[0].store.rubrics == runs[1].store.rubrics
