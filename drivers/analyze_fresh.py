"""Newly sampled rollouts under old and new criteria (RARE appendix C).

Two checkpoints answer the queries of a run's first-visit replacements, each query with the same
seeds at both; then a judge scores old and new criteria of an event jointly on a checkpoint's
responses. Everything is kept, so that a stopped analysis goes on where it was. One policy is loaded
at a time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.analysis.evidence import ReplacementEvent
from core.analysis.fresh import (
    CHECKPOINTS,
    FreshEvent,
    fresh_event,
    fresh_tables,
    joint_criteria,
    recurring,
)
from core.config_served import ServedModelConfig
from core.model_calls import ModelCall, Sampling
from core.query import Query
from core.records import RescoreRequest
from core.rows import Row
from drivers.analyze_models import KeptBackend, Roles, evenly, grading_config
from drivers.analyze_read import AnalysedRun
from drivers.asking import asking, model_name, say, side_by_side
from drivers.queries import sampling_seed
from serve.judge import Judge

ROLES = ("policy-before", "policy-after", "judge")

_Responses = Mapping[str, tuple[str, ...] | None]
"""[G] by query id; None where one did not come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FreshDraws:
    """How many rollouts of how many events."""

    num_rollouts: int
    """Of a query at each checkpoint; 0 is the run's group size."""
    max_events: int
    """Evenly over the run; 0 is all of them."""


def fresh_rollouts(run: AnalysedRun, roles: Roles, folder: Path, draws: FreshDraws) -> Row:
    """Sample, judge and summarise; NotInFiles when the run has no event for it."""
    events = evenly(recurring(run.evidence), draws.max_events)
    ids = list(dict.fromkeys(e.group.query_id for e in events))
    queries = [run.queries.query(i) for i in ids]
    count = draws.num_rollouts or run.config.sampling.group_size
    found: dict[str, list[FreshEvent | None]] = {}
    for checkpoint in CHECKPOINTS:
        policy = roles[f"policy-{checkpoint}"]
        say(f"{checkpoint}: {model_name(policy)}, {len(queries) * count} responses")
        path = folder / f"fresh_{checkpoint}.jsonl"
        responses = asyncio.run(_sampled(run, policy, path, queries, count))
        say(f"judging: {model_name(roles['judge'])}, {len(events)} events")
        judged = folder / f"fresh_judge_{checkpoint}.jsonl"
        found[checkpoint] = asyncio.run(_judged(roles["judge"], judged, run, events, responses))
    return {"rollouts_a_query": count, "queries": len(queries), **fresh_tables(found)}


async def _sampled(
    run: AnalysedRun, policy: ServedModelConfig, path: Path, queries: Sequence[Query], count: int
) -> _Responses:
    """Draw the responses of one checkpoint; the seed of each is the same at both."""
    places = [(query, index) for query in queries for index in range(count)]
    async with asking(policy, path) as asker:

        async def one(place: tuple[Query, int]) -> str | None:
            query, index = place
            sampling = Sampling(
                temperature=run.config.sampling.temperature,
                max_tokens=run.config.sampling.max_new_tokens,
                seed=sampling_seed(run.config.seed, query.id, 0, index),
            )
            call = ModelCall(messages=query.messages, sampling=sampling)
            reply = await asker.ask(f"{query.id} rollout {index}", call)
            return None if reply.failure is not None else reply.text

        texts = await side_by_side(
            places, one, unit="responses", at_once=policy.max_concurrency, shown=asker.spent
        )
    by_query: dict[str, list[str | None]] = {}
    for (query, _), text in zip(places, texts, strict=True):
        by_query.setdefault(query.id, []).append(text)
    return {i: _all_there(found) for i, found in by_query.items()}


def _all_there(texts: Sequence[str | None]) -> tuple[str, ...] | None:
    there = tuple(t for t in texts if t is not None)
    return there if len(there) == len(texts) else None


async def _judged(
    config: ServedModelConfig,
    path: Path,
    run: AnalysedRun,
    events: Sequence[ReplacementEvent],
    responses: _Responses,
) -> list[FreshEvent | None]:
    async with asking(config, path) as asker:
        judge = Judge(grading_config(config), KeptBackend(asker))

        async def one(event: ReplacementEvent) -> FreshEvent | None:
            texts = responses[event.group.query_id]
            if texts is None:
                return None
            request = RescoreRequest(
                query_id=event.group.query_id,
                prompt=run.queries.query(event.group.query_id).prompt_text,
                responses=texts,
                criteria=joint_criteria(event),
            )
            reply = await judge.rescore(request)
            return fresh_event(event, reply.verdicts)

        return await side_by_side(
            events, one, unit="events", at_once=config.max_concurrency, shown=asker.spent
        )
