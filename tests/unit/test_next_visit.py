"""Edits of one query keep the order of its draws, however many of them are under way."""

import asyncio
from collections.abc import Callable

from core.records import Draw, GradedGroup
from core.rubric import Rubric
from drivers.next_visit import NextVisitEdits
from tests.fakes import FakeStore
from tests.unit.method_builders import graded_group, llm, query

RUBRIC = Rubric(criteria=(llm("a"),))
GROUP = graded_group(RUBRIC, [{"a": 1}, {"a": 0}])


class SlowMethod:
    """An edit ends when ``release`` is set."""

    has_next_visit = True
    deadline_s = 5.0

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def ready(self, draw: Draw) -> None:
        return None

    async def next_visit(self, group: GradedGroup, is_expired: Callable[[], bool]) -> None:
        await self.release.wait()


def draw(visit: int) -> Draw:
    return Draw(query_id="q1", step=visit + 1, position=0, visit=visit)


async def test_a_draw_waits_for_the_edit_before_it_though_a_later_one_was_admitted() -> None:
    method, store = SlowMethod(), FakeStore()
    await store.register({"q1": query(RUBRIC).rubric})
    edits = NextVisitEdits(method, store, {"q1": "q1"})  # type: ignore[arg-type]
    for visit in range(3):
        edits.admit(draw(visit))
    edits.start(GROUP)
    pinning = asyncio.create_task(edits.pin(draw(1)))
    await asyncio.sleep(0.02)
    assert not pinning.done()
    method.release.set()
    await asyncio.wait_for(pinning, 1)
    await edits.close()


async def test_draining_waits_for_trained_draws_only_and_forgets_no_other() -> None:
    method, store = SlowMethod(), FakeStore()
    await store.register({"q1": query(RUBRIC).rubric})
    edits = NextVisitEdits(method, store, {"q1": "q1"})  # type: ignore[arg-type]
    edits.admit(draw(0))
    await asyncio.wait_for(edits.drain(), 1)
    edits.start(GROUP)
    assert edits.num_running == 1
    edits.forget([draw(0)])
    draining = asyncio.create_task(edits.drain())
    await asyncio.sleep(0.02)
    assert not draining.done()
    method.release.set()
    await asyncio.wait_for(draining, 1)
    assert edits.num_running == 0
