"""Calls of one kind that go together: what is asked while one is away goes with the next.

A call that comes alone leaves at once and waits for nobody. Under load their number falls to what
the answering side keeps up with, and with it the cost of each. An answer is given when the call
that carried it has been answered, so it promises what that call promises. A failure of a call is
that of everyone who went with it; one who no longer waits takes nobody's answer away.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")

MAX_TOGETHER = 64


class CombinedCalls(Generic[A, R]):
    """``call`` gets the questions that go together and returns as many answers, in order."""

    def __init__(self, call: Callable[[Sequence[A]], Awaitable[Sequence[R]]]) -> None:
        self._call = call
        self._waiting: deque[tuple[A, asyncio.Future[R]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def ask(self, question: A) -> R:
        """Return the answer to this question."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                count = min(MAX_TOGETHER, len(self._waiting))
                await self._send([self._waiting.popleft() for _ in range(count)])
        finally:
            self._sender = None
            while self._waiting:  # only where this task was cancelled: the loop ends
                self._waiting.popleft()[1].cancel()

    async def _send(self, asked: "Sequence[tuple[A, asyncio.Future[R]]]") -> None:
        asked = [(question, answer) for question, answer in asked if not answer.done()]
        if not asked:
            return
        try:
            answers = await self._call([question for question, _ in asked])
        except asyncio.CancelledError:
            for _, answer in asked:
                answer.cancel()
            raise
        except Exception as error:
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), result in zip(asked, answers, strict=True):
            if not answer.done():
                answer.set_result(result)
