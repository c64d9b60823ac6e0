"""Groups without a same-step edit train while the others' rewards are still being made."""

import asyncio
from pathlib import Path

import pytest

from core.batching import EarlyPasses
from core.records import JudgeReply, JudgeRequest, StepReport, TrainBatch, Verdict
from tests.fakes import FakeJudge, FakeLearner, FakeWriter
from tests.unit.loop_rig import Rig, make_config, replacement_reply


class HalfSaturated(FakeJudge):
    """Full scores on everything for queries of odd number, spread for the others."""

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        self.requests.append(request)
        verdicts = tuple(
            Verdict(criterion_id=c.id, score=self._score(request), max=1) for c in request.criteria
        )
        return JudgeReply(verdicts=verdicts, judge=self.identity)

    def _score(self, request: JudgeRequest) -> float:
        is_full = int(request.query_id.removeprefix("q")) % 2 == 1
        return 1.0 if is_full else float(len(self.requests) % 2)


class LoggingLearner(FakeLearner):
    """Notes its calls, and how many writer calls had been answered at each."""

    def __init__(self, writer: FakeWriter) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self._writer = writer
        self.early_s = 0.0

    async def accumulate(self, early: EarlyPasses) -> None:
        await super().accumulate(early)
        await asyncio.sleep(self.early_s)
        self.calls.append(("accumulate", self._writer.answered))

    async def train_step(self, batch: TrainBatch) -> StepReport:
        self.calls.append(("train", self._writer.answered))
        return await super().train_step(batch)


class CountingWriter(FakeWriter):
    """Counts what it has answered."""

    answered = 0

    async def write(self, request: object) -> object:
        reply = await super().write(request)
        self.answered += 1
        return reply


def rig(tmp_path: Path, **changes: object) -> Rig:
    rare = {"loop__steps": 2, "loop__groups_per_step": 4, "evolution": {"method": "rare"}}
    config = make_config(**{**rare, **changes})
    writer = CountingWriter(replacement_reply, delay_s=0.05)
    parts = {"judge": HalfSaturated(), "writer": writer, "learner": LoggingLearner(writer)}
    return Rig(config, tmp_path, **parts)


@pytest.mark.parametrize("age", [0, 1])
async def test_ready_groups_train_before_the_writer_has_answered_for_the_late_ones(
    tmp_path: Path, age: int
) -> None:
    made = rig(tmp_path, loop__max_policy_age=age)
    await made.run()
    calls = made.learner.calls
    # Two of four groups are late: the first follows alone, the last goes with the step itself.
    assert [name for name, _ in calls] == ["accumulate", "accumulate", "train"] * 2
    assert calls[0] == ("accumulate", 0)
    assert calls[1][1] >= 1
    begun = made.learner.early[::2]
    for first, follower in zip(begun, made.learner.early[1::2], strict=True):
        (place,) = [i for i, group in enumerate(follower.batch.groups) if group]
        assert first.following == (place,)
        assert not first.batch.groups[place]
        assert (follower.num_tokens, follower.batch.step) == (first.num_tokens, first.batch.step)
    for early, batch in zip(begun, made.learner.batches, strict=True):
        places = [i for i, group in enumerate(early.batch.groups) if group]
        odd = [int(g[0].query_id.removeprefix("q")) % 2 for g in batch.groups]
        assert places == [i for i, is_late in enumerate(odd) if not is_late]
        assert all(early.batch.groups[i] == batch.groups[i] for i in places)
        tokens = sum(len(s.token_ids) for group in batch.groups for s in group)
        assert early.num_tokens == tokens
        assert early.batch.is_off_policy == batch.is_off_policy == (age > 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"advantage": {"drop_flat_groups": True}},
        {"evolution": {"method": "static"}},
    ],
    ids=["flat groups are dropped", "no edits"],
)
async def test_a_step_trains_at_once_where_it_cannot_be_begun(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    made = rig(tmp_path, **changes)
    await made.run()
    assert made.learner.early == []
    assert len(made.learner.batches) == 2


async def test_time_of_early_passes_counts_as_update_and_not_as_idle(tmp_path: Path) -> None:
    made = rig(tmp_path)
    made.learner.early_s = 0.2
    await made.run()
    for _, _, metrics in made.recorder.steps:
        assert metrics["timing_s/update_actor"] >= 0.2
        assert metrics["timing_s/step"] >= 0.2 + metrics["timing_s/trainer_idle"]
        assert metrics["timing_s/evolve_exposed"] <= metrics["timing_s/trainer_idle"]
