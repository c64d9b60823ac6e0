"""What a run spends: counted over all clients and lives, and the end of it."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from core.config_served import BudgetConfig, JudgeConfig, WriterConfig
from core.errors import ConfigError, RunStopped
from core.records import (
    Completion,
    JudgeReply,
    JudgeRequest,
    RescoreRequest,
    Usage,
    Verdict,
)
from core.rubric import Criterion
from core.writer_requests import ContrastRequest
from drivers import spending as spending_module
from drivers.served_clients import ServedJudge, ServedWriter, Watch
from drivers.spending import Spending

C1 = Criterion(id="c1", text="It is warm.")
ASK = JudgeRequest(query_id="q", prompt="p", response="r", criteria=(C1,))
CONTRAST = ContrastRequest(
    query_id="q", prompt="p", satisfied=(C1,), unsatisfied=(), response="r", anchor=None
)
PAID = Usage(calls=1, prompt_tokens=70, completion_tokens=30, cost_usd=0.25)


class Handle:
    """Answers every call at once, with the same usage."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, method: str) -> Any:
        handle = self

        class Method:
            @staticmethod
            def remote(request: Any) -> Any:
                handle.calls.append(method)
                return _reply(method)

        return Method


async def _reply(method: str) -> object:
    await asyncio.sleep(0.01)
    verdict = Verdict(criterion_id="c1", score=1, max=1)
    if method == "grade":
        return JudgeReply(verdicts=(verdict,), judge="j", usage=PAID)
    return Completion(text="x", finish_reason="stop", model="m", usage=PAID)


def test_usage_of_all_kinds_adds_up_and_is_told(tmp_path: Path) -> None:
    spending = Spending(BudgetConfig(), tmp_path / "spending.json")
    assert spending.metrics() == {}
    for _ in range(3):
        spending.add(PAID)
    assert spending.metrics() == {"budget/usd_spent": 0.75, "budget/tokens_spent": 300}
    assert spending.reason == ""
    limited = Spending(BudgetConfig(usd=1), tmp_path / "other.json")
    assert limited.metrics() == {"budget/usd_spent": 0.0, "budget/tokens_spent": 0}


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (BudgetConfig(usd=0.5), r"got 0\.5000 US dollars spent, wanted at most budget\.usd=0\.5"),
        (BudgetConfig(tokens=150), r"got 200 tokens spent, wanted at most budget\.tokens=150"),
    ],
)
def test_the_reply_that_reaches_the_budget_says_so_once(
    tmp_path: Path, budget: BudgetConfig, words: str
) -> None:
    spending = Spending(budget, tmp_path / "spending.json")
    told: list[str] = []
    spending.on_exceeded = told.append
    spending.add(PAID)
    assert told == []
    spending.check()
    for _ in range(3):
        spending.add(PAID)
    assert told == [spending.reason]
    with pytest.raises(RunStopped, match=words + ".* raise the budget and run the same command"):
        spending.check()
    # It was written at once: the next start knows.
    assert json.loads((tmp_path / "spending.json").read_bytes())["tokens"] == 200


def test_the_next_life_of_a_run_goes_on_counting(tmp_path: Path) -> None:
    path = tmp_path / "run" / "spending.json"
    first = Spending(BudgetConfig(usd=0.6), path)
    first.add(PAID)
    first.save()
    second = Spending(BudgetConfig(usd=0.6), path)
    assert second.reason == ""
    second.add(PAID)
    second.add(PAID)
    assert second.metrics()["budget/usd_spent"] == 0.75
    assert second.reason
    assert Spending(BudgetConfig(usd=0.6), path).reason  # 0.75 were saved with the reason's reply
    assert Spending(BudgetConfig(usd=5), path).reason == ""


def test_the_totals_are_on_disk_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spending.json"
    Spending(BudgetConfig(), path).add(PAID)
    assert not path.exists()
    monkeypatch.setattr(spending_module, "_SAVE_EVERY_S", 0.0)
    Spending(BudgetConfig(), path).add(PAID)
    assert json.loads(path.read_bytes()) == {"usd": 0.25, "tokens": 100}


@pytest.mark.parametrize("text", ["", "[]", '{"usd": 1}', '{"usd": "x", "tokens": 1}', "[" * 9999])
def test_a_file_that_cannot_be_read_is_refused_not_taken_for_zero(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "spending.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="wanted what the run has spent"):
        Spending(BudgetConfig(), path)


def test_an_endpoint_that_tells_no_tokens_under_a_budget_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spending = Spending(BudgetConfig(tokens=9), tmp_path / "spending.json")
    with caplog.at_level(logging.WARNING):
        spending.add(Usage(calls=2, retries=1))
        spending.add(Usage(calls=1))
        spending.add(Usage())  # by rules
    assert caplog.text.count("do not count towards the budget") == 1


async def test_past_the_budget_no_client_sends_anything_and_nothing_counts_as_failed(
    tmp_path: Path,
) -> None:
    spending = Spending(BudgetConfig(usd=0.7), tmp_path / "spending.json")
    watch = Watch(spending=spending)
    handle = Handle()
    judge = ServedJudge(handle, JudgeConfig(), "j", watch=watch)
    reference = ServedJudge(handle, JudgeConfig(), "r", prefix="reference_judge", watch=watch)
    writer = ServedWriter(handle, WriterConfig(), "w", watch=watch)
    await judge.grade(ASK)
    await reference.grade(ASK)
    assert spending.reason == ""
    await writer.write(CONTRAST)
    assert spending.reason
    assert handle.calls == ["grade", "grade", "write"]

    for client in (judge, reference):
        (verdict,) = (await client.grade(ASK)).verdicts
        assert (verdict.score, verdict.failure, verdict.reason) == (
            None,
            "unavailable",
            spending.reason,
        )
    joint = RescoreRequest(query_id="q", prompt="p", responses=("a", "b"), criteria=(C1,))
    rows = (await judge.rescore(joint)).verdicts
    assert [[v.failure for v in row] for row in rows] == [["unavailable"]] * 2
    reply = await writer.write(CONTRAST)
    assert (reply.failure, reply.detail) == ("unavailable", spending.reason)
    assert handle.calls == ["grade", "grade", "write"]
    for client in (judge, reference, writer):
        totals = client.totals()
        assert (totals.calls, totals.failures) == (1, {})
        assert (totals.in_flight, totals.waiting) == (0, 0)


async def test_what_waits_when_the_budget_is_reached_is_not_sent(tmp_path: Path) -> None:
    spending = Spending(BudgetConfig(usd=0.5), tmp_path / "spending.json")
    handle = Handle()
    judge = ServedJudge(
        handle, JudgeConfig(max_ongoing_requests=2), "j", watch=Watch(spending=spending)
    )
    replies = await asyncio.gather(*(judge.grade(ASK) for _ in range(10)))
    assert len(handle.calls) == 2
    assert sum(r.verdicts[0].failure == "unavailable" for r in replies) == 8
    assert spending.metrics()["budget/usd_spent"] == 0.5
