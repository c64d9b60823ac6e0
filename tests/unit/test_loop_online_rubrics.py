"""Online Rubrics in the loop: pairs, merge, one rubric a visit, rewards and calls by hand."""

from pathlib import Path

import pytest

from core.errors import WeightSyncError
from core.records import WeightUpdate
from core.writer_requests import MergeRequest, PairRequest, WriterRequest
from drivers.control_pool import ControlPool
from tests.fakes import FakePool, FakeStore, FakeWriter
from tests.unit.loop_rig import NUM_QUERIES, Rig, make_config, rewards
from tests.unit.pool_builders import merge_reply, pair_reply
from tests.unit.scripted_groups import NamedPool, TableJudge

SHORT, KIND = "Is it short", "Is it kind"
CAUSE, REASON, SOURCE, RHYME = "Names a cause", "Names a reason", "Cites a source", "Has a rhyme"
MERGED = "Names a cause or a reason"
SCORES = {
    SHORT: (1, 1, 0),
    KIND: (0, 1, 0),
    MERGED: (1, 0, 1),
    REASON: (1, 1, 0),
    SOURCE: (0, 0, 1),
    RHYME: (1, 0, 0),
}


def item(text: str, weight: int) -> dict[str, object]:
    return {"quote": "current q", "criterion": text, "weight": weight}


def two_visits(request: WriterRequest) -> str:
    """At the first visit both pairs have candidates, at the second only one."""
    if isinstance(request, MergeRequest):
        return merge_reply({MERGED: 3, SOURCE: 2})
    assert isinstance(request, PairRequest)
    if "visit 1" in request.response_a:
        return pair_reply(item(RHYME, 4)) if "rollout 0" in request.response_a else pair_reply()
    if "rollout 0" in request.response_a:
        return pair_reply(item(CAUSE, 3))
    return pair_reply(item(REASON, 2), item(SOURCE, 2))


def rig(
    folder: Path,
    *,
    writer: FakeWriter | None = None,
    store: FakeStore | None = None,
    control: FakePool | None = None,
    steps: int = 8,
    **evolution: object,
) -> Rig:
    config = make_config(
        sampling__group_size=3,
        loop__steps=steps,
        evolution={
            "method": "online_rubrics",
            "online": {"control_group_size": 2},
            **evolution,
        },
        reward={"weights": "checklist"},
    )
    return Rig(
        config,
        folder,
        pool=NamedPool(),
        control=control or NamedPool("control"),
        judge=TableJudge(SCORES),
        writer=writer or FakeWriter(two_visits),
        store=store or FakeStore(),
    )


async def test_each_visit_has_the_initial_criteria_and_its_own_new_ones(tmp_path: Path) -> None:
    run = rig(tmp_path)
    await run.run()
    versions = [v.rubric for v in run.store.versions["q0"]]
    assert [[(c.id, c.text, c.weight) for c in v.criteria[2:]] for v in versions] == [
        [],
        [("local_0_1", MERGED, 3.0), ("local_0_2", SOURCE, 2.0)],
        [("local_1_1", RHYME, 4.0)],
    ]
    assert all(v.ids[:2] == ("c1", "c2") for v in versions)
    first, second = run.groups_of("q0")
    assert (first.rubric, second.rubric) == (versions[1], versions[2])
    # Weights 1, 1, 3, 2: (1 + 0 + 3 + 0) / 7, (1 + 1 + 0 + 0) / 7, (0 + 0 + 3 + 2) / 7
    assert rewards(first) == pytest.approx([4 / 7, 2 / 7, 5 / 7])
    # Weights 1, 1, 4: (1 + 0 + 4) / 6, (1 + 1 + 0) / 6, 0
    assert rewards(second) == pytest.approx([5 / 6, 2 / 6, 0.0])


async def test_calls_are_one_a_pair_and_one_merge_and_one_judge_call_a_rollout(
    tmp_path: Path,
) -> None:
    run = rig(tmp_path)
    await run.run()
    pairs = [r for r in run.writer.requests if isinstance(r, PairRequest)]
    merges = [r for r in run.writer.requests if isinstance(r, MergeRequest)]
    assert len(pairs) == 2 * 2 * NUM_QUERIES
    assert len(merges) == NUM_QUERIES  # at the second visit one pair gave all there is
    assert len(run.judge.requests) == 3 * 2 * NUM_QUERIES
    assert {(c.text, c.weight) for c in merges[0].candidates} == {
        (CAUSE, 3.0),
        (REASON, 2.0),
        (SOURCE, 2.0),
    }
    assert all([c.text for c in r.existing] == [SHORT, KIND] for r in pairs)


async def test_control_rollouts_come_from_their_own_pool_with_seeds_of_their_own(
    tmp_path: Path,
) -> None:
    run = rig(tmp_path, steps=4)
    await run.run()
    assert len(run.control.requests) == 2 * NUM_QUERIES
    assert not {r.seed for r in run.control.requests} & {r.seed for r in run.pool.requests}
    for request in run.writer.requests:
        if isinstance(request, PairRequest):
            both = sorted((request.response_a, request.response_b))
            assert both[0].removeprefix("control") == both[1].removeprefix("current")
    trained = [s for b in run.learner.batches for g in b.groups for s in g]
    assert len(trained) == 3 * NUM_QUERIES


