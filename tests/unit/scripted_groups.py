"""A pool whose rollouts are told apart by visit and index, and a judge that scores by a table.

With them a whole run's rubric versions, rewards and calls can be computed by hand. Every query is
answered and scored alike.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.errors import RolloutError
from core.records import GenerateRequest, Rollout, Verdict
from core.rubric import Criterion
from tests.fakes import FakeJudge, FakePool

_NAMED = re.compile(r"visit (\d+) rollout (\d+)")


class NamedPool(FakePool):
    """Rollouts that say which one they are; ``who`` begins their text."""

    def __init__(self, who: str = "current") -> None:
        super().__init__()
        self.who = who
        self.failing: set[int] = set()
        """Indices that no worker answers."""

    async def generate(self, request: GenerateRequest) -> Rollout:
        rollout = await super().generate(request)
        if request.index in self.failing:
            raise RolloutError("no worker left")
        name = f"{request.query_id} visit {request.visit} rollout {request.index}"
        return replace(rollout, response=f"{self.who} {name}")


class TableJudge(FakeJudge):
    """Scores by criterion text and rollout index; a cell that is None is a failure."""

    identity = "table judge"

    def __init__(self, table: Mapping[str, Sequence[int | None]]) -> None:
        super().__init__()
        self.table = table

    def verdict(self, criterion: Criterion, response: str) -> Verdict:
        match = _NAMED.search(response)
        assert match is not None, response
        score = self.table[criterion.text][int(match.group(2))]
        return Verdict(
            criterion_id=criterion.id,
            score=None if score is None else float(score),
            max=criterion.max,
            failure="missing" if score is None else None,
        )
