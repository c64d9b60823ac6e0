"""Asks models for an analysis: choices that are asked again until they can be read, and a judge
whose replies are kept.

All replies lie in files of the output folder, one a role, so that a stopped analysis goes on where
it was. How many calls come is said before the first; a reply that never becomes readable is missing
and counted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from core.analysis.choices import choice_schema, read_choices
from core.config_served import GradingConfig, ServedModelConfig
from core.model_calls import ModelCall, Sampling, user_call
from core.query import Message
from core.records import Completion
from drivers.asking import Asker, asking, model_name, say, side_by_side
from serve.backends.base import CompletionRequest

T = TypeVar("T")

_TRIES = 3

Roles = Mapping[str, ServedModelConfig]
"""The models that were given, by role."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question with named answers."""

    key: str
    prompt: str
    fields: Mapping[str, Sequence[str]]


def ask_choices(
    config: ServedModelConfig, path: Path, questions: Sequence[Question], what: str
) -> dict[str, dict[str, str] | None]:
    """Return the answers by the questions' keys; None where no reply could be read."""
    say(f"{what}: {model_name(config)}, {len(questions)} calls (kept replies cost nothing)")
    return asyncio.run(_ask_choices(config, path, questions))


async def _ask_choices(
    config: ServedModelConfig, path: Path, questions: Sequence[Question]
) -> dict[str, dict[str, str] | None]:
    async with asking(config, path) as asker:

        async def one(question: Question) -> dict[str, str] | None:
            return await _answer(asker, question)

        answers = await side_by_side(
            questions, one, unit="questions", at_once=config.max_concurrency, shown=asker.spent
        )
    return {q.key: a for q, a in zip(questions, answers, strict=True)}


async def _answer(asker: Asker, question: Question) -> dict[str, str] | None:
    schema = choice_schema(question.fields)
    for attempt in range(_TRIES):
        # Another seed: the same call would only bring the same unreadable reply back.
        sampling = Sampling(
            temperature=asker.config.temperature,
            max_tokens=asker.config.max_tokens,
            seed=asker.config.seed + attempt,
        )
        call = user_call(question.prompt, sampling=sampling, schema=schema)
        reply = await asker.ask(f"{question.key} try {attempt + 1}", call)
        if reply.failure is not None:
            return None
        answer = read_choices(reply.text, reply.finish_reason, question.fields)
        if isinstance(answer, dict):
            return answer
    return None


class KeptBackend:
    """``serve.backends.base.CompletionBackend`` over an ``Asker``: a judge whose replies are
    kept."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the kept reply to this very request, or a new one."""
        call = ModelCall(
            messages=tuple(Message(**m) for m in request.conversation),
            sampling=request.sampling_under(self._asker.config),
            schema=request.schema,
        )
        return await self._asker.ask("judge", call)

    async def check_health(self) -> None:
        """Nothing: its asker's backend is looked after by ``asking``."""

    async def close(self) -> None:
        """Nothing, as above."""


def grading_config(config: ServedModelConfig) -> GradingConfig:
    """Return the config of a judge that is asked by short ids."""
    fields: dict[str, Any] = config.model_dump()
    return GradingConfig.model_validate(fields)


def evenly(items: Sequence[T], limit: int) -> list[T]:
    """Return up to ``limit`` of the items, evenly over them; 0 is no limit."""
    if not limit or limit >= len(items):
        return list(items)
    return [items[(2 * i + 1) * len(items) // (2 * limit)] for i in range(limit)]