async def test_every_change_is_an_event_with_quotes_of_the_current_rollout(tmp_path: Path) -> None:
    run = rig(tmp_path)
    await run.run()
    edits = [(e, a, b) for o, e, a, b in run.recorder.edits if o.rubric_id == "q0"]
    assert [(e.status, e.new and e.new.text, e.old and e.old.text, a, b) for e, a, b in edits] == [
        ("accepted", MERGED, None, 0, 1),
        ("accepted", SOURCE, None, 0, 1),
        ("accepted", RHYME, None, 1, 2),
        ("accepted", None, MERGED, 1, 2),
        ("accepted", None, SOURCE, 1, 2),
    ]
    assert edits[0][0].evidence.rollouts == (0, 1)
    assert edits[0][0].evidence.quotes == ("current q",)


async def test_a_pair_without_a_usable_reply_is_counted_and_the_others_count(
    tmp_path: Path,
) -> None:
    def one_pair_fails(request: WriterRequest) -> str:
        if isinstance(request, PairRequest) and "rollout 0" in request.response_a:
            return "I cannot."
        return pair_reply(item(SOURCE, 2))

    run = rig(tmp_path, writer=FakeWriter(one_pair_fails), steps=4)
    await run.run()
    (group,) = run.groups_of("q0")
    assert [c.text for c in group.rubric.criteria] == [SHORT, KIND, SOURCE]
    statuses = [e.status for o, e, _, _ in run.recorder.edits if o.rubric_id == "q0"]
    assert statuses == ["accepted", "failed"]


async def test_a_merge_that_fails_leaves_the_initial_criteria(tmp_path: Path) -> None:
    def merge_fails_later(request: WriterRequest) -> str:
        if isinstance(request, MergeRequest):
            is_first = {c.text for c in request.candidates} != {RHYME}
            return two_visits(request) if is_first else merge_reply({})
        return (
            pair_reply(item(RHYME, 4)) if "visit 1" in request.response_a else two_visits(request)
        )

    run = rig(tmp_path, writer=FakeWriter(merge_fails_later))
    await run.run()
    versions = [v.rubric for v in run.store.versions["q0"]]
    assert len(versions) == 3
    assert versions[2].criteria == versions[0].criteria
    second = run.groups_of("q0")[1]
    assert second.rubric == versions[2]
    assert rewards(second) == pytest.approx([0.5, 1.0, 0.0])
    failed = [e for o, e, _, _ in run.recorder.edits if e.status == "failed"]
    assert len(failed) == NUM_QUERIES
    assert "did not merge" in failed[0].reason


async def test_a_late_writer_is_counted_and_the_initial_criteria_score(tmp_path: Path) -> None:
    late = FakeWriter(two_visits, delay_s=15.0)
    run = rig(tmp_path, writer=late, steps=4, deadline_s=0.2)
    await run.run()
    assert run.store.commits == []
    assert rewards(run.groups_of("q0")[0]) == pytest.approx([0.5, 1.0, 0.0])
    missed = sum(m["evolving_rubrics/deadline_missed"] for _, _, m in run.recorder.steps)
    assert missed == NUM_QUERIES
    assert sum(m["evolving_rubrics/failed"] for _, _, m in run.recorder.steps) == NUM_QUERIES


async def test_a_control_pool_that_fails_costs_its_pairs_only(tmp_path: Path) -> None:
    broken = NamedPool("control")
    broken.failing = {0}
    run = rig(tmp_path, control=broken, steps=4)
    await run.run()
    (group,) = run.groups_of("q0")
    assert [c.text for c in group.rubric.criteria] == [SHORT, KIND, REASON, SOURCE]
    failed = [e for o, e, _, _ in run.recorder.edits if e.status == "failed"]
    assert [e.reason for e in failed] == ["no control rollout 0: no worker left"] * NUM_QUERIES


async def test_without_any_control_rollout_the_writer_is_not_asked(tmp_path: Path) -> None:
    broken = NamedPool("control")
    broken.failing = {0, 1}
    run = rig(tmp_path, control=broken, steps=4)
    await run.run()
    assert run.writer.requests == []
    assert run.store.commits == []
    assert len(run.recorder.steps) == 4


async def test_a_group_that_is_generated_again_finds_its_commit(tmp_path: Path) -> None:
    store = FakeStore()
    first = rig(tmp_path / "first", store=store)
    await first.run()
    again = rig(tmp_path / "again", store=store)
    await again.run()
    assert again.writer.requests == []
    assert [g.rubric for g in again.groups_of("q0")] == [g.rubric for g in first.groups_of("q0")]


# ------------------------------------------------------------------ the control policy's weights
def update(version: int) -> WeightUpdate:
    return WeightUpdate(version=version, transport="shm")


async def test_the_reference_keeps_the_first_weights_for_ever(tmp_path: Path) -> None:
    inner = NamedPool("control")
    control = ControlPool(inner, "reference")
    await control.begin(update(0))
    run = rig(tmp_path, control=control, steps=3)  # type: ignore[arg-type]
    await run.run()
    assert inner.log == ["load 0"]
    assert run.pool.log == ["load 1", "load 2", "load 3"]


async def test_the_previous_policy_is_one_version_behind(tmp_path: Path) -> None:
    inner = NamedPool("control")
    control = ControlPool(inner, "previous")
    await control.begin(update(0))
    run = rig(tmp_path, control=control, steps=3)  # type: ignore[arg-type]
    await run.run()
    assert inner.log == ["load 0", "load 1", "load 2"]


async def test_control_workers_without_weights_do_not_stop_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refusing(FakePool):
        async def load_weights(self, update: WeightUpdate) -> None:
            if update.version == 1:
                raise WeightSyncError("no worker could load version 1")
            await super().load_weights(update)

    inner = Refusing()
    control = ControlPool(inner, "previous")
    await control.begin(update(0))
    for version in (1, 2, 3):
        await control.load_weights(update(version))
    assert "control workers are without weights: no worker could load" in caplog.text
    assert inner.log == ["load 0", "load 2"]
