"""The loop on fakes: synchronous and ahead, in order, bounded, stoppable, resumable."""

import asyncio
import json
from pathlib import Path

import pytest

from core.errors import RunStopped
from core.records import GenerateRequest, Rollout
from drivers.checkpoint import latest_checkpoint, whole_checkpoints
from drivers.loop import Position
from tests.fakes import FakeJudge, FakeLearner, FakePool
from tests.unit.loop_rig import Rig, make_config, make_queries


async def test_age_zero_generates_each_step_with_the_weights_of_the_one_before(
    tmp_path: Path,
) -> None:
    rig = Rig(make_config(), tmp_path)
    await rig.run()
    for step, groups, metrics in rig.recorder.steps:
        for group in groups:
            for scored in group.rollouts:
                assert scored.graded.rollout.policy_version_first == step - 1
        assert metrics["training/off_policy/trajectory_staleness/max"] == 0
    assert rig.pool.log == [f"load {v}" for v in range(1, 7)]
    assert not any(b.is_off_policy for b in rig.learner.batches)


async def test_age_two_runs_ahead_but_never_further_than_two_versions(tmp_path: Path) -> None:
    config = make_config(loop__max_policy_age=2, loop__steps=12)
    rig = Rig(config, tmp_path, learner=FakeLearner(update_s=0.02))
    await rig.run()
    ages = [
        step - 1 - scored.graded.rollout.policy_version_first
        for step, groups, _ in rig.recorder.steps
        for group in groups
        for scored in group.rollouts
    ]
    assert max(ages) == 2
    assert min(ages) >= 0
    assert all(b.is_off_policy for b in rig.learner.batches)


async def test_no_draw_past_the_last_step_is_generated(tmp_path: Path) -> None:
    """Its edits would stand in the run's records on rollouts that no file holds."""
    config = make_config(loop__max_policy_age=2, loop__steps=4)
    rig = Rig(config, tmp_path, learner=FakeLearner(update_s=0.02))
    end = await rig.run()
    assert end == Position(step=4, next_draw=8)
    assert len(rig.pool.requests) == 4 * 2 * 2


class UnevenPool(FakePool):
    """One query is always slow."""

    async def generate(self, request: GenerateRequest) -> Rollout:
        if request.query_id == "q3":
            await asyncio.sleep(0.03)
        return await super().generate(request)


@pytest.mark.parametrize("age", [0, 2])
async def test_every_step_trains_the_groups_of_its_draw_in_draw_order(
    tmp_path: Path, age: int
) -> None:
    config = make_config(loop__max_policy_age=age, loop__steps=8)
    slow, even = Rig(config, tmp_path / "a", pool=UnevenPool()), Rig(config, tmp_path / "b")
    await slow.run()
    await even.run()
    assert slow.trained() == even.trained()
    assert sorted(slow.trained_in_a_row()[:8]) == sorted(make_queries())


async def test_finished_order_trains_every_draw_once_and_does_not_wait_for_a_slow_one(
    tmp_path: Path,
) -> None:
    config = make_config(loop__order="finished", loop__max_policy_age=1, loop__steps=4)
    rig = Rig(config, tmp_path, pool=UnevenPool())
    await rig.run()
    assert len(rig.trained_in_a_row()) == 8


async def test_a_stop_leaves_a_checkpoint_and_the_next_start_goes_on_with_the_same_queries(
    tmp_path: Path,
) -> None:
    config = make_config(loop__max_policy_age=1)
    whole = Rig(config, tmp_path / "whole")
    await whole.run()

    first = Rig(config, tmp_path / "cut")
    await first.register()
    loop = first.loop()
    original = first.recorder.step

    def stop_at_two(step: int, groups: object, metrics: object) -> None:
        original(step, groups, metrics)  # type: ignore[arg-type]
        if step == 2:
            loop.request_stop()

    first.recorder.step = stop_at_two  # type: ignore[method-assign]
    stopped = await asyncio.wait_for(loop.run(Position()), 20)
    assert stopped.step == 2
    found = latest_checkpoint(tmp_path / "cut")
    assert found is not None
    assert found.position == stopped

    second = Rig(config, tmp_path / "cut", store=first.store)
    await second.learner.load(str(found.folder / "learner"))
    assert second.learner.version == 2
    await second.run(found.position)
    assert first.trained() + second.trained() == whole.trained()
    seeds = [r.seed for rig in (first, second) for r in rig.pool.requests]
    assert set(seeds) == {r.seed for r in whole.pool.requests}


async def test_a_stop_while_waiting_for_groups_ends_at_once(tmp_path: Path) -> None:
    rig = Rig(make_config(), tmp_path, pool=FakePool(delay_s=30))
    await rig.register()
    loop = rig.loop()
    asyncio.get_running_loop().call_later(0.1, loop.request_stop)
    position = await asyncio.wait_for(loop.run(Position()), 5)
    assert position.step == 0
    assert whole_checkpoints(tmp_path) == []


async def test_checkpoints_are_bounded_and_a_cut_one_is_never_loaded(tmp_path: Path) -> None:
    rig = Rig(make_config(loop__checkpoint_every=1), tmp_path)
    await rig.run()
    assert [p.name for p in whole_checkpoints(tmp_path)] == ["step_00005", "step_00006"]
    (tmp_path / "step_00007").mkdir()
    (tmp_path / "step_00008.tmp").mkdir()
    (tmp_path / "step_00008.tmp" / "position.json").write_text("{}")
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.position.step == 6
    assert json.loads((found.folder / "position.json").read_text())["position"]["step"] == 6


async def test_a_failing_judge_stops_the_run_with_a_checkpoint_and_never_pays_zero(
    tmp_path: Path,
) -> None:
    rig = Rig(make_config(), tmp_path, judge=FakeJudge(failing=True))
    with pytest.raises(RunStopped, match=r"12 of 24|24 of 24"):
        await rig.run()
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.position.step == 3
    assert all(s.reward is None for _, gs, _ in rig.recorder.steps for g in gs for s in g.rollouts)
    assert all(b.groups == ((), ()) for b in rig.learner.batches)


async def test_a_stage_that_breaks_ends_the_run_with_its_own_error(tmp_path: Path) -> None:
    class Broken(FakePool):
        async def generate(self, request: GenerateRequest) -> Rollout:
            raise ZeroDivisionError("engine gone")

    with pytest.raises(ZeroDivisionError, match="engine gone"):
        await Rig(make_config(), tmp_path, pool=Broken()).run()


async def test_held_out_queries_are_judged_under_their_frozen_rubric(tmp_path: Path) -> None:
    rig = Rig(make_config(loop__eval_every=2), tmp_path)
    await rig.run()
    assert rig.recorder.evaluations == [2, 4, 6]
    assert "val/reward/mean" in rig.recorder.steps[1][2]
    assert "val/reward/mean" not in rig.recorder.steps[0][2]
