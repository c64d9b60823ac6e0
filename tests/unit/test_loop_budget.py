"""A budget that is used up ends the run with a checkpoint, and a larger one goes on from there."""

from pathlib import Path

import pytest

from core.config_served import BudgetConfig
from core.errors import RunStopped
from core.records import JudgeReply, JudgeRequest, StepReport, TrainBatch, Usage, Verdict
from drivers.checkpoint import latest_checkpoint
from drivers.spending import Spending
from tests.fakes import FakeJudge, FakeLearner
from tests.unit.loop_rig import Rig, make_config

GROUPS, SIZE, STEPS = 2, 2, 6


class PaidJudge(FakeJudge):
    """100 tokens a call; over the budget every verdict is a failure, as the real client's."""

    def __init__(self, spending: Spending) -> None:
        super().__init__()
        self.spending = spending

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        if self.spending.reason:
            verdicts = tuple(
                Verdict(criterion_id=c.id, score=None, max=c.max, failure="unavailable")
                for c in request.criteria
            )
            return JudgeReply(verdicts=verdicts, judge=self.identity)
        reply = await super().grade(request)
        self.spending.add(Usage(calls=1, prompt_tokens=100))
        return reply


def rig(folder: Path, tokens: int) -> Rig:
    spending = Spending(BudgetConfig(tokens=tokens), folder / "spending.json")
    config = make_config(loop__steps=STEPS, loop__checkpoint_every=1)
    return Rig(config, folder, judge=PaidJudge(spending), spending=spending)


async def test_a_used_up_budget_stops_with_a_checkpoint_and_no_group_trains_on_it(
    tmp_path: Path,
) -> None:
    first = rig(tmp_path, tokens=1000)  # 10 calls of the 4 that a step makes: in the third step
    with pytest.raises(RunStopped, match=r"got 1000 tokens spent, wanted at most budget\.tokens"):
        await first.run()
    assert len(first.recorder.steps) == 2
    for _, groups, metrics in first.recorder.steps:
        assert not any(g.is_masked for g in groups)
        assert metrics["judge/failed_rate"] == 0
    assert first.recorder.steps[1][2]["budget/tokens_spent"] == 800
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.position.step == 2

    again = rig(tmp_path, tokens=10_000)
    end = await again.run(found.position)
    assert end.step == STEPS
    whole = rig(tmp_path / "whole", tokens=10_000)
    await whole.run()
    assert first.trained() + again.trained() == whole.trained()
    assert again.recorder.steps[-1][2]["budget/tokens_spent"] == 1000 + 4 * 400


async def test_groups_ahead_that_the_budget_stopped_are_not_blamed_on_the_judge(
    tmp_path: Path,
) -> None:
    spending = Spending(BudgetConfig(tokens=1500), tmp_path / "spending.json")
    config = make_config(
        loop__steps=STEPS,
        loop__max_policy_age=2,
        judge={"failed_window_steps": 1, "max_failed_frac": 0.1},
    )
    learner = FakeLearner(update_s=0.2)  # the next groups meet the budget during an update
    ahead = Rig(config, tmp_path, judge=PaidJudge(spending), spending=spending, learner=learner)
    with pytest.raises(RunStopped, match="got 1500 tokens spent"):
        await ahead.run()
    assert latest_checkpoint(tmp_path) is not None


async def test_a_run_that_is_done_when_the_budget_is_reached_is_done(tmp_path: Path) -> None:
    spending = Spending(BudgetConfig(tokens=100_000), tmp_path / "spending.json")

    class Expensive(FakeLearner):
        """While the last step trains, a late reply of the reference judge costs too much."""

        async def train_step(self, batch: TrainBatch) -> StepReport:
            if batch.step == STEPS:
                spending.add(Usage(calls=1, prompt_tokens=100_000))
            return await super().train_step(batch)

    config = make_config(loop__steps=STEPS)
    done = Rig(config, tmp_path, judge=PaidJudge(spending), spending=spending, learner=Expensive())
    end = await done.run()
    assert (end.step, bool(spending.reason)) == (STEPS, True)
