"""The synchronous schedule on fakes: phases follow one another, and nothing blocks for ever."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, RolloutError
from core.records import (
    Completion,
    GenerateRequest,
    JudgeReply,
    JudgeRequest,
    RescoreReply,
    RescoreRequest,
    Rollout,
    StepReport,
    TrainBatch,
)
from core.writer_requests import ContrastRequest, ReplacementRequest, WriterRequest
from drivers.bench.synchronous import Schedule, SynchronousLoop
from drivers.loop import Position
from drivers.ports import Parts
from tests.fakes import FakeJudge, FakeLearner, FakePool, FakeStore, FakeWriter
from tests.unit.loop_rig import Rig, make_config, replacement_reply
from tests.unit.pool_builders import pool_reply

GROUPS, SIZE, STEPS = 2, 2, 4
CARE = {"method": "care"}
RARE = {"method": "rare"}


def delay_s(number: int) -> float:
    """Another short time for each call in turn."""
    return (0.004, 0.0, 0.009, 0.002, 0.006)[number % 5]


class Log:
    """Which kind of call began and ended, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    async def call(self, kind: str) -> None:
        number = len(self.entries)
        self.entries.append(kind)
        await asyncio.sleep(delay_s(number))
        self.entries.append(f"{kind} done")

    def phases(self) -> list[str]:
        """The kinds in order, without repetition."""
        kinds = [entry.removesuffix(" done") for entry in self.entries]
        return [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]


class LoggedPool(FakePool):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.calls = log

    async def generate(self, request: GenerateRequest) -> Rollout:
        await self.calls.call("generate")
        return await super().generate(request)


class LoggedJudge(FakeJudge):
    def __init__(self, log: Log, **options: Any) -> None:
        super().__init__(**options)
        self.log = log

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        await self.log.call("judge")
        return await super().grade(request)

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        await self.log.call("evolve")
        return await super().rescore(request)


class LoggedWriter(FakeWriter):
    def __init__(self, log: Log, reply: Callable[[Any], str]) -> None:
        super().__init__(reply)
        self.log = log

    async def write(self, request: WriterRequest) -> Completion:
        await self.log.call("evolve")
        return await super().write(request)


class LoggedLearner(FakeLearner):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    async def train_step(self, batch: TrainBatch) -> StepReport:
        await self.log.call("update")
        return await super().train_step(batch)


class SynchronousRig(Rig):
    loop_type = SynchronousLoop


def contrast_reply(request: ContrastRequest) -> str:
    kept = [c.tagged for c in (*request.satisfied, *request.unsatisfied)]
    new = f"[llm] Names a thing beyond set {len(kept)}"
    return f"<ANALYSIS>gap</ANALYSIS><FINAL_SET>{json.dumps([*kept, new])}</FINAL_SET>"


def rig(folder: Path, evolution: object, reply: Callable[[Any], str], **judge: Any) -> Any:
    log = Log()
    config = make_config(loop__steps=STEPS, evolution=evolution)
    made: Any = SynchronousRig(
        config,
        folder,
        pool=LoggedPool(log),
        judge=LoggedJudge(log, **judge),
        writer=LoggedWriter(log, reply),
        learner=LoggedLearner(log),
    )
    made.log = log
    return made


async def test_a_static_step_generates_then_judges_then_updates(tmp_path: Path) -> None:
    run = rig(tmp_path, {"method": "static"}, str)
    await run.run()
    assert run.log.phases() == ["generate", "judge", "update"] * STEPS
    assert len(run.learner.batches) == STEPS


async def test_next_visit_edits_are_done_before_the_update_begins(tmp_path: Path) -> None:
    run = rig(tmp_path, CARE, contrast_reply)
    await run.run()
    assert run.log.phases() == ["generate", "judge", "evolve", "update"] * STEPS
    assert len(run.writer.requests) == GROUPS * STEPS


async def test_replacements_and_their_rescoring_come_after_all_judging(tmp_path: Path) -> None:
    run = rig(tmp_path, RARE, _replacement, always_full=["Is it short"])
    await run.run()
    assert run.judge.rescores
    phases = run.log.phases()
    assert phases[:4] == ["generate", "judge", "evolve", "update"]
    assert [p for p in phases if p != "evolve"] == ["generate", "judge", "update"] * STEPS


