"""The judge with a real vLLM engine in its replica: the small packaged model, structured output.

The model is too small to judge well; what is tested is that every criterion gets a verdict or a
failure, that a schema without free text always gives scores, and that no engine process stays.
"""

import asyncio
import os
from collections.abc import Iterator

import psutil
import pytest
import ray

from core.config import RunConfig
from core.records import JudgeRequest, RescoreRequest
from core.rubric import Criterion, Rule
from drivers.packaged_model import NAME, PREFIX
from drivers.serving import start_judge, stop_serving

pytest.importorskip("vllm")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

SHORT = Criterion(id="short", text="Be brief.", rule=Rule(name="max_words", args={"n": 30}))
TONE = Criterion(id="tone", text="The answer is polite.")
DEPTH = Criterion(id="depth", text="The answer names a cause.", max=2)
CRITERIA = (TONE, SHORT, DEPTH)


@pytest.fixture(autouse=True)
def cluster() -> Iterator[None]:
    from ray import serve

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    serve.shutdown()
    ray.shutdown()


def run_config() -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "vllm",
            "data": {"train": "queries.jsonl"},
            "policy": {"model": "m"},
            "judge": {
                "backend": "vllm",
                "model": PREFIX + NAME,
                "template": "verbatim",
                "max_tokens": 256,
                "max_model_len": 2048,
                "max_ongoing_requests": 16,
                "num_cpus": 1,
                "timeout_s": 120.0,
                "start_timeout_s": 300.0,
            },
            "loop": {"steps": 1},
        }
    )


def replica_pid() -> int:
    (name,) = {
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if "ratchet-vllm-judge#Judge#" in actor["name"]
    }
    actor = ray.get_actor(name, namespace="serve")
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=60)


async def test_the_engine_in_the_replica_gives_structured_verdicts() -> None:
    judge = await start_judge(run_config())
    engine = psutil.Process(replica_pid()).children(recursive=True)
    assert engine

    requests = [
        JudgeRequest(
            query_id=f"q{i}",
            prompt="Why is the sky blue?",
            response=f"Because air scatters blue light most, dear reader {i}.",
            criteria=CRITERIA,
        )
        for i in range(16)
    ]
    replies = await asyncio.gather(*map(judge.grade, requests))
    for reply in replies:
        assert [v.criterion_id for v in reply.verdicts] == ["tone", "short", "depth"]
        # Keys and levels are fixed by the schema, so even this model cannot miss them.
        assert [v.failure for v in reply.verdicts] == [None, None, None]
        assert reply.verdicts[1].score == 1
    assert judge.totals().usage.completion_tokens > 0

    # This schema holds free reasons, which such a model may not end in time.
    joint = await judge.rescore(
        RescoreRequest(
            query_id="q",
            prompt="Why is the sky blue?",
            responses=("Air scatters blue light.", "No idea."),
            criteria=(DEPTH, SHORT),
        )
    )
    assert [len(row) for row in joint.verdicts] == [2, 2]
    for row in joint.verdicts:
        assert row[0].score in (0, 1, 2) or row[0].failure is not None
        assert row[1].score == 1

    # A prompt over the context is a failure, and the engine goes on.
    long = JudgeRequest(query_id="long", prompt="p", response="word " * 4000, criteria=(TONE,))
    assert [v.failure for v in (await judge.grade(long)).verdicts] == ["unavailable"]
    assert (await judge.grade(requests[0])).verdicts[0].failure is None

    await stop_serving("vllm")
    _, alive = psutil.wait_procs(engine, timeout=30)
    assert alive == []
