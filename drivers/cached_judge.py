"""A judge behind the verdict cache: only what was never judged before is asked.

A verdict is looked up under everything that decides it (``core/grading/cache_key.py``), so after an
edit of k criteria exactly those k are asked for again, and another judge or another sampling finds
nothing of this one's. Failures are handed on and never kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.grading.cache_key import verdict_key
from core.grading.visible import visible_response
from core.query import Query
from core.records import JudgeRequest, Verdict
from core.rubric import Criterion
from drivers.ports import JudgeClient, Store
from drivers.whereabouts import at


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The verdicts on one response."""

    verdicts: Mapping[str, Verdict]
    """By criterion id, in the order asked."""
    num_cached: int
    seconds: float | None
    """Of the judge's call; None when there was none."""


class CachedJudge:
    """Judges one response at a time, through the store's cache."""

    def __init__(self, judge: JudgeClient, store: Store) -> None:
        self._judge = judge
        self._store = store

    async def judged(self, query: Query, response: str, criteria: Sequence[Criterion]) -> Judged:
        """Return a verdict for each criterion, from the store or from the judge."""
        if not criteria:
            return Judged(verdicts={}, num_cached=0, seconds=None)
        visible = visible_response(response)
        keys = {
            c.id: verdict_key(self._judge.identity, query.prompt_text, c, visible) for c in criteria
        }
        found = await self._cached(keys)
        asked = tuple(c for c in criteria if c.id not in found)
        num_cached, seconds = len(found), None
        if asked:
            request = JudgeRequest(
                query_id=query.id, prompt=query.prompt_text, response=visible, criteria=asked
            )
            with at("judging", query.id, detail=f"{len(asked)} criteria", actor="Judge"):
                reply = await self._judge.grade(request)
            seconds = reply.seconds
            fresh = {v.criterion_id: v for v in reply.verdicts}
            kept = {keys[i]: v for i, v in fresh.items() if v.score is not None}
            await self._store.put_verdicts(kept)
            found |= fresh
        verdicts = {c.id: found[c.id] for c in criteria}
        return Judged(verdicts=verdicts, num_cached=num_cached, seconds=seconds)

    async def _cached(self, keys: Mapping[str, str]) -> dict[str, Verdict]:
        known = await self._store.cached_verdicts(tuple(keys.values()))
        # A cached verdict belongs to a criterion's text; the id is the asker's.
        return {i: replace(known[key], criterion_id=i) for i, key in keys.items() if key in known}
