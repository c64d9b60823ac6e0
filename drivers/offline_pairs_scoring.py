"""Scores two responses to a query on each item of its checklist, and makes a pair of them.

An item's samples are calls of their own with the seeds 0, 1, ..., since a kept reply answers one
call. A sample that the judge did not give (cut, refused) is one that cannot be read; one that an
endpoint could not give now makes the item missing for this time, so that a mean over fewer samples
never passes for the whole. An item with a rule is decided by code too (RLCF's verifiers).
A response without an answer behind its reasoning has 0 on each item, as in RLCF's released code.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from core.checklist_scores import (
    ITEM_SAMPLING,
    MAX_PROMPT_TOKENS,
    checklist_reward,
    item_prompt,
    item_score,
    with_verifier,
)
from core.evolution.rare_task import num_tokens
from core.grading.visible import visible_response
from core.model_calls import user_call
from core.preference_pairs import NoPair, PreferencePair, ScoredResponse, preference_pair
from core.query import Query
from core.records import PASSING, Completion
from core.rows import Row
from core.rubric import Criterion
from core.rules.verifiers import decide
from drivers.asking import Asker
from drivers.sampled_responses import ResponseSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """What became of one query."""

    query: Query
    pair: PreferencePair | NoPair | str
    """The pair, or why there is none: beside ``NoPair``, ``no_response``."""
    responses: tuple[ScoredResponse, ...] = ()
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """By place of the response and item id, why a score is missing."""
    is_passing: bool = False
    """Whether the same command, started again, may do better."""

    def scores_row(self) -> Row:
        """Return a line of scores.jsonl."""
        return {
            "id": self.query.id,
            "weights": {c.id: c.weight for c in self.query.rubric.criteria},
            "responses": [
                {"response": r.text, "scores": dict(r.scores), "reward": r.reward}
                for r in self.responses
            ],
            "missing": self.missing,
        }

    def drop_row(self) -> Row:
        """Return a line of dropped.jsonl; only of a query without a pair."""
        detail = "; ".join(f"{place}: {why}" for place, why in self.missing.items())
        return {"id": self.query.id, "reason": str(self.pair), "detail": detail[:1000]}


@dataclass(frozen=True, slots=True)
class _Item:
    """An item's score, or why there is none."""

    score: float | None
    why: str = ""
    is_passing: bool = False


class ItemScorer:
    """The judge, asked for numbers."""

    def __init__(self, asker: Asker, template: str, samples: int) -> None:
        self._asker = asker
        self._template = template
        self._samples = samples

    async def score(self, query: Query, place: int, text: str, item: Criterion) -> _Item:
        """Return the score of the ``place``-th response on one item."""
        response = visible_response(text)
        if not response.strip():
            return _Item(0.0)
        prompt = item_prompt(self._template, query.prompt_text, response, item.text)
        if num_tokens(prompt) > MAX_PROMPT_TOKENS:
            return _Item(None, f"a prompt of more than {MAX_PROMPT_TOKENS} tokens")
        key = f"{query.id}/{place}/{item.id}"
        replies = await asyncio.gather(
            *(self._sample(key, prompt, i) for i in range(self._samples))
        )
        failed = [r for r in replies if r.failure is not None]
        passing = next((r for r in failed if r.failure in PASSING), None)
        if passing is not None:
            return _Item(None, f"{passing.failure}: {passing.detail}", is_passing=True)
        judged = item_score([r.text for r in replies if r.failure is None])
        if judged is None:
            return _Item(None, f"none of {len(replies)} samples is a number")
        return _Item(with_verifier(judged, _is_met(item, response, query)))

    async def _sample(self, key: str, prompt: str, number: int) -> Completion:
        call = user_call(prompt, sampling=replace(ITEM_SAMPLING, seed=number))
        return await self._asker.ask(f"{key}/{number}", call)


async def score_pair(query: Query, source: ResponseSource, scorer: ItemScorer) -> Scored:
    """Return the scored pair of a query; equal responses are not scored."""
    found = await source.responses(query)
    if len(found.texts) < 2:
        why = {"response": found.failure}
        return Scored(query=query, pair="no_response", missing=why, is_passing=found.is_passing)
    first, second = found.texts[:2]
    if first == second:
        return Scored(query=query, pair="same_response")
    items = query.rubric.criteria
    both = [(place, text, i) for place, text in enumerate((first, second)) for i in items]
    scored = await asyncio.gather(*(scorer.score(query, *one) for one in both))
    by_response = (scored[: len(items)], scored[len(items) :])
    responses = tuple(
        _response(text, items, found_items)
        for text, found_items in zip((first, second), by_response, strict=True)
    )
    missing = {
        f"{place}/{item.id}": one.why
        for place, found_items in enumerate(by_response)
        for item, one in zip(items, found_items, strict=True)
        if one.score is None
    }
    return Scored(
        query=query,
        pair=preference_pair(query.id, query.messages, *responses),
        responses=responses,
        missing=missing,
        is_passing=any(one.is_passing for one in scored),
    )


def _response(text: str, items: tuple[Criterion, ...], scored: Any) -> ScoredResponse:
    scores: list[float | None] = [one.score for one in scored]
    return ScoredResponse(
        text=text,
        scores=dict(zip((i.id for i in items), scores, strict=True)),
        reward=checklist_reward([i.weight for i in items], scores),
    )


def _is_met(item: Criterion, response: str, query: Query) -> bool | None:
    """Return what code says about an item that carries a rule; None where it cannot."""
    if item.rule is None:
        return None
    verdict = decide(item, response, query.prompt_text)
    return None if verdict.score is None else verdict.is_full
