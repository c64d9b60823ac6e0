"""Judge calls over several replicas on real Ray Serve, with each of two request routers.

The deployment is the product's (its options, its ``JudgeReplica``, its client, its way to scale);
only the model is replaced: by the blocks that a prefix cache would hold, and by time. A replica
computes the tokens that its cache lacks one prompt after the other, at a fixed rate, and then
generates for a fixed time, side by side. Groups are drawn anew for every number of replicas; all of
one draw's responses arrive spread over a few seconds, and a third of the groups is rescored.
"""

import asyncio
import dataclasses
import functools
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Any

from pydantic import SecretStr
from ray import serve

from core.config_served import GradingConfig, JudgeConfig, ServedModelConfig
from core.records import Completion, JudgeReply, JudgeRequest, RescoreReply, RescoreRequest, Usage
from drivers.bench.prefix_cache_blocks import BlockCache
from drivers.bench.prefix_cache_engine import Encoder
from drivers.bench.prefix_cache_work import Group, make_groups
from drivers.served_clients import ServedJudge
from drivers.serving import app_name, deployment_options, scale
from serve.backends.base import CompletionBackend, CompletionRequest
from serve.identity import judge_identity
from serve.judge import JudgeReplica

ROUTERS = ("power_of_two", "affinity")
GROUPS_PER_REPLICA = 4
COMPUTED_PER_S = 8000.0
"""Prompt tokens that a replica's engine computes in a second."""
GENERATION_S = 0.5
_WINDOW_S = 2.0
"""Over which groups begin to arrive; a group's responses come within half of it."""
_RESCORED = 3
"""Every third group has criteria to replace."""
_LIMIT_S = 120.0

log = logging.getLogger("ratchet")


class BlockBackend:
    """A model that only keeps a prefix cache and time."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._cache = BlockCache()
        self._computes = asyncio.Lock()

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return a valid reply once prompt and reply would have been computed."""
        started = time.monotonic()
        ids = self._encoder.encode(request.prompt)
        async with self._computes:
            tokens = self._cache.admit(ids)
            await asyncio.sleep((tokens.prompt - tokens.cached) / COMPUTED_PER_S)
        await asyncio.sleep(GENERATION_S)
        return Completion(
            text=json.dumps(smallest(request.schema or {})),
            finish_reason="stop",
            model="blocks",
            usage=Usage(calls=1, prompt_tokens=tokens.prompt, cached_prompt_tokens=tokens.cached),
            seconds=time.monotonic() - started,
        )

    async def check_health(self) -> None:
        """It is always well."""

    async def close(self) -> None:
        """There is nothing to end."""


