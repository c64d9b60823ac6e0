"""A budget that is used up ends the run with a checkpoint, and a larger one goes on from there."""

from pathlib import Path

import pytest

from core.config_served import BudgetConfig
from core.errors import RunStopped
from core.records import JudgeReply, JudgeRequest, Usage, Verdict
from drivers.checkpoint import latest_checkpoint
from drivers.spending import Spending
from tests.fakes import FakeJudge
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
