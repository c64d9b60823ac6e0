"""Every benchmark whole on the real small model, judged over loopback, stopped and gone on with."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers import asking, evaluate
from drivers.benchmark_registry import BENCHMARKS
from tests.scripted_judges import data_of, judge_reply
from tests.stub_openai import Reply, StubOpenAI

pytestmark = pytest.mark.e2e

MODEL = "packaged:smollm2-135m-instruct"


class SharedModel:
    """One loop and one engine for all commands of this file: an engine takes half a minute."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.backend: Any = None
        self.num_answers = 0

    async def start(self, config: Any) -> Any:
        if config.backend != "vllm":
            return await _START(config)
        if self.backend is None:
            self.backend = await _START(config)
        return self

    async def complete(self, request: Any) -> Any:
        self.num_answers += 1
        return await self.backend.complete(request)

    async def close(self) -> None:
        """The engine goes on for the next command."""


_START = asking._start


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedModel]:
    model = SharedModel()
    yield model
    if model.backend is not None:
        model.loop.run_until_complete(model.backend.close())
    model.loop.close()


@pytest.fixture(autouse=True)
def one_engine(shared: SharedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_start", shared.start)
    monkeypatch.setattr(evaluate.asyncio, "run", shared.loop.run_until_complete)


def command(benchmark: str, address: str, out: Path) -> list[str]:
    return [
        benchmark, "--data", *data_of(benchmark), "--out", str(out), "--limit", "2",
        "--max-tokens", "24",
        "--model", MODEL, "--model-backend", "vllm", "--model-set", "max_model_len=2048",
        "--model-set", "max_tokens=64",
        "--judge", "judge", "--judge-url", address, "--judge-set", "max_attempts=1",
    ]  # fmt: skip


@pytest.mark.timeout(180)
@pytest.mark.parametrize("benchmark", sorted(BENCHMARKS))
def test_a_benchmark_on_the_small_model(
    tmp_path: Path, shared: SharedModel, benchmark: str
) -> None:
    num_judged, is_away = 0, True

    def answer(body: dict[str, Any], number: int) -> Reply:
        nonlocal num_judged
        if is_away and num_judged >= 1:
            return Reply(status=500)
        num_judged += 1
        return Reply(text=judge_reply(benchmark, body))

    before = shared.num_answers
    with StubOpenAI(answer) as stub:
        assert evaluate.main(command(benchmark, stub.base_url, tmp_path)) == 1
        is_away = False
        assert evaluate.main(command(benchmark, stub.base_url, tmp_path)) == 0
        once = num_judged
        assert evaluate.main(command(benchmark, stub.base_url, tmp_path)) == 0
    assert num_judged == once
    assert shared.num_answers - before == 2  # each task once, whatever stopped
    kept = (tmp_path / "judgements.jsonl").read_text("utf-8").count("\n")
    assert kept == once
    scores = json.loads((tmp_path / "scores.json").read_bytes())
    assert scores["unfinished"] == {}
    assert scores["tasks"] == 2
