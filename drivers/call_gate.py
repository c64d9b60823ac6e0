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
    num_calls: int
    places: int
    """What it got, once it is let in."""
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
        mine = _Waiting(num_calls, 0, asyncio.get_running_loop().create_future())
        self._line.append(mine)
        try:
            await mine.turn
        except asyncio.CancelledError:
            if mine.turn.done() and not mine.turn.cancelled():
                self._free += mine.places
            elif mine in self._line:
                self._line.remove(mine)
            self._let_in()
            raise
        return mine.places

    def resize(self, limit: int) -> None:
        """Have so many places from now on; fewer than are taken are reached as they come back."""
        if limit != self._limit:
            self._free += limit - self._limit
            self._limit = limit
            self._let_in()

    def release(self, places: int) -> None:
        """Give places back."""
        self._free += places
        self._let_in()

    def _let_in(self) -> None:
        while self._line:
            first = self._line[0]
            places = min(first.num_calls, self._limit)
            if self._free < places:
                return
            self._line.popleft()
            if not first.turn.cancelled():
                self._free -= places
                first.places = places
                first.turn.set_result(None)
