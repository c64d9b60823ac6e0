"""The rollout pool on fake workers: placement, retries, and who is out until it is current."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from core.config import RolloutConfig
from core.errors import RolloutError, WeightSyncError
from core.query import Message
from core.records import GenerateRequest, Rollout, WeightUpdate
from drivers import rollout_pool
from drivers.rollout_pool import RayRolloutPool, WorkerDiedError


@dataclass
class FakeWorker:
    """Answers at once unless told to hold, die, or fail a load."""

    index: int
    life: int
    """0 for the first process of this index."""
    version: int = -1
    is_dead: bool = False
    can_start: bool = True
    load_error: str = ""
    hold: asyncio.Event | None = None
    seeds: list[int] = field(default_factory=list)

    async def start(self) -> None:
        if not self.can_start:
            raise RolloutError("no memory")

    async def generate(self, request: GenerateRequest) -> Rollout:
        self.seeds.append(request.seed)
        if self.hold is not None:
            await self.hold.wait()
        if self.is_dead:
            raise WorkerDiedError("process ended")
        return Rollout(
            query_id=request.query_id,
            visit=request.visit,
            index=request.index,
            response=f"worker {self.index} life {self.life}",
            finish_reason="stop",
            prompt_token_ids=(1,),
            token_ids=(2,),
            rollout_logprobs=(-0.5,),
            policy_version_first=self.version,
            policy_version_last=self.version,
        )

    async def load_weights(self, update: WeightUpdate) -> int:
        if self.is_dead:
            raise WorkerDiedError("process ended")
        if self.load_error:
            raise WeightSyncError(self.load_error)
        self.version = update.version
        return update.version

    async def check(self) -> None:
        if self.is_dead:
            raise WorkerDiedError("process ended")

    async def shutdown(self) -> None:
        self.is_dead = True

    def kill(self) -> None:
        self.is_dead = True


class Workers:
    """Makes fake workers and remembers every life of each."""

    def __init__(self, change: Callable[[FakeWorker], None] = lambda worker: None) -> None:
        self.change = change
        self.lives: dict[int, list[FakeWorker]] = {}

    def __call__(self, index: int) -> FakeWorker:
        lives = self.lives.setdefault(index, [])
        worker = FakeWorker(index=index, life=len(lives))
        self.change(worker)
        lives.append(worker)
        return worker


def update(version: int) -> WeightUpdate:
    return WeightUpdate(version=version, transport="shm", location="/none")


def request(index: int = 0) -> GenerateRequest:
    return GenerateRequest(
        query_id="q7",
        visit=0,
        index=index,
        messages=(Message(role="user", content="hi"),),
        seed=1000 + index,
        temperature=1.0,
        max_new_tokens=4,
    )


async def started(workers: Workers, **config: float) -> RayRolloutPool:
    pool = RayRolloutPool(
        RolloutConfig(**{"num_workers": 2, "timeout_s": 5, "start_timeout_s": 5, **config}), workers
    )
    await pool.start()
    return pool


@pytest.fixture(autouse=True)
def few_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_pool, "MAX_RESTARTS", 2)


async def test_requests_go_to_the_least_loaded_worker() -> None:
    workers = Workers()
    pool = await started(workers)
    await pool.load_weights(update(0))
    hold = asyncio.Event()
    for lives in workers.lives.values():
        lives[0].hold = hold
    tasks = [asyncio.create_task(pool.generate(request(i))) for i in range(6)]
    await asyncio.sleep(0.05)
    assert [len(workers.lives[i][0].seeds) for i in (0, 1)] == [3, 3]
    assert pool.status().num_running == 6
    hold.set()
    await asyncio.gather(*tasks)
    assert pool.status().num_running == 0


async def test_no_request_is_placed_before_weights_are_loaded() -> None:
    workers = Workers()
    pool = await started(workers)
    task = asyncio.create_task(pool.generate(request()))
    await asyncio.sleep(0.05)
    assert not workers.lives[0][0].seeds
    assert pool.status().num_waiting == 1
    await pool.load_weights(update(3))
    assert (await task).policy_version_first == 3


async def test_a_request_of_a_dead_worker_goes_with_its_seed_to_another() -> None:
    workers = Workers()
    pool = await started(workers)
    await pool.load_weights(update(0))
    workers.lives[0][0].is_dead = True
    rollout = await pool.generate(request())
    assert rollout.response == "worker 1 life 0"
    assert workers.lives[0][0].seeds == workers.lives[1][0].seeds == [1000]


async def test_the_only_worker_is_made_anew_and_catches_up_before_it_answers() -> None:
    workers = Workers()
    pool = await started(workers, num_workers=1)
    await pool.load_weights(update(5))
    workers.lives[0][0].is_dead = True
    rollout = await pool.generate(request())
    assert rollout.response == "worker 0 life 1"
    assert rollout.policy_version_first == 5
    assert pool.status().num_restarts == 1
    assert pool.status().versions == (5,)


async def test_a_restarting_worker_is_left_out_until_it_has_the_newest_version() -> None:
    may_start = asyncio.Event()

    def slow_second_life(worker: FakeWorker) -> None:
        if worker.index == 0 and worker.life == 1:
            worker.start = lambda: may_start.wait()  # type: ignore[method-assign, return-value]

    workers = Workers(slow_second_life)
    pool = await started(workers)
    await pool.load_weights(update(0))
    workers.lives[0][0].is_dead = True
    await pool.generate(request())
    await pool.load_weights(update(1))
    assert pool.status().versions == (-1, 1)
    for i in range(4):
        assert (await pool.generate(request(i))).response == "worker 1 life 0"
    may_start.set()
    await asyncio.sleep(0.05)
    assert pool.status().versions == (1, 1)
    assert workers.lives[0][1].version == 1


async def test_a_worker_that_cannot_load_is_made_anew_and_the_others_go_on() -> None:
    def fails_once(worker: FakeWorker) -> None:
        worker.load_error = "sum differs" if worker.index == 0 and worker.life == 0 else ""

    workers = Workers(fails_once)
    pool = await started(workers)
    await pool.load_weights(update(0))
    await asyncio.sleep(0.05)
    assert pool.status().versions == (0, 0)
    assert workers.lives[0][0].is_dead
    assert workers.lives[0][1].version == 0


async def test_a_version_that_no_worker_can_load_raises_with_every_reason() -> None:
    def never_loads(worker: FakeWorker) -> None:
        worker.load_error = f"sum differs on {worker.index}"

    pool = await started(Workers(never_loads))
    with pytest.raises(WeightSyncError, match=r"version 4 .*RolloutWorker 0 \(sum differs on 0"):
        await pool.load_weights(update(4))
    assert pool.status().num_restarts == 4


async def test_a_request_fails_when_no_worker_comes_back() -> None:
    def starts_once(worker: FakeWorker) -> None:
        worker.can_start = worker.life == 0

    workers = Workers(starts_once)
    pool = await started(workers, num_workers=1)
    await pool.load_weights(update(0))
    workers.lives[0][0].is_dead = True
    with pytest.raises(RolloutError, match=r"'q7' found no rollout worker left.*no memory"):
        await pool.generate(request())


async def test_late_news_of_a_replaced_process_does_not_end_its_successor() -> None:
    workers = Workers()
    pool = await started(workers, num_workers=1)
    await pool.load_weights(update(0))
    first = workers.lives[0][0]
    first.hold = asyncio.Event()
    late = asyncio.create_task(pool.generate(request(1)))
    await asyncio.sleep(0.02)
    member = pool._members[0]
    pool._revive(member, first, "killed")
    await asyncio.sleep(0.05)
    assert pool.status().versions == (0,)
    first.hold.set()
    assert (await late).response == "worker 0 life 1"
    assert len(workers.lives[0]) == 2


async def test_a_request_that_takes_too_long_names_query_and_worker() -> None:
    workers = Workers()
    pool = await started(workers, num_workers=1, timeout_s=0.1)
    await pool.load_weights(update(0))
    workers.lives[0][0].hold = asyncio.Event()
    with pytest.raises(RolloutError, match=r"'q7' rollout 0 waited 0 s for RolloutWorker 0"):
        await pool.generate(request())
    assert len(workers.lives[0]) == 1, "its engine answered the check, so it is kept"


async def test_a_worker_that_does_not_start_fails_the_start() -> None:
    def cannot_start(worker: FakeWorker) -> None:
        worker.can_start = worker.index == 0

    with pytest.raises(RolloutError, match="no memory"):
        await started(Workers(cannot_start))


async def test_a_bad_request_is_not_tried_again() -> None:
    workers = Workers()
    pool = await started(workers, num_workers=1)
    await pool.load_weights(update(0))

    async def refuses(request: GenerateRequest) -> Rollout:
        workers.lives[0][0].seeds.append(request.seed)
        raise RolloutError("prompt too long")

    workers.lives[0][0].generate = refuses  # type: ignore[method-assign]
    with pytest.raises(RolloutError, match="prompt too long"):
        await pool.generate(request())
    assert workers.lives[0][0].seeds == [1000]


async def test_a_worker_that_cannot_shut_down_is_killed_and_so_are_the_others() -> None:
    workers = Workers()
    pool = await started(workers)
    first, second = workers.lives[0][0], workers.lives[1][0]

    async def broken() -> None:
        raise ZeroDivisionError

    first.shutdown = broken  # type: ignore[method-assign]
    await pool.shutdown()
    assert first.is_dead
    assert second.is_dead
