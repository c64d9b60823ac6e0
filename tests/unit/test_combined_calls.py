"""Calls that go together: alone at once, under load fewer, a failure for those who went with it."""

import asyncio
from collections.abc import Sequence

import pytest

from drivers.combined_calls import MAX_TOGETHER, CombinedCalls


class Answering:
    """Doubles numbers; holds each call until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()

    async def answer(self, numbers: Sequence[int]) -> Sequence[int]:
        self.calls.append(list(numbers))
        await self.gate.wait()
        if 13 in numbers:
            raise ValueError("13")
        return [2 * number for number in numbers]


async def asked(combined: CombinedCalls[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(combined.ask(number)) for number in numbers]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_what_is_asked_while_a_call_is_away_goes_with_the_next():
    there = Answering()
    combined = CombinedCalls(there.answer)
    first = await asked(combined, 1)
    rest = await asked(combined, 2, 3, 4)
    assert there.calls == [[1]]
    there.gate.set()
    assert await asyncio.gather(*first, *rest) == [2, 4, 6, 8]
    assert there.calls == [[1], [2, 3, 4]]
    assert await combined.ask(5) == 10


async def test_no_call_carries_more_than_its_most():
    there = Answering()
    there.gate.set()
    combined = CombinedCalls(there.answer)
    numbers = range(100, 101 + MAX_TOGETHER)
    assert await asyncio.gather(*map(combined.ask, numbers)) == [2 * n for n in numbers]
    assert [len(call) for call in there.calls] == [MAX_TOGETHER, 1]


async def test_a_failure_is_of_those_who_went_together_and_of_nobody_after():
    there = Answering()
    combined = CombinedCalls(there.answer)
    first = await asked(combined, 1)
    bad = await asked(combined, 13, 2)
    there.gate.set()
    assert await first[0] == 2
    for task in bad:
        with pytest.raises(ValueError, match="13"):
            await task
    assert await combined.ask(3) == 6


async def test_one_who_gives_up_takes_nobodys_answer_away():
    there = Answering()
    combined = CombinedCalls(there.answer)
    first, second = await asked(combined, 1, 2)
    third, fourth = await asked(combined, 3, 4)
    first.cancel()
    third.cancel()
    await asyncio.sleep(0)
    there.gate.set()
    assert await asyncio.gather(second, fourth) == [4, 8]
    assert there.calls == [[1, 2], [4]]
