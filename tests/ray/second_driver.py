"""A second driver on the test's cluster: starts its own run's judge, asks it, prints the scores.

Called as ``python -m tests.ray.second_driver ADDRESS CONFIG_JSON NUM_REQUESTS``.
"""

import asyncio
import json
import sys

import ray

from core.config import RunConfig
from core.records import JudgeRequest
from core.rubric import Criterion
from drivers.serving import start_judge, stop_serving

TONE = Criterion(id="tone", text="The tone is warm.")


async def ask(config: RunConfig, num_requests: int) -> list[float | None]:
    judge = await start_judge(config)
    requests = [
        JudgeRequest(query_id=f"other {i}", prompt="Greet me.", response="Hello", criteria=(TONE,))
        for i in range(num_requests)
    ]
    replies = await asyncio.gather(*(judge.grade(r) for r in requests))
    await stop_serving(config.name)
    return [reply.verdicts[0].score for reply in replies]


if __name__ == "__main__":
    ray.init(address=sys.argv[1], log_to_driver=False)
    config = RunConfig.model_validate_json(sys.argv[2])
    sys.stdout.write(json.dumps(asyncio.run(ask(config, int(sys.argv[3])))) + "\n")
    ray.shutdown()
