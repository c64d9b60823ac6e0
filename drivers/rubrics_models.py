"""Asks models about a run's rubrics: its judge once more, or a model for the faults of criteria.

The backend runs in this process, without Ray Serve and beside a run that may be going on; its calls
are limited by the config's ``max_concurrency``. What will be asked is said before the first call,
and a progress bar appears where it takes longer than ten seconds. A call that fails is counted as a
failure with its reason and is never a score or a label.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.config_served import JudgeConfig, ServedModelConfig
from core.errors import ConfigError
from core.evolution.rift import RubricLabels, label_prompt, label_schema, read_labels, unlabelled
from core.records import JudgeRequest, Verdict
from core.rubric import Rubric
from drivers.asking import model_backend, model_name, say, side_by_side
from serve.backends.base import CompletionRequest
from serve.judge import Judge
from serve.prompts import load_prompt


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
    say(f"asking the judge again: {model_name(config)}, {len(asked)} rollouts, {num_calls} calls")
    return asyncio.run(_judge_again(config, asked))


def _num_calls(config: JudgeConfig, request: JudgeRequest) -> int:
    if config.backend == "rules":
        return 0
    return len(request.criteria) if config.per_criterion else 1


async def _judge_again(
    config: JudgeConfig, asked: Sequence[Asked]
) -> dict[tuple[str, str], list[tuple[Verdict, Verdict]]]:
    pairs: dict[tuple[str, str], list[tuple[Verdict, Verdict]]] = {}
    async with model_backend(config) as backend:
        judge = Judge(config, backend)
        replies = await side_by_side(
            asked,
            lambda a: judge.grade(a.request),
            unit="rollouts",
            at_once=config.max_concurrency,
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
    say(f"labelling: {model_name(config)}, {len(rubrics)} rubrics, {len(rubrics)} calls")
    return asyncio.run(_label(config, rubrics))


async def _label(config: ServedModelConfig, rubrics: Sequence[Unlabelled]) -> list[RubricLabels]:
    template = load_prompt("rift_label")
    async with model_backend(config) as backend:
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

        return await side_by_side(rubrics, one, unit="rubrics", at_once=config.max_concurrency)
