"""A rubric for each query: from contrasted rollouts, from candidates, or from the prompt alone.

Each query goes its own way: its responses are sampled, the writer is shown them and asked until its
reply is right, and the query comes back with its rubric or with the reason why it has none.
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from core.config_served import ServedModelConfig
from core.evolution.rare_task import num_tokens
from core.grading.visible import visible_response
from core.model_calls import Sampling
from core.query import Query
from core.rubric import Criterion, Rubric
from core.rubric_building.checklist import (
    END,
    ChecklistRequest,
    checklist_prompt,
    read_checklist,
    with_universal_item,
)
from core.rubric_building.contrast import (
    DENSITY,
    ContrastRequest,
    contrast_prompt,
    different,
    read_contrast,
)
from drivers.asking import side_by_side
from drivers.asking_command import PlannedCalls, open_askers, spent, told, told_spent
from drivers.model_options import model_config
from drivers.rubrics_build_options import fixed_check
from drivers.rubrics_build_writing import Drop, Writer, Writing, writer_sampling
from drivers.rubrics_built import Built, split, with_rubric
from drivers.sampled_responses import (
    GivenResponses,
    Responses,
    ResponseSource,
    SampledResponses,
    read_responses,
)
from serve.prompts import load_prompt

_CONTRAST_SAMPLING = Sampling(temperature=0.2, max_tokens=8192)
"""As RARE's writer is asked during training; of initial rubrics the paper says nothing."""
_CHECKLIST_SAMPLING = Sampling(temperature=0.0, top_p=0.9, max_tokens=1024, stop=(END,))
"""As RLCF's released code asks for checklists."""

Criteria = tuple[Criterion, ...]
Prepare = Callable[[Query, Responses], Writing[Criteria] | Drop]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Way:
    """One way to a query's rubric."""

    name: str
    prepare: Prepare
    finish: Callable[[Criteria], Criteria]
    sampling: Sampling


def build_queries(
    args: argparse.Namespace, queries: Sequence[Query], writer: ServedModelConfig
) -> Built | None:
    """Return the queries with their rubrics; None for a dry run."""
    given = None if not args.responses else read_responses(args.responses)
    policies: list[tuple[str, ServedModelConfig]] = []
    if args.how != "direct" and given is None:
        policies = _policies(args)
    way = _way(args)
    told(_plans(args, queries, policies, given, (writer, way)))
    if args.dry_run:
        return None
    return asyncio.run(_build(args, queries, way, policies, given))


def _policies(args: argparse.Namespace) -> list[tuple[str, ServedModelConfig]]:
    first = model_config(args, "policy")
    more = [first.model_copy(update={"model": name}) for name in args.also]
    return [("policy", first), *((f"policy_{i}", c) for i, c in enumerate(more, start=2))]


def _way(args: argparse.Namespace) -> _Way:
    if args.how == "contrast":
        return _Way(
            name="contrast",
            prepare=_contrast(args),
            finish=lambda criteria: criteria,
            sampling=_CONTRAST_SAMPLING,
        )
    return _Way(
        name=args.how,
        prepare=_checklist(args),
        finish=lambda criteria: tuple(with_universal_item(criteria, args.universal)),
        sampling=_CHECKLIST_SAMPLING,
    )


async def _build(
    args: argparse.Namespace,
    queries: Sequence[Query],
    way: _Way,
    policies: Sequence[tuple[str, ServedModelConfig]],
    given: GivenResponses | None,
) -> Built:
    config = model_config(args, "writer")
    async with AsyncExitStack() as stack:
        askers = await open_askers(stack, [*policies, ("writer", config)], args.out)
        writer = Writer(askers["writer"], writer_sampling(config, way.sampling), args.tries)
        source: ResponseSource = given or GivenResponses({})
        if policies:
            models = [askers[role] for role, _ in policies]
            source = SampledResponses(models, _response_sampling(args), args.rollouts)

        async def one(query: Query) -> Query | Drop:
            responses = await source.responses(query)
            if responses.is_passing:
                return Drop(reason="no_response", detail=responses.failure, is_passing=True)
            prepared = way.prepare(query, responses)
            if isinstance(prepared, Drop):
                return prepared
            criteria = await writer.write(f"{query.id}/{way.name}", prepared)
            if isinstance(criteria, Drop):
                return criteria
            return _finished(query, way, criteria, config.model)

        made = await side_by_side(queries, one, unit="queries", shown=lambda: spent(askers))
        told_spent(askers)
    return split(queries, made)


