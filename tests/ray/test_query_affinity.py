"""The judge's request router on real Ray Serve: queries stay together, a lost replica is left."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from core.config_served import JudgeConfig
from core.records import JudgeReply, JudgeRequest
from drivers.served_clients import ServedJudge
from drivers.serving import deployment_options

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def cluster() -> Iterator[None]:
    from ray import serve

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    serve.shutdown()
    ray.shutdown()


def deployed(config: JudgeConfig) -> ServedJudge:
    """Start replicas that say who they are, with the options of the product's judge."""
    from ray import serve

    class Named:
        async def grade(self, request: JudgeRequest) -> JudgeReply:
            await asyncio.sleep(float(request.prompt))
            return JudgeReply(verdicts=(), judge=str(os.getpid()))

    deployment: Any = serve.deployment(Named)
    app = deployment.options(**deployment_options("judge", config)).bind()
    return ServedJudge(serve.run(app, name="named", route_prefix=None), config, "named")


async def ask(judge: ServedJudge, query: int, seconds: float = 0.0) -> str:
    request = JudgeRequest(query_id=f"q{query}", prompt=f"{seconds}", response="r", criteria=())
    return (await judge.grade(request)).judge


async def test_calls_of_a_query_stay_together_until_their_replica_is_full_or_lost() -> None:
    config = JudgeConfig(backend="vllm", model="m", num_replicas=2, max_ongoing_requests=8)
    judge = await asyncio.to_thread(deployed, config)
    homes = {query: await ask(judge, query) for query in range(12)}
    assert len(set(homes.values())) == 2
    for query, home in homes.items():
        assert {await ask(judge, query) for _ in range(3)} == {home}

    # Its replica is full: the others of the query's calls do not wait for it.
    crowd = [asyncio.create_task(ask(judge, 0, seconds=1.0)) for _ in range(16)]
    assert len(set(await asyncio.gather(*crowd))) == 2

    os.kill(int(homes[0]), signal.SIGKILL)
    answered = await asyncio.gather(*(ask(judge, query) for query in range(12)))
    assert homes[0] not in answered
    assert all(answered)
    assert judge.totals().failures == {}
