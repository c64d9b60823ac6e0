"""The loop on fakes: synchronous and ahead, in order, bounded, stoppable, resumable."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from core.config import RunConfig
from core.errors import RunStopped
from core.query import Anchor, Message, Query
from core.records import ContrastRequest, GenerateRequest, ReplacementRequest, Rollout
from core.rubric import Criterion, Rubric
from drivers.checkpoint import Checkpoints, Identity, latest_checkpoint, whole_checkpoints
from drivers.evaluate import Evaluator
from drivers.loop import Parts, Position, TrainLoop
from drivers.progress import Progress
from tests.fakes import FakeJudge, FakeLearner, FakePool, FakeRecorder, FakeStore, FakeWriter

NUM_QUERIES = 8
IDENTITY = Identity(data_fingerprint="f", seed=0, groups_per_step=2, group_size=2)


def make_queries() -> dict[str, Query]:
    return {
        f"q{i}": Query(
            id=f"q{i}",
            messages=(Message(role="user", content=f"question {i}"),),
            rubric=Rubric(
                criteria=(
                    Criterion(id="c1", text="Is it short"),
                    Criterion(id="c2", text="Is it kind"),
                )
            ),
            anchor=Anchor(response="a good answer"),
        )
        for i in range(NUM_QUERIES)
    }


def make_config(**changes: object) -> RunConfig:
    tree: dict[str, object] = {
        "name": "test",
        "data": {"train": "unused"},
        "policy": {"model": "unused"},
        "sampling": {"group_size": 2, "max_new_tokens": 8},
        "loop": {"steps": 6, "groups_per_step": 2, "checkpoint_every": 0},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            part = tree.setdefault(section, {})
            assert isinstance(part, dict)
            part[name] = value
        else:
            tree[section] = value
    return RunConfig.model_validate(tree)


class Rig:
    """A loop with fakes on all sides and a real checkpoint folder."""

    def __init__(self, config: RunConfig, folder: Path, **parts: object) -> None:
        self.pool = parts.get("pool") or FakePool()
        self.learner = parts.get("learner") or FakeLearner()
        self.judge = parts.get("judge") or FakeJudge()
        self.writer = parts.get("writer") or FakeWriter()
        self.store = parts.get("store") or FakeStore()
        self.recorder = FakeRecorder()
        self.config = config
        self.folder = folder
        self.queries = make_queries()

    def loop(self) -> TrainLoop:
        parts = Parts(
            pool=self.pool,
            learner=self.learner,
            judge=self.judge,
            writer=self.writer,
            store=self.store,
        )
        checkpoints = Checkpoints(
            self.folder, self.learner, self.store, IDENTITY, num_kept=2, wall_s=lambda: 1.0
        )
        evaluator = Evaluator(
            self.config, list(self.queries.values())[:2], self.pool, self.judge, self.store
        )
        return TrainLoop(
            self.config,
            self.queries,
            parts,
            self.recorder,
            checkpoints,
            evaluator,
            Progress(self.config.loop.steps, 0),
        )

    async def run(self, start: Position | None = None) -> Position:
        await self.store.register(list(self.queries.values()))
        return await asyncio.wait_for(self.loop().run(start or Position()), 20)

    def trained(self) -> list[list[str]]:
        return [[g.draw.query_id for g in groups] for _, groups, _ in self.recorder.steps]


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
    assert sorted(sum(slow.trained()[:4], [])) == sorted(make_queries())


async def test_finished_order_trains_every_draw_once_and_does_not_wait_for_a_slow_one(
    tmp_path: Path,
) -> None:
    config = make_config(loop__order="finished", loop__max_policy_age=1, loop__steps=4)
    rig = Rig(config, tmp_path, pool=UnevenPool())
    await rig.run()
    trained = sum(rig.trained(), [])
    assert len(trained) == 8


async def test_a_stop_leaves_a_checkpoint_and_the_next_start_goes_on_with_the_same_queries(
    tmp_path: Path,
) -> None:
    config = make_config(loop__max_policy_age=1)
    whole = Rig(config, tmp_path / "whole")
    await whole.run()

    first = Rig(config, tmp_path / "cut")
    await first.store.register(list(first.queries.values()))
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
    await rig.store.register(list(rig.queries.values()))
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
    with pytest.raises(RunStopped, match="12 of 24|24 of 24"):
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


# ---------------------------------------------------------------------- evolution
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


def replacement_reply(request: ReplacementRequest) -> str:
    chosen = request.saturated_ids[: request.num_updates]
    updates = [
        {
            "id": i,
            "polarity": "negative",
            "diagnosis": {
                "difference": "one is longer",
                "best_rollout_ids": ["R0"],
                "weaker_rollout_ids": ["R1"],
                "learning_direction": "avoid it",
                "nonredundancy": "not covered",
            },
            "rubric": {
                "id": i,
                "check": f"Fresh check for {i} after {request.rubric.version}",
                "max_points": 1,
                "scoring_rule": "1 = absent; 0 = present",
            },
        }
        for i in chosen
    ]
    return json.dumps({"updates": updates})


async def test_saturated_criteria_are_replaced_and_the_same_rollouts_rescored_once(
    tmp_path: Path,
) -> None:
    config = make_config(loop__steps=4, evolution={"method": "rare"})
    judge = FakeJudge(always_full=["Is it short"])
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(replacement_reply))
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
        write: Callable[..., str] = contrast_reply if is_contrast else replacement_reply
        return write(request)

    config = make_config(loop__steps=4, evolution={"method": "ratchet"})
    judge = FakeJudge(always_full=["Is it short"])
    rig = Rig(config, tmp_path, judge=judge, writer=FakeWriter(reply))
    await rig.run()
    for query_id in make_queries():
        commits = [c for c in rig.store.commits if c.query_id == query_id]
        assert [c.key.rsplit(":", 1)[1] for c in commits] == ["replacement", "contrast"]
        assert [c.rubric.version for c in commits] == [1, 2]


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
