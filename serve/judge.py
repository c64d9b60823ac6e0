"""The judge: scores one response by its criteria, or all responses of a group by some.

What code can decide is decided by code; the rest goes to the model in one call, or with
``per_criterion`` in one call a criterion, side by side. A reply from which some verdict cannot be
read is asked for once more, with the error told (and without enforced structure when it ran in
circles under it); what is missing then is a failure with a kind. Nothing that a model or an
endpoint does raises, and no failure is a score.
For a policy that thinks, only the part after its reasoning is judged. The judge keeps nothing
between calls: verdicts are remembered by the caller.
``JudgeReplica`` is the class that Ray Serve runs.
"""

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from core.config_served import GradingConfig
from core.grading.prompt import asked_names, judge_prompt, repair_prompt, rescore_prompt
from core.grading.reply import read_verdicts
from core.grading.reply_text import runs_in_circles
from core.grading.rescore import read_rescore
from core.grading.schema import judge_schema, rescore_schema
from core.grading.visible import visible_response
from core.records import (
    Completion,
    FailureKind,
    JudgeReply,
    JudgeRequest,
    RescoreReply,
    RescoreRequest,
    Usage,
    Verdict,
)
from core.rubric import Criterion
from core.templates import fenced, fill
from serve.backends.base import CompletionBackend, CompletionRequest
from serve.backends.rules import RulesBackend
from serve.identity import REPAIR_TEMPLATE, RESCORE_TEMPLATE, judge_identity, judge_template
from serve.prompts import load_prompt
from serve.replica import Replica

_REPAIRABLE: frozenset[FailureKind] = frozenset(
    {"missing", "unparsable", "out_of_scale", "conflict", "truncated"}
)
"""Failures of a reply's form; asking again may mend them."""


