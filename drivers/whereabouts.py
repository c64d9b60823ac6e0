"""Where every query, call and update of a run is just now, for how long, and on which actor.

Stages and calls say it by ``with at(stage, ...)``; what runs inside ``tracking()`` is kept in one
table. Nothing is decided by it: it is there to be read when a run stands still.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Stay:
    """One thing in one stage."""

    stage: str
    query_id: str
    """Empty where it is no query's: an update of the policy."""
    detail: str
    """Which visit, rollout or version."""
    actor: str
    """Who it waits for; empty where it waits in the driver."""
    since: float
    """Monotonic seconds."""

    def text(self, now: float) -> str:
        """Return it as one line."""
        who = f"query {self.query_id!r} {self.detail}".rstrip() if self.query_id else self.detail
        where = f" on {self.actor}" if self.actor else ""
        return f"{now - self.since:7.1f} s  {self.stage}{where}{f': {who}' if who else ''}"


class Whereabouts:
    """The table; ``last_change`` is when anything last entered or left it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.last_change = clock()
        self._keys = itertools.count()
        self._stays: dict[int, Stay] = {}

    def enter(self, stage: str, query_id: str, detail: str, actor: str) -> int:
        """Note that something begins to wait; return the key to ``leave`` with."""
        key = next(self._keys)
        self.last_change = self.clock()
        self._stays[key] = Stay(
            stage=stage, query_id=query_id, detail=detail, actor=actor, since=self.last_change
        )
        return key

    def leave(self, key: int) -> None:
        """Note that it went on, however that was."""
        self.last_change = self.clock()
        self._stays.pop(key, None)

    def stays(self) -> list[Stay]:
        """Return all, the oldest first."""
        return sorted(self._stays.values(), key=lambda stay: stay.since)


_HERE: ContextVar[Whereabouts | None] = ContextVar("whereabouts", default=None)


@contextmanager
def tracking() -> Iterator[Whereabouts]:
    """Keep a table of what the block does, also in tasks that it starts."""
    table = Whereabouts()
    token = _HERE.set(table)
    try:
        yield table
    finally:
        _HERE.reset(token)


@contextmanager
def at(stage: str, query_id: str = "", *, detail: str = "", actor: str = "") -> Iterator[None]:
    """Note that what runs inside the block is at ``stage``; does nothing outside ``tracking``."""
    table = _HERE.get()
    if table is None:
        yield
        return
    key = table.enter(stage, query_id, detail, actor)
    try:
        yield
    finally:
        table.leave(key)
