"""An event loop whose clock jumps: when nothing is ready, it is at once the time of the next timer.

A program that only waits for timers runs in as long as its own work takes, in exactly the order it
would have run in, and ``loop.time()`` tells how long it would have waited. What runs in threads
runs in place. Where no timer is left and nothing is ready, nothing can ever happen: an error.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Return what the coroutine returns, on a clock that starts at 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that never waits."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual_now

    def _jump(self, seconds: float) -> None:
        self._virtual_now += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Do it now: the clock must not jump while a thread works."""
        result: asyncio.Future[T] = self.create_future()
        try:
            result.set_result(func(*args))
        except Exception as error:
            result.set_exception(error)
        return result


class _JumpingSelector(selectors.SelectSelector):
    """Tells the clock to jump where a real one would wait."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now."""
        found = super().select(0)
        if found:
            return found
        if timeout is None:
            raise RuntimeError(
                "got a program on a virtual clock in which nothing is ready and no timer runs, "
                "wanted one that waits for timers only: it would wait for ever"
            )
        self._jump(max(0.0, timeout))
        return found
