"""Asks models about a run's rubrics: its judge once more, or a model for the faults of criteria.

The backend runs in this process, without Ray Serve and beside a run that may be going on; its calls
are limited by the config's ``max_concurrency``. What will be asked is said before the first call,
and a progress bar appears where it takes longer than ten seconds. A call that fails is counted as a
failure with its reason and is never a score or a label.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import SecretStr
from tqdm import tqdm

from core.config_served import JudgeConfig, ServedModelConfig
from core.errors import ConfigError
from core.evolution.rift import RubricLabels, label_prompt, label_schema, read_labels, unlabelled
from core.records import JudgeRequest, Verdict
from core.rubric import Rubric
from drivers.gathered import gathered
from drivers.packaged_model import resolve_model
from serve.backends.base import CompletionBackend, CompletionRequest, read_api_key
from serve.judge import Judge
from serve.prompts import load_prompt

T = TypeVar("T")
R = TypeVar("R")

_BAR_AFTER_S = 10.0
_CLOSE_S = 30.0
_AT_ONCE = 64
"""Most requests under way, where the config allows more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A rollout to be judged once more, with the verdicts that it has."""

    rubric_id: str
    request: JudgeRequest
    before: Mapping[str, Verdict]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unlabelled:
    """A rubric to be labelled, with what the model is shown."""

    rubric: Rubric
    prompts: Sequence[str]
    responses: Sequence[str]
    full_rates: Mapping[str, float | None]


def judge_again(
    config: JudgeConfig, asked: Sequence[Asked]
) -> dict[tuple[str, str], list[tuple[Verdict, Verdict]]]:
    """Return the verdicts (before, again) by rubric id and criterion id."""
    num_calls = sum(_num_calls(config, a.request) for a in asked)
    _say(f"asking the judge again: {_of(config)}, {len(asked)} rollouts, {num_calls} calls")
    return asyncio.run(_judge_again(config, asked))


def _num_calls(config: JudgeConfig, request: JudgeRequest) -> int:
    if config.backend == "rules":
        return 0
    return len(request.criteria) if config.per_criterion else 1


async def _judge_again(
    config: JudgeConfig, asked: Sequence[Asked]
) -> dict[tuple[str, str], list[tuple[Verdict, Verdict]]]:
    pairs: dict[tuple[str, str], list[tuple[Verdict, Verdict]]] = {}
    async with _backend(config) as backend:
        judge = Judge(config, backend)
        replies = await _all(
            asked, lambda a: judge.grade(a.request), config.max_concurrency, "rollouts"
        )
    for one, reply in zip(asked, replies, strict=True):
        for criterion, verdict in zip(one.request.criteria, reply.verdicts, strict=True):
            pair = (one.before[criterion.id], verdict)
            pairs.setdefault((one.rubric_id, criterion.id), []).append(pair)
    return pairs


def label(config: ServedModelConfig, rubrics: Sequence[Unlabelled]) -> list[RubricLabels]:
    """Return the labels of each rubric, one call each."""
    if config.backend == "rules":
        raise ConfigError(
            "got the run's writer backend=rules, which cannot label criteria, wanted a model: give "
            "--model NAME (and --base-url URL for an endpoint of your own)"
        )
    _say(f"labelling: {_of(config)}, {len(rubrics)} rubrics, {len(rubrics)} calls")
    return asyncio.run(_label(config, rubrics))


async def _label(config: ServedModelConfig, rubrics: Sequence[Unlabelled]) -> list[RubricLabels]:
    template = load_prompt("rift_label")
    async with _backend(config) as backend:
        assert backend is not None, "rules are refused before"

        async def one(asked: Unlabelled) -> RubricLabels:
            prompt = label_prompt(
                template, asked.rubric, asked.prompts, asked.responses, asked.full_rates
            )
            request = CompletionRequest(prompt=prompt, schema=label_schema(asked.rubric))
            reply = await backend.complete(request)
            if reply.failure is not None:
                return unlabelled(asked.rubric, reply.failure, reply.detail)
            return read_labels(reply.text, reply.finish_reason, asked.rubric)

        return await _all(rubrics, one, config.max_concurrency, "rubrics")


@contextlib.asynccontextmanager
async def _backend(config: ServedModelConfig) -> AsyncIterator[CompletionBackend | None]:
    backend = await _start(config)
    try:
        yield backend
    finally:
        if backend is not None:
            with contextlib.suppress(TimeoutError):  # the process ends soon, and the replies are in
                await asyncio.wait_for(backend.close(), _CLOSE_S)


async def _start(config: ServedModelConfig) -> CompletionBackend | None:
    if config.backend == "rules":
        return None
    if config.backend == "vllm":
        from serve.backends.vllm import start_vllm_backend

        return await start_vllm_backend(
            config.model_copy(update={"model": resolve_model(config.model)})
        )
    key: SecretStr = read_api_key(config)
    from serve.backends.openai import OpenAIBackend
    from serve.limits import CallLimiter, CallSlots, endpoint_of

    slots = CallSlots(CallLimiter(endpoint_of(config)), "rubrics", config.max_concurrency)
    return OpenAIBackend(config, key, slots)


async def _all(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], at_once: int, unit: str
) -> list[R]:
    """Do the work for each item, a bounded number side by side; return the results in order."""
    gate = asyncio.Semaphore(min(at_once, _AT_ONCE))
    bar = tqdm(total=len(items), unit=f" {unit}", delay=_BAR_AFTER_S, file=sys.stderr)

    async def one(item: T) -> R:
        async with gate:
            result = await work(item)
        bar.update(1)
        return result

    try:
        return await gathered(one(item) for item in items)
    finally:
        bar.close()


def _of(config: ServedModelConfig) -> str:
    return "rules" if config.backend == "rules" else f"{config.backend} {config.model}"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
