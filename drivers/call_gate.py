"""Lets only so many calls out at a time; what waits goes in the order it came.

A request may stand for several calls (one a criterion): it waits until as many places are free, so
that none of its calls waits behind the gate's back. A request of more calls than there are places
takes them all. A caller that is cancelled gives its place back.
"""

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class _Waiting:
    places: int
    turn: "asyncio.Future[None]"


class CallGate:
    """A semaphore of weights, first come first served."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._line: deque[_Waiting] = deque()

    async def acquire(self, num_calls: int) -> int:
        """Wait for the places of so many calls; returns how many ``release`` must be given."""
        places = min(num_calls, self._limit)
        if not self._line and self._free >= places:
            self._free -= places
            return places
        mine = _Waiting(places, asyncio.get_running_loop().create_future())
        self._line.append(mine)
        try:
            await mine.turn
        except asyncio.CancelledError:
            if mine.turn.done() and not mine.turn.cancelled():
                self._free += places
            elif mine in self._line:
                self._line.remove(mine)
            self._let_in()
            raise
        return places

    def release(self, places: int) -> None:
        """Give places back."""
        self._free += places
        self._let_in()

    def _let_in(self) -> None:
        while self._line and self._line[0].places <= self._free:
            first = self._line.popleft()
            if not first.turn.cancelled():
                self._free -= first.places
                first.turn.set_result(None)
