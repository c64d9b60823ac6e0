"""Responses of one or several models to a query, sampled by a command or given in a file.

The i-th response to a query is drawn with the i-th seed, by the models in turn, so that the same
command asks for the same ones again. A response that an endpoint could not give now is told
apart (``is_passing``) from one that the model did not give: the first may come with the next start.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from core.errors import ConfigError
from core.grading.visible import visible_response
from core.model_calls import ModelCall, Sampling
from core.query import Query
from core.records import PASSING, Completion
from core.rows import Row
from drivers.asking import Asker
from drivers.jsonl_files import read_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Responses:
    """What there is for one query."""

    texts: tuple[str, ...] = ()
    """As the models wrote them, reasoning included."""
    failure: str = ""
    """Why one is missing; empty when none is."""
    is_passing: bool = False
    """Whether one that is missing may come with another start."""

    @property
    def visible(self) -> tuple[str, ...]:
        """The responses as they are judged and shown: without reasoning."""
        return tuple(visible_response(text) for text in self.texts)


class ResponseSource(Protocol):
    """Where a query's responses come from."""

    async def responses(self, query: Query) -> Responses:
        """Return the query's responses."""
        ...


class SampledResponses:
    """Asks models; ``count`` responses a query, seeds from ``sampling.seed`` on."""

    def __init__(self, askers: Sequence[Asker], sampling: Sampling, count: int) -> None:
        self._askers = askers
        self._sampling = sampling
        self._count = count

    async def responses(self, query: Query) -> Responses:
        """Return the responses that came, in the order of their seeds."""
        replies = await asyncio.gather(*(self._ask(query, i) for i in range(self._count)))
        missing = [r for r in replies if r.failure is not None]
        passing = [r for r in missing if r.failure in PASSING]
        first = next(iter(passing or missing), None)
        return Responses(
            texts=tuple(r.text for r in replies if r.failure is None),
            failure="" if first is None else f"{first.failure}: {first.detail}",
            is_passing=bool(passing),
        )

    async def _ask(self, query: Query, number: int) -> Completion:
        call = ModelCall(
            messages=query.messages,
            sampling=replace(self._sampling, seed=self._sampling.seed + number),
        )
        asker = self._askers[number % len(self._askers)]
        return await asker.ask(f"{query.id}/{number}", call)


class GivenResponses:
    """The responses of a file."""

    def __init__(self, by_id: Mapping[str, tuple[str, ...]]) -> None:
        self._by_id = by_id

    async def responses(self, query: Query) -> Responses:
        """Return the query's responses; none for a query that the file does not name."""
        return self.of(query)

    def of(self, query: Query) -> Responses:
        """As ``responses``, at once."""
        return Responses(texts=self._by_id.get(query.id, ()))


def read_responses(path: Path) -> GivenResponses:
    """Read a JSONL file of ``{"id", "response"}`` or ``{"id", "responses": [...]}``, several lines
    a query allowed; the rollouts of a run (``rollouts/step_N.jsonl``) are such a file."""
    if not path.is_file():
        raise ConfigError(f"got no file {path}, wanted a JSONL file of responses")
    by_id: dict[str, list[str]] = {}
    for number, row in enumerate(read_rows(path), start=1):
        query_id = row.get("id", row.get("query_id"))
        texts = _texts(row)
        if not isinstance(query_id, str) or texts is None:
            raise ConfigError(
                f"{path}:{number}: got {str(row)[:80]}, wanted the id of a query with its response "
                'or list of responses: {"id": "q1", "response": "..."}'
            )
        by_id.setdefault(query_id, []).extend(texts)
    return GivenResponses({i: tuple(texts) for i, texts in by_id.items()})


def _texts(row: Row) -> list[str] | None:
    texts = row.get("responses", [row.get("response")])
    is_whole = isinstance(texts, list) and all(isinstance(t, str) for t in texts)
    return texts if is_whole else None
