"""Edits that run beside the policy update and take effect when their query is drawn again.

Each admitted draw leaves a ticket. The next draw of the same query waits for it, up to the edit
deadline, before it pins its rubric; generation does not wait, since it needs no rubric. A ticket
that was given up on is expired: its edit, when it comes, is refused.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.records import Draw, GradedGroup
from core.rubric import Rubric
from drivers.methods.base import Method
from drivers.ports import Store
from drivers.whereabouts import at


@dataclass(kw_only=True, eq=False)
class _Ticket:
    draw: Draw
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    is_expired: bool = False
    previous: "_Ticket | None" = None
    pin_wait_s: float = 0.0
    task: "asyncio.Task[None] | None" = None


class NextVisitEdits:
    """Keeps the edits of one query in the order of its draws."""

    def __init__(self, method: Method, store: Store, rubric_ids: Mapping[str, str]) -> None:
        """``rubric_ids``: the rubric that scores a query, by query id."""
        self._method = method
        self._store = store
        self._rubric_ids = rubric_ids
        self._latest: dict[str, _Ticket] = {}
        self._open: dict[Draw, _Ticket] = {}
        self._trained: set[Draw] = set()

    def admit(self, draw: Draw) -> None:
        """Note that the draw entered; call in draw order."""
        ticket = _Ticket(draw=draw, previous=self._latest.get(draw.query_id))
        self._latest[draw.query_id] = ticket
        self._open[draw] = ticket

    async def pin(self, draw: Draw) -> Rubric:
        """Return the rubric that the draw is graded under, after the edits of earlier draws."""
        ticket = self._open[draw]
        previous, ticket.previous = ticket.previous, None
        started = time.monotonic()
        if previous is not None and not previous.settled.is_set():
            try:
                async with asyncio.timeout(self._method.deadline_s):
                    with at("waiting for the edit of an earlier visit", draw.query_id):
                        await previous.settled.wait()
            except TimeoutError:
                previous.is_expired = True
        await self._method.ready(draw)
        ticket.pin_wait_s = time.monotonic() - started
        return await self._store.current(self._rubric_ids[draw.query_id])

    def pin_wait_s(self, draw: Draw) -> float:
        """How long this draw waited for edits of earlier ones."""
        ticket = self._open.get(draw)
        return ticket.pin_wait_s if ticket else 0.0

    def start(self, group: GradedGroup) -> None:
        """Begin the group's edit in the background, if the method has one."""
        ticket = self._open[group.draw]
        if not self._method.has_next_visit:
            self._settle(ticket)
            return
        ticket.task = asyncio.create_task(self._run(ticket, group))

    async def _run(self, ticket: _Ticket, group: GradedGroup) -> None:
        try:
            with at(
                "editing for the next visit",
                ticket.draw.query_id,
                detail=f"visit {ticket.draw.visit}",
            ):
                await self._method.next_visit(group, lambda: ticket.is_expired)
        finally:
            self._settle(ticket)

    def _settle(self, ticket: _Ticket) -> None:
        ticket.settled.set()

    def forget(self, draws: Iterable[Draw]) -> None:
        """Note that these draws were trained, and drop all trained ones whose edits are done.

        An edit task that broke (not: a writer that failed) is raised here and ends the run.
        """
        self._trained.update(draws)
        for draw in [d for d in self._open if d in self._trained]:
            task = self._open[draw].task
            if task is None or task.done():
                del self._open[draw]
                self._trained.discard(draw)
                if task is not None:
                    task.result()

    @property
    def num_running(self) -> int:
        """Edits under way."""
        return sum(t.task is not None and not t.task.done() for t in self._open.values())

    async def drain(self) -> None:
        """Wait for the edits of all trained draws; each is bounded by its deadline."""
        tickets = [t for t in self._open.values() if t.draw in self._trained]
        tasks = [t.task for t in tickets if t.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        self.forget(())

    async def close(self) -> None:
        """Cancel what still runs; what broke was raised by ``forget`` or comes too late for it."""
        tasks = [t.task for t in self._open.values() if t.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
