"""The writing thread of the RubricStore: what waits together is on disk together.

One thread does all changes in the order they were asked. Those that came while the last ones were
being written go into one transaction with one fsync (group commit), each in a savepoint of its own:
one that raises undoes itself and harms no other. A caller is answered after the fsync, never
before. When the transaction itself breaks (a full disk), nothing of it is kept and each change is
done again alone, so that every caller hears what became of its own.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from actors.rubric_log import RubricLog

T = TypeVar("T")

MAX_TOGETHER = 256
"""Most changes in one transaction: bounds how long the first of them waits for the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    work: Callable[[], Any]
    is_alone: bool
    """Whether it makes its own transactions and shares none."""
    answer: "Future[Any]" = field(default_factory=Future)


class RubricWrites:
    """Changes of one file; made and closed by one owner, asked from any thread."""

    def __init__(self, log: RubricLog) -> None:
        self._log = log
        self._changes: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        # A daemon: a process that ends does not wait for it, and what was not acknowledged is lost.
        self._thread = threading.Thread(target=self._run, name="rubric writes", daemon=True)
        self._thread.start()

    def ask(self, work: Callable[[], T], *, is_alone: bool = False) -> "Future[T]":
        """Have ``work`` done; the future has its result when that is on disk."""
        change = _Change(work=work, is_alone=is_alone)
        self._changes.put(change)
        return change.answer

    def close(self) -> None:
        """Do what was asked, then end the thread."""
        self._changes.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            waiting = self._next()
            shared: list[_Change] = []
            for change in waiting:
                if change is None:
                    self._do(shared)
                    return
                if change.is_alone:
                    self._do(shared)
                    self._do_alone(change)
                    shared = []
                else:
                    shared.append(change)
            self._do(shared)

    def _next(self) -> list[_Change | None]:
        """Wait for one change; return it and those that are there with it."""
        waiting = [self._changes.get()]
        while len(waiting) < MAX_TOGETHER:
            try:
                waiting.append(self._changes.get_nowait())
            except queue.Empty:
                break
        return waiting

    def _do(self, changes: list[_Change]) -> None:
        # A caller that was cancelled before its turn wants nothing any more.
        changes = [c for c in changes if c.answer.set_running_or_notify_cancel()]
        if not changes:
            return
        try:
            results = self._log.together([c.work for c in changes])
        except Exception:  # of the transaction: whose it is, each change finds out by itself
            for change in changes:
                _answer(change)
            return
        for change, result in zip(changes, results, strict=True):
            if isinstance(result, Exception):
                change.answer.set_exception(result)
            else:
                change.answer.set_result(result)

    def _do_alone(self, change: _Change) -> None:
        if change.answer.set_running_or_notify_cancel():
            _answer(change)


def _answer(change: _Change) -> None:
    try:
        result = change.work()
    except BaseException as error:
        change.answer.set_exception(error)
    else:
        change.answer.set_result(result)