class Judge:
    """Grades responses; ``backend`` is the model, None judges by rules alone."""

    def __init__(self, config: GradingConfig, backend: CompletionBackend | None = None) -> None:
        self._config = config
        self._backend = backend
        self._rules = RulesBackend()
        self._template = load_prompt(judge_template(config))
        self._rescore_template = load_prompt(RESCORE_TEMPLATE)
        self._repair_template = load_prompt(REPAIR_TEMPLATE)
        # A call that waits for its turn must not use up its own time limit.
        self._at_once = asyncio.Semaphore(config.calls_at_once)
        self.identity = judge_identity(config)

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        """Return a verdict for each criterion, in their order."""
        started = time.monotonic()
        request = dataclasses.replace(request, response=visible_response(request.response))
        by_rule, by_model = self._split(request.criteria)
        verdicts = {c.id: self._rules.decide(c, request.response, request.prompt) for c in by_rule}
        usage = Usage()
        if by_model:
            answered, usage = await self._ask_all(dataclasses.replace(request, criteria=by_model))
            verdicts |= {v.criterion_id: v for v in answered}
        return JudgeReply(
            verdicts=tuple(verdicts[c.id] for c in request.criteria),
            judge=self.identity,
            usage=usage,
            seconds=time.monotonic() - started,
        )

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        """Return verdicts of every response on every criterion, in their order."""
        started = time.monotonic()
        responses = tuple(visible_response(r) for r in request.responses)
        request = dataclasses.replace(request, responses=responses)
        by_rule, by_model = self._split(request.criteria)
        rows = [
            {c.id: self._rules.decide(c, response, request.prompt) for c in by_rule}
            for response in responses
        ]
        usage = Usage()
        if by_model and responses:
            asked = dataclasses.replace(request, criteria=by_model)
            answered, usage = await self._ask_jointly(asked)
            for row, verdicts in zip(rows, answered, strict=True):
                row |= {v.criterion_id: v for v in verdicts}
        return RescoreReply(
            verdicts=tuple(tuple(row[c.id] for c in request.criteria) for row in rows),
            judge=self.identity,
            usage=usage,
            seconds=time.monotonic() - started,
        )

    def _split(
        self, criteria: Sequence[Criterion]
    ) -> tuple[tuple[Criterion, ...], tuple[Criterion, ...]]:
        """Return the criteria that code decides and those that the model does."""
        by_rule = [c for c in criteria if self._backend is None or self._rules.can_decide(c)]
        return tuple(by_rule), tuple(c for c in criteria if c not in by_rule)

    async def _ask_all(self, request: JudgeRequest) -> tuple[tuple[Verdict, ...], Usage]:
        """Ask the model for all criteria of ``request``, in one call or in one for each."""
        if not self._config.per_criterion:
            return await self._ask(request)
        answers = await asyncio.gather(*(self._ask_alone(request, c) for c in request.criteria))
        return (
            tuple(v for verdicts, _ in answers for v in verdicts),
            sum((usage for _, usage in answers), start=Usage()),
        )

    async def _ask_alone(
        self, request: JudgeRequest, criterion: Criterion
    ) -> tuple[tuple[Verdict, ...], Usage]:
        async with self._at_once:
            return await self._ask(dataclasses.replace(request, criteria=(criterion,)))

    async def _ask(self, request: JudgeRequest) -> tuple[tuple[Verdict, ...], Usage]:
        """Ask the model once, and once more for what is missing."""
        style = self._config.template
        prompt = judge_prompt(self._template, request, style=style)
        schema = judge_schema(request.criteria, style)
        first = await self._complete(prompt, schema)
        verdicts = self._read(first, request)
        if not any(v.failure in _REPAIRABLE for v in verdicts):
            return verdicts, first.usage
        prompt = repair_prompt(self._repair_template, prompt, request, verdicts, style=style)
        names = zip(asked_names(request.criteria, style), verdicts, strict=True)
        missing = [name for name, v in names if v.failure is not None]
        schema = schema | {
            "properties": {n: schema["properties"][n] for n in missing},
            "required": missing,
        }
        again = await self._complete(prompt, None if runs_in_circles(first.text) else schema)
        merged = map(_first_scored, verdicts, self._read(again, request))
        return tuple(merged), first.usage + again.usage

    async def _complete(self, prompt: str, schema: dict[str, Any] | None) -> Completion:
        assert self._backend is not None
        return await self._backend.complete(CompletionRequest(prompt=prompt, schema=schema))

    def _read(self, reply: Completion, request: JudgeRequest) -> tuple[Verdict, ...]:
        if reply.failure is not None:
            return tuple(failed_verdict(c, reply.failure, reply.detail) for c in request.criteria)
        return read_verdicts(
            reply.text, request.criteria, reply.finish_reason, template=self._config.template
        )

    async def _ask_jointly(
        self, request: RescoreRequest
    ) -> tuple[tuple[tuple[Verdict, ...], ...], Usage]:
        """Ask the model for all responses at once, and once more if a cell is missing."""
        prompt = rescore_prompt(self._rescore_template, request)
        schema = rescore_schema(request.criteria, len(request.responses))
        first = await self._complete(prompt, schema)
        rows = _read_jointly(first, request)
        failures = [
            f"- response R{index}, criterion {v.criterion_id}: {v.failure}. {v.reason}"
            for index, row in enumerate(rows)
            for v in row
            if v.failure in _REPAIRABLE
        ]
        if not failures:
            return rows, first.usage
        error = fenced("\n".join(failures), "errors")
        prompt = fill(
            self._repair_template, {"task": prompt, "error": error, "missing": "criteria"}
        )
        again = await self._complete(prompt, None if runs_in_circles(first.text) else schema)
        both = zip(rows, _read_jointly(again, request), strict=True)
        merged = tuple(tuple(map(_first_scored, row, new)) for row, new in both)
        return merged, first.usage + again.usage


def _read_jointly(reply: Completion, request: RescoreRequest) -> tuple[tuple[Verdict, ...], ...]:
    count = len(request.responses)
    if reply.failure is not None:
        row = tuple(failed_verdict(c, reply.failure, reply.detail) for c in request.criteria)
        return (row,) * count
    return read_rescore(reply.text, request.criteria, count, reply.finish_reason)


def failed_verdict(criterion: Criterion, kind: FailureKind, reason: str) -> Verdict:
    """Return the verdict that there is none."""
    return Verdict(
        criterion_id=criterion.id, score=None, max=criterion.max, reason=reason, failure=kind
    )


def _first_scored(first: Verdict, again: Verdict) -> Verdict:
    """A score of the first reply stands; a second failure is the one reported."""
    return first if first.score is not None else again


class JudgeReplica(Replica):
    """One replica of the deployment ``Judge``."""

    async def __init__(self, config: GradingConfig, api_key: SecretStr, model: str) -> None:
        backend = await self.start(config, api_key, model, part="judge")
        self._judge = Judge(config, backend)

    async def grade(self, request: JudgeRequest) -> JudgeReply:
        """See ``Judge``."""
        return await self._judge.grade(request)

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        """See ``Judge``."""
        return await self._judge.rescore(request)

    async def describe(self) -> tuple[str, str]:
        """Return the config it runs, as JSON, and its identity."""
        return self.config_json(), self._judge.identity
