"""The reference judge: which rollouts it sees, the gap it tells, and that it holds up nothing."""

import asyncio
import hashlib
import logging

import pytest

from core.config import RunConfig
from core.query import Message, Query
from core.records import (
    Draw,
    GradedRollout,
    JudgeReply,
    JudgeRequest,
    Rollout,
    ScoredGroup,
    ScoredRollout,
    Verdict,
)
from core.rubric import Criterion, Rubric
from drivers import reference_judge
from drivers.reference_judge import ReferenceMonitor, sample_point
from tests.fakes import FakeJudge, FakeStore

RUBRIC = Rubric(
    criteria=(
        Criterion(id="a", text="It is kind.", max=3),
        Criterion(id="b", text="It is short."),
        Criterion(id="r", text="It praises itself not.", kind="resist"),
    )
)


def config(frac: float = 1.0, **changes: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "r",
            "data": {"train": "x"},
            "policy": {"model": "m"},
            "loop": {"steps": 1},
            "reference_judge": {"frac": frac},
            **changes,
        }
    )


def group(rewards: list[float | None], query_id: str = "q", visit: int = 0) -> ScoredGroup:
    query = Query(id=query_id, messages=(Message(role="user", content="Say it."),), rubric=RUBRIC)
    rollouts = tuple(
        ScoredRollout(
            graded=GradedRollout(
                rollout=Rollout(
                    query_id=query_id,
                    visit=visit,
                    index=i,
                    response=f"answer {i}",
                    finish_reason="stop",
                    prompt_token_ids=(1,),
                    token_ids=(2,),
                    rollout_logprobs=(-0.1,),
                    policy_version_first=0,
                    policy_version_last=0,
                ),
                verdicts={},
            ),
            reward=reward,
            is_vetoed=False,
            advantage=0.0,
        )
        for i, reward in enumerate(rewards)
    )
    draw = Draw(query_id=query_id, step=1, position=0, visit=visit)
    return ScoredGroup(draw=draw, query=query, rubric=RUBRIC, rollouts=rollouts, is_masked=False)


class Reference(FakeJudge):
    """Gives the scores of ``table`` by response, after a moment; None is a failure."""

    identity = "reference"

    def __init__(self, table: dict[str, dict[str, float] | None], delay_s: float = 0.0) -> None:
        super().__init__()
        self.table = table
        self.delay_s = delay_s

    def stats(self) -> dict[str, float]:
        return {"reference_judge/calls": float(len(self.requests))}

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        self.requests.append(request)
        await asyncio.sleep(self.delay_s)
        scores = self.table[request.response]
        verdicts = tuple(
            Verdict(criterion_id=c.id, score=None, max=c.max, failure="timeout")
            if scores is None
            else Verdict(criterion_id=c.id, score=scores[c.id], max=c.max)
            for c in request.criteria
        )
        return JudgeReply(verdicts=verdicts, judge=self.identity)


TABLE: dict[str, dict[str, float] | None] = {
    "answer 0": {"a": 3, "b": 0, "r": 1},  # (3 + 0 + 1) / 5 = 0.8
    "answer 1": {"a": 3, "b": 1, "r": 0},  # vetoed: 0
    "answer 2": None,
}


async def test_the_gap_is_the_mean_difference_of_the_rewards_of_what_was_scored() -> None:
    judge = Reference(TABLE)
    monitor = ReferenceMonitor(config(), judge, FakeStore())
    monitor.start(group([1.0, 0.6, 0.9]))
    assert monitor.metrics()["judge/reference_scored"] == 0  # nothing was waited for
    await monitor.drain(5.0)
    found = monitor.metrics()
    # (1.0 - 0.8 + 0.6 - 0.0) / 2
    assert found["judge/gold_gap"] == pytest.approx(0.4)
    assert (found["judge/reference_scored"], found["judge/reference_failed"]) == (2, 1)
    assert found["reference_judge/calls"] == 3
    again = monitor.metrics()
    assert "judge/gold_gap" not in again
    assert (again["judge/reference_scored"], again["judge/reference_failed"]) == (0, 0)


async def test_the_reward_is_made_as_the_runs_own() -> None:
    monitor = ReferenceMonitor(config(reward={"veto": False}), Reference(TABLE), FakeStore())
    monitor.start(group([None, 0.6]))
    await monitor.drain(5.0)
    # Without the veto answer 1 has (3 + 1 + 0) / 5; a rollout without a reward is not asked about.
    found = monitor.metrics()
    assert found["judge/gold_gap"] == pytest.approx(0.6 - 0.8)
    assert found["judge/reference_scored"] == 1


async def test_the_sample_follows_from_query_visit_and_index_alone() -> None:
    picked = []
    for _ in range(2):
        judge = FakeJudge()
        monitor = ReferenceMonitor(config(frac=0.25), judge, FakeStore())
        for visit in range(40):
            monitor.start(group([0.5] * 10, visit=visit))
        await monitor.drain(5.0)
        picked.append(len(judge.requests))
    assert picked[0] == picked[1]
    digest = hashlib.sha256(b"q\x003\x001").digest()[:8]
    assert sample_point("q", 3, 1) == int.from_bytes(digest, "big") / 2**64
    points = [sample_point("q", v, i) for v in range(40) for i in range(10)]
    assert 60 < sum(p < 0.25 for p in points) < 140  # 100 of 400 expected
    assert 0 <= min(points) < max(points) < 1


async def test_verdicts_are_cached_under_the_reference_judges_own_name() -> None:
    store, judge = FakeStore(), Reference(TABLE)
    monitor = ReferenceMonitor(config(), judge, store)
    for _ in range(2):
        monitor.start(group([1.0, 0.6, 0.9]))
        await monitor.drain(5.0)
    # The failure is asked again, the six scores are not.
    asked = [r.response for r in judge.requests]
    assert asked == ["answer 0", "answer 1", "answer 2", "answer 2"]
    assert len(store.verdicts) == 6


async def test_a_judge_that_breaks_or_is_slow_stops_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_judge, "_MAX_PENDING", 3)
    broken = Reference({})  # raises KeyError
    monitor = ReferenceMonitor(config(), broken, FakeStore())
    with caplog.at_level(logging.WARNING):
        monitor.start(group([1.0] * 5))
        await monitor.drain(5.0)
    found = monitor.metrics()
    assert (found["judge/reference_failed"], found["judge/reference_skipped"]) == (3, 2)
    assert "the reference judge on query 'q'" in caplog.text

    slow = Reference(TABLE, delay_s=60.0)
    monitor = ReferenceMonitor(config(), slow, FakeStore())
    monitor.start(group([1.0, 1.0]))
    await monitor.drain(0.05)
    await asyncio.wait_for(monitor.close(), 5.0)
    assert monitor.metrics()["judge/reference_failed"] == 0