def _finished(query: Query, way: _Way, criteria: Criteria, writer: str) -> Query | Drop:
    whole = way.finish(criteria)
    if not any(c.weight > 0 for c in whole):
        return Drop(reason="no_questions", detail="the writer found nothing to ask for")
    return with_rubric(query, Rubric(criteria=whole), way.name, writer)


# ---------------------------------------------------------------- the ways
def _contrast(args: argparse.Namespace) -> Prepare:
    template = load_prompt("build_contrast")
    density = None if args.no_density else DENSITY
    if args.density is not None:
        density = fixed_check(args.density)

    def prepare(query: Query, responses: Responses) -> Writing[Criteria] | Drop:
        shown = different(responses.visible)
        if len(shown) < 2:
            detail = f"{len(responses.texts)} responses, {len(shown)} different ones with text"
            more = f" ({responses.failure})" if responses.failure else ""
            return Drop(reason="no_contrast", detail=detail + more)
        request = ContrastRequest(
            prompt=query.prompt_text,
            responses=shown,
            min_criteria=args.min_criteria,
            max_criteria=args.max_criteria,
            max_points=args.max_points,
            density=density,
        )
        return Writing(
            prompt=lambda error: contrast_prompt(template, request, error),
            read=lambda reply: read_contrast(reply, request),
        )

    return prepare


def _checklist(args: argparse.Namespace) -> Prepare:
    template = load_prompt("build_checklist")
    shows_expert = args.how == "checklist" and not args.no_expert

    def prepare(query: Query, responses: Responses) -> Writing[Criteria] | Drop:
        candidates = tuple(text for text in responses.visible if text.strip())
        if args.how == "checklist" and not candidates:
            return Drop(reason="no_candidates", detail=responses.failure or "none with text")
        has_expert = shows_expert and query.anchor is not None
        expert = visible_response(query.anchor.response) if has_expert and query.anchor else None
        request = ChecklistRequest(
            prompt=query.prompt_text, candidates=candidates, expert=expert or None
        )
        return Writing(
            prompt=lambda error: checklist_prompt(template, request, error),
            read=lambda reply: read_checklist(reply, request),
        )

    return prepare


# ---------------------------------------------------------------- cost
def _response_sampling(args: argparse.Namespace) -> Sampling:
    return Sampling(
        temperature=args.temperature,
        top_p=args.top_p,
        max_tokens=args.max_response_tokens,
        seed=args.seed,
    )


def _plans(
    args: argparse.Namespace,
    queries: Sequence[Query],
    policies: Sequence[tuple[str, ServedModelConfig]],
    given: GivenResponses | None,
    writing: tuple[ServedModelConfig, _Way],
) -> list[PlannedCalls]:
    """Return an upper estimate: every response as long as it may be, every first try used."""
    asked = sum(num_tokens(q.prompt_text) for q in queries)
    plans: list[PlannedCalls] = []
    for i, (_, config) in enumerate(policies):
        each = len(range(i, args.rollouts, len(policies)))
        calls = each * len(queries)
        plans.append(
            PlannedCalls(
                does="responses",
                config=config,
                calls=calls,
                prompt_tokens=asked * each,
                completion_tokens=calls * args.max_response_tokens,
            )
        )
    shown = 0.0
    if policies:
        shown = len(queries) * args.rollouts * args.max_response_tokens
    elif given is not None:
        shown = sum(num_tokens(text) for q in queries for text in given.of(q).texts)
    config, way = writing
    name = "build_contrast" if args.how == "contrast" else "build_checklist"
    plans.append(
        PlannedCalls(
            does="rubrics",
            config=config,
            calls=len(queries),
            prompt_tokens=asked + shown + len(queries) * num_tokens(load_prompt(name)),
            completion_tokens=len(queries) * writer_sampling(config, way.sampling).max_tokens,
            tries=args.tries,
        )
    )
    return plans
