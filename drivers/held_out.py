"""Held-out evaluation: queries that never train, answered and judged under their initial rubric.

The rubric is frozen, and each query's sampling seeds are the same at every evaluation, so two
evaluations of one run differ by the policy only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.advantage import score_group
from core.config import RunConfig
from core.query import Query
from core.records import Draw, ScoredGroup
from core.reward import gold_score
from core.rubric import Rubric
from drivers.gathered import gathered
from drivers.grading import Grader
from drivers.ports import JudgeClient, RolloutPool, Store


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One pass over the held-out queries."""

    groups: tuple[ScoredGroup, ...]
    metrics: dict[str, float]


class Evaluator:
    """Answers the held-out queries with the policy as it stands."""

    def __init__(
        self,
        config: RunConfig,
        queries: Sequence[Query],
        pool: RolloutPool,
        judge: JudgeClient,
        store: Store,
    ) -> None:
        self._config = config
        self._queries = tuple(queries)
        self._grader = Grader(pool, judge, store, config.sampling, config.seed)

    async def evaluate(self, step: int) -> Evaluation:
        """Return all held-out groups with ``val/*`` means (a query's mean first, then over them).

        A query whose rollouts are all ungraded is left out of the mean, never counted as zero.
        """
        groups = tuple(await gathered(self._one(step, i) for i in range(len(self._queries))))
        rewards = [_mean([r.reward for r in g.rollouts if r.reward is not None]) for g in groups]
        golds = [_mean(_golds(g)) for g in groups]
        metrics = {
            name: value
            for name, values in (("val/reward/mean", rewards), ("val/gold/mean", golds))
            if (value := _mean([v for v in values if v is not None])) is not None
        }
        return Evaluation(groups=groups, metrics=metrics)

    async def _one(self, step: int, position: int) -> ScoredGroup:
        query = self._queries[position]

        async def frozen(_: Draw) -> Rubric:
            return query.rubric

        group = await self._grader.grade_group(
            Draw(query_id=query.id, step=step, position=position, visit=0),
            query,
            frozen,
            self._config.sampling.eval_group_size,
        )
        return score_group(group, self._config.reward, self._config.advantage)


def _golds(group: ScoredGroup) -> list[float]:
    scores = [gold_score(group.query.gold, r.graded.gold) for r in group.rollouts]
    return [s for s in scores if s is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