async def test_whole_groups_get_their_rubrics_between_generating_and_judging(
    tmp_path: Path,
) -> None:
    run = rig(tmp_path, {"method": "rler"}, lambda request: pool_reply(["Cites a source"]))
    await run.run()
    assert run.log.phases() == ["generate", "evolve", "judge", "update"] * STEPS


async def test_the_same_rollouts_are_rewarded_alike_with_and_without_barriers(
    tmp_path: Path,
) -> None:
    rewards: list[list[object]] = []
    for rig_type in (Rig, SynchronousRig):
        config = make_config(loop__steps=STEPS, evolution=CARE)
        run = rig_type(config, tmp_path / rig_type.__name__, writer=FakeWriter(contrast_reply))
        await run.run()
        rewards.append(
            [r.reward for _, gs, _ in run.recorder.steps for g in gs for r in g.rollouts]
        )
    assert rewards[0] == rewards[1]


async def test_verdicts_that_are_known_already_hold_nothing_up(tmp_path: Path) -> None:
    first = rig(tmp_path / "first", {"method": "static"}, str)
    await first.run()
    again = rig(tmp_path / "again", CARE, contrast_reply)
    again.store = first.store
    await again.run()
    assert "judge" not in again.log.phases()[:3]
    assert len(again.learner.batches) == STEPS


@pytest.mark.parametrize("reply", [lambda _: "I have no idea.", lambda _: ""])
@pytest.mark.parametrize("evolution", [CARE, RARE])
async def test_a_useless_writer_holds_nothing_up(
    tmp_path: Path, evolution: object, reply: Callable[[Any], str]
) -> None:
    run = rig(tmp_path, evolution, reply, always_full=["Is it short"])
    await run.run()
    assert len(run.learner.batches) == STEPS


async def test_a_judge_that_fails_holds_nothing_up(tmp_path: Path) -> None:
    run = rig(tmp_path, CARE, contrast_reply, failing=True)
    run.config = run.config.model_copy(
        update={"judge": run.config.judge.model_copy(update={"max_failed_frac": 1.0})}
    )
    await run.run()
    assert len(run.learner.batches) == STEPS
    assert run.writer.requests == [], "no rollout is graded, so there is no top rollout"


async def test_a_rollout_that_fails_ends_the_run(tmp_path: Path) -> None:
    run = rig(tmp_path, CARE, contrast_reply)
    real, numbers = run.pool.generate, iter(range(100))

    async def generate(request: GenerateRequest) -> Rollout:
        if next(numbers) == GROUPS * SIZE + 1:
            raise RolloutError("no worker left")
        return await real(request)

    run.pool.generate = generate
    with pytest.raises(RolloutError, match="no worker left"):
        await run.run()


async def test_a_barrier_that_is_never_reached_says_who_waited_for_what() -> None:
    schedule = Schedule(GROUPS, SIZE, limit_s=0.01)
    synchronous = schedule.synchronous_parts(_parts(FakePool(), FakeJudge()))
    await synchronous.pool.generate(_request(0))
    with pytest.raises(
        TimeoutError, match=r"waited 0.01 s for 4 rollouts to be generated .* saw 1"
    ):
        await synchronous.judge.grade(
            JudgeRequest(query_id="q", prompt="p", response="r", criteria=())
        )


async def test_the_seconds_of_each_phase_are_kept(tmp_path: Path) -> None:
    run = rig(tmp_path, CARE, contrast_reply)
    await run.register()
    loop = run.loop()
    assert isinstance(loop, SynchronousLoop)
    await loop.run(Position())
    assert [p.step for p in loop.phases] == list(range(1, STEPS + 1))
    for phases in loop.phases:
        assert all(seconds > 0 for seconds in phases.seconds.values()), phases
        assert phases.total_s == pytest.approx(sum(phases.seconds.values()))


def test_generating_ahead_is_refused(tmp_path: Path) -> None:
    config = make_config(loop__max_policy_age=1)
    with pytest.raises(ConfigError, match="max_policy_age=1, wanted 0"):
        SynchronousRig(config, tmp_path).loop()


def _replacement(request: ReplacementRequest) -> str:
    return replacement_reply(request)


def _request(index: int) -> GenerateRequest:
    return GenerateRequest(
        query_id="q", visit=0, index=index, messages=(), seed=0, temperature=1.0, max_new_tokens=8
    )


def _parts(pool: FakePool, judge: FakeJudge) -> Parts:
    return Parts(
        pool=pool, learner=FakeLearner(), judge=judge, writer=FakeWriter(), store=FakeStore()
    )
