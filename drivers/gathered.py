"""Coroutines awaited side by side, of which one failure ends all."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gathered(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; when one raises, cancel the others and raise its error as it is."""
    tasks = [asyncio.ensure_future(c) for c in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a group of tasks, as it was raised."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