def smallest(schema: dict[str, Any]) -> Any:
    """Return a value that the schema of a judge's reply allows; entries of a list differ."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: smallest(each) for name, each in schema["properties"].items()}
    if schema["type"] == "array":
        return [_numbered(schema["items"], n) for n in range(schema["minItems"])]
    return "seen"


def _numbered(items: dict[str, Any], number: int) -> Any:
    """Return the n-th entry: its id is the n-th of those allowed."""
    value = smallest(items)
    for name in ("id", "rollout_id"):
        if name in value:
            value[name] = items["properties"][name]["enum"][number]
    return value


class BlockJudgeReplica(JudgeReplica):  # type: ignore[misc]
    """The judge's replica over blocks and time; a reply's ``judge`` says who answered."""

    async def __init__(self, config: GradingConfig, turn: tuple[str, str]) -> None:
        self._turn = turn
        await JudgeReplica.__init__(self, config, SecretStr(""), config.model)  # type: ignore[misc]

    async def start(
        self, config: ServedModelConfig, api_key: SecretStr, model: str, *, part: str
    ) -> CompletionBackend | None:
        """In place of ``Replica.start``: no engine."""
        self._config = config
        self._backend = BlockBackend(Encoder(model, *self._turn))
        return self._backend

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        """See ``Judge``."""
        return dataclasses.replace(await super().grade(request), judge=str(os.getpid()))

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        """See ``Judge``."""
        return dataclasses.replace(await super().rescore(request), judge=str(os.getpid()))


class _Seen:
    """What the replies of one arm said."""

    def __init__(self) -> None:
        self.usage = {"score": Usage(), "rescore": Usage()}
        self.calls: Counter[str] = Counter()
        self.computed: Counter[str] = Counter()
        self.seconds: list[float] = []

    def note(self, phase: str, reply: JudgeReply | RescoreReply, seconds: float) -> None:
        usage = reply.usage
        self.usage[phase] += usage
        self.calls[reply.judge] += 1
        self.computed[reply.judge] += usage.prompt_tokens - usage.cached_prompt_tokens
        self.seconds.append(seconds)

    def figures(self, num_replicas: int, took_s: float) -> dict[str, float]:
        both = self.usage["score"] + self.usage["rescore"]
        ordered = sorted(self.seconds)
        return {
            "score_share": _share(self.usage["score"]),
            "rescore_share": _share(self.usage["rescore"]),
            "computed_tokens": both.prompt_tokens - both.cached_prompt_tokens,
            "calls_largest_over_mean": _spread(self.calls, num_replicas),
            "computed_largest_over_mean": _spread(self.computed, num_replicas),
            "call_mean_s": round(mean(ordered), 3),
            "call_p95_s": round(ordered[int(0.95 * (len(ordered) - 1))], 3),
            "took_s": round(took_s, 2),
        }


def _share(usage: Usage) -> float:
    return round(usage.cached_prompt_tokens / max(1, usage.prompt_tokens), 4)


def _spread(counts: Counter[str], num_replicas: int) -> float:
    return round(max(counts.values()) * num_replicas / sum(counts.values()), 3)


async def measure_routing(
    folder: str, turn: tuple[str, str], counts: Sequence[int], seed: int
) -> dict[str, Any]:
    """Return the figures of each router at each number of replicas; Ray and Serve run already."""
    config = JudgeConfig(backend="vllm", model=folder, num_replicas=counts[0])
    handles = {router: await _deployed(router, config, turn) for router in ROUTERS}
    found: dict[str, Any] = {router: {} for router in ROUTERS}
    for num_replicas in counts:
        groups = make_groups(sum(counts) * GROUPS_PER_REPLICA, seed)
        first = sum(n for n in counts if n < num_replicas) * GROUPS_PER_REPLICA
        groups = groups[first : first + num_replicas * GROUPS_PER_REPLICA]
        sized = config.model_copy(update={"num_replicas": num_replicas})
        for router in ROUTERS:
            await scale(router, "judge", num_replicas, timeout_s=_LIMIT_S)
            judge = ServedJudge(handles[router], sized, judge_identity(config))
            async with asyncio.timeout(_LIMIT_S):
                figures = await _asked(judge, groups, num_replicas, seed)
            found[router][str(num_replicas)] = figures
            log.info("prefix_cache: %d replica(s), %s: %s", num_replicas, router, figures)
    return found


async def _deployed(router: str, config: JudgeConfig, turn: tuple[str, str]) -> Any:
    options = deployment_options("judge", config)
    if router == "power_of_two":  # Serve's own
        options.pop("request_router_config")
    deployment: Any = serve.deployment(BlockJudgeReplica)
    app = deployment.options(**options).bind(config, turn)
    target = serve.RunTarget(
        target=app,
        name=app_name(router, "judge"),
        route_prefix=None,
        external_scaler_enabled=True,
    )
    run = functools.partial(serve.run_many, [target])
    (handle,) = await asyncio.wait_for(asyncio.to_thread(run), _LIMIT_S)
    return handle


async def _asked(
    judge: ServedJudge, groups: Sequence[Group], num_replicas: int, seed: int
) -> dict[str, float]:
    seen = _Seen()
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number, group in enumerate(groups):
            chance = random.Random(f"{seed} {group.query_id}")
            is_rescored = number % _RESCORED == 0
            tasks.create_task(_group(judge, group, chance, seen, is_rescored=is_rescored))
    if any(judge.totals().failures.values()):
        raise RuntimeError(f"got failed verdicts {judge.totals().failures}, wanted none")
    return seen.figures(num_replicas, time.monotonic() - began)


async def _group(
    judge: ServedJudge, group: Group, chance: random.Random, seen: _Seen, *, is_rescored: bool
) -> None:
    """Let a group's responses arrive and be scored, then be rescored at once."""
    begins = chance.uniform(0.0, _WINDOW_S)
    async with asyncio.TaskGroup() as tasks:
        for request in group.judge_requests():
            delay_s = begins + chance.uniform(0.0, _WINDOW_S / 2)
            tasks.create_task(_grade(judge, request, delay_s, seen))
    if is_rescored:
        began = time.monotonic()
        seen.note("rescore", await judge.rescore(group.rescore_request()), time.monotonic() - began)


async def _grade(judge: ServedJudge, request: JudgeRequest, delay_s: float, seen: _Seen) -> None:
    await asyncio.sleep(delay_s)
    began = time.monotonic()
    seen.note("score", await judge.grade(request), time.monotonic() - began)
