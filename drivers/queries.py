"""The query stream: which query is drawn when.

A draw is a pure function of (seed, number of queries, groups a step, draw number): a resume at any
step continues with the same queries in the same order. Every epoch is a shuffle of its own; what
does not fill a batch at the end of an epoch is dropped, so that no batch holds a query twice.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Sequence

from core.errors import ConfigError
from core.records import Draw


class QueryStream:
    """Draws numbered from 0; draw ``n`` belongs to training step ``n // groups_per_step + 1``."""

    def __init__(self, query_ids: Sequence[str], groups_per_step: int, seed: int) -> None:
        if len(query_ids) < groups_per_step:
            raise ConfigError(
                f"got {len(query_ids)} training queries, loop.groups_per_step={groups_per_step}; "
                "wanted at least that many: lower groups_per_step or add queries"
            )
        self._query_ids = tuple(query_ids)
        self._groups_per_step = groups_per_step
        self._seed = seed
        self._order: list[str] = []
        self._visits: list[int] = []
        self._seen: Counter[str] = Counter()

    def draw(self, number: int) -> Draw:
        """Return draw ``number`` (from 0)."""
        while len(self._order) <= number:
            self._add_epoch()
        return Draw(
            query_id=self._order[number],
            step=number // self._groups_per_step + 1,
            position=number % self._groups_per_step,
            visit=self._visits[number],
        )

    def _add_epoch(self) -> None:
        epoch = len(self._order) // self._epoch_length
        shuffled = list(self._query_ids)
        random.Random(f"{self._seed}:{epoch}").shuffle(shuffled)
        for query_id in shuffled[: self._epoch_length]:
            self._order.append(query_id)
            self._visits.append(self._seen[query_id])
            self._seen[query_id] += 1

    @property
    def _epoch_length(self) -> int:
        return len(self._query_ids) // self._groups_per_step * self._groups_per_step


def sampling_seed(run_seed: int, query_id: str, visit: int, index: int) -> int:
    """Return the seed of one rollout: the same after a resume, whichever worker generates it."""
    text = f"{run_seed}\x00{query_id}\x00{visit}\x00{index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
