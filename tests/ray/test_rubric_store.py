"""The RubricStore as an actor: SIGKILLs with commits in flight, call cycles, names and limits."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.rubric_log import RubricLog
from actors.rubric_store import RubricStore
from core.errors import ConfigError
from core.records import Commit, RubricEdit, Verdict
from core.rubric import Criterion, Rubric
from drivers.rubric_store_client import StoreClient, start_store
from drivers.run_files import RunFiles

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def make_rubric(text: str = "Is it short?") -> Rubric:
    return Rubric(criteria=(Criterion(id="c0", text=text),))


async def commit_next(client: StoreClient, query_id: str, step: int) -> tuple[str, str]:
    """Read, add one criterion, commit; again on a conflict. Return the key and the status."""
    key = f"{query_id}-{step}"
    while True:
        rubric = await client.current(query_id)
        new = Criterion(id=key, text=f"criterion of {key}")
        edit = RubricEdit(method="care", branch="chase", status="accepted", new=new)
        result = await client.commit(
            Commit(
                query_id=query_id,
                from_version=rubric.version,
                rubric=rubric.with_criteria((*rubric.criteria, new)),
                edits=(edit,),
                step=step,
                visit=step,
                key=key,
            )
        )
        if result.status != "conflict":
            return key, result.status


async def kill_four_times(client: StoreClient) -> set[int]:
    killed: set[int] = set()
    while len(killed) < 4:
        await asyncio.sleep(0.4)
        pid = await asyncio.wait_for(client.handle.pid.remote(), 60)
        if pid not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    return killed


async def test_four_sigkills_with_200_commits_in_flight_lose_none_and_apply_none_twice(
    tmp_path: Path,
):
    path = tmp_path / "rubrics.sqlite"
    client = await start_store("kills", path)
    ids = [f"q{i}" for i in range(20)]
    await client.register({i: make_rubric() for i in ids})
    killer = asyncio.create_task(kill_four_times(client))
    acknowledged: list[tuple[str, str]] = []
    rounds = 0
    # 200 at a time until all four kills have fallen into a round.
    while rounds == 0 or not killer.done():
        calls = [commit_next(client, i, rounds * 10 + step) for i in ids for step in range(10)]
        acknowledged += await asyncio.gather(*calls)
        rounds += 1
        assert rounds < 40
    assert len(await killer) == 4
    client.close()
    log = RubricLog(path)
    for query_id in ids:
        rubric = log.current(query_id)
        wanted = Counter(k for k, _ in acknowledged if k.startswith(f"{query_id}-"))
        assert Counter(i for i in rubric.ids if i != "c0") == wanted
        assert rubric.version == len(wanted) == rounds * 10
    assert {status for _, status in acknowledged} <= {"applied", "duplicate"}
    assert len(acknowledged) == 200 * rounds


async def test_a_call_cycle_through_a_busy_store_does_not_block(tmp_path: Path):
    @ray.remote(num_cpus=0, max_concurrency=1)
    class OneSlotCaller:
        """Has one slot; asks the store and is itself being waited for."""

        async def ask(self, store: Any, query_id: str) -> int:
            return (await store.current.remote(query_id)).version

    client = await start_store("cycle", str(tmp_path / "rubrics.sqlite"))
    await client.register({"q1": make_rubric()})
    caller = OneSlotCaller.remote()
    asks = [caller.ask.remote(client.handle, "q1") for _ in range(20)]
    verdicts = {f"k{i}": Verdict(criterion_id="c0", score=1.0, max=1) for i in range(5000)}
    puts = [client.put_verdicts(verdicts) for _ in range(5)]
    # While one thread writes, the event loop answers at once.
    pings = [client.handle.pid.remote() for _ in range(50)]
    done = await asyncio.wait_for(asyncio.gather(*asks, *puts, *pings), 60)
    assert done[:20] == [0] * 20
    assert len(await client.cached_verdicts(list(verdicts))) == 5000
    ray.kill(caller)
    client.close()


async def test_the_client_snapshots_restores_and_hands_on_the_stores_own_errors(tmp_path: Path):
    client = await start_store("quick start", str(tmp_path / "rubrics.sqlite"))
    await client.register({"q1": make_rubric()})
    await commit_next(client, "q1", 1)
    await client.snapshot(str(tmp_path / "ckpt"), 1)
    await commit_next(client, "q1", 2)
    await client.restore(str(tmp_path / "ckpt"), 1)
    assert [v.version for v in await client.history("q1")] == [0, 1]
    assert await commit_next(client, "q1", 2) == ("q1-2", "applied")
    with pytest.raises(ConfigError, match="another initial rubric"):
        await client.register({"q1": make_rubric("Is it long?")})
    with pytest.raises(KeyError, match="nobody"):
        await client.current("nobody")
    assert ray.get_actor("RubricStore [quick start]") is not None
    client.close()


async def test_a_wait_has_a_limit_that_names_who_waited_for_whom(tmp_path: Path):
    client = await start_store("slow", str(tmp_path / "rubrics.sqlite"))
    await client.register({"q1": make_rubric()})
    pid = await client.handle.pid.remote()
    impatient = StoreClient(client.handle, client.name, timeout_s=0.5)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError, match=r"driver waited 0.5 s for RubricStore \[slow\]"):
            await impatient.current("q1")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (await client.current("q1")).version == 0
    client.close()
    with pytest.raises(RuntimeError, match=r"RubricStore \[slow\] ended"):
        await client.current("q1")


async def test_a_file_that_the_store_cannot_open_ends_the_start_with_its_reason(tmp_path: Path):
    path = tmp_path / "rubrics.sqlite"
    path.write_bytes(b"no database at all, and long enough to have a header" * 100)
    with pytest.raises(ConfigError, match=r"RubricStore \[broken\] could not open .*SQLite cannot"):
        await start_store("broken", path)


async def test_rubrics_given_at_the_start_are_registered_and_counted_in_the_repr(tmp_path: Path):
    client = await start_store("q", str(tmp_path / "rubrics.sqlite"), rubrics={"q1": make_rubric()})
    assert (await client.current("q1")).version == 0
    client.close()
    # What Ray shows is the repr of the plain class, which needs no cluster.
    assert repr(RubricStore(str(tmp_path / "rubrics.sqlite"))) == "RubricStore (1 rubrics, 0 edits)"
    store = RubricStore(str(tmp_path / "new.sqlite"), num_rubrics=2)
    assert repr(store) == "RubricStore (2 rubrics, 0 edits)"


async def test_a_store_of_many_rubrics_is_restarted_when_it_is_killed(tmp_path: Path):
    # Together far above what Ray keeps inside a constructor's call (100 KB).
    rubrics = {f"q{i}": make_rubric("Is it short? " * 50) for i in range(300)}
    client = await start_store("many", str(tmp_path / "rubrics.sqlite"), rubrics=rubrics)
    pid = await client.handle.pid.remote()
    os.kill(pid, signal.SIGKILL)
    assert await asyncio.wait_for(commit_next(client, "q7", 1), 60) == ("q7-1", "applied")
    assert await client.handle.pid.remote() != pid
    client.close()


async def test_a_person_edits_a_live_run_and_neither_side_loses_an_edit_or_sees_a_lock(
    tmp_path: Path,
):
    run = tmp_path / "run"
    client = await start_store("live", run / "rubrics.sqlite")
    await client.register({"q0": make_rubric(), "q1": make_rubric()})
    await client.propose(
        Commit(
            query_id="q1",
            from_version=0,
            rubric=make_rubric().with_criteria([Criterion(id="c0", text="Is it brief?")]),
            edits=(RubricEdit(method="care", branch="chase", status="waiting"),),
            step=1,
            visit=0,
            key="q1:0:next_visit",
        )
    )
    assert await client.num_waiting("q1") == 1
    lock = RunFiles(run).lock()  # as the run's driver holds it
    committing = asyncio.create_task(commit_many(client, "q0", 150))
    outputs: list[str] = []
    while not committing.done():
        outputs.append(await rubrics("rollback", str(run), "--rubric", "q0", "--to", "0"))
    outputs.append(await rubrics("approve", str(run), "--all"))
    lock.release()
    assert await committing == ["applied"] * 150
    made = [v for v in await client.history("q0") if v.writer == "person"]
    assert 0 < len(made) == sum("is at version" in text and ", with" in text for text in outputs)
    versions = [v.version for v in await client.history("q0")]
    assert versions == list(range(151 + len(made)))
    assert (await client.current("q1")).criteria[0].text == "Is it brief?"
    assert await client.num_waiting("q1") == 0
    client.close()
    rows = [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]
    told = {row["to_version"] for row in rows if row["query_id"] == "q0"}
    assert told == {v.version for v in made}


async def commit_many(client: StoreClient, query_id: str, count: int) -> list[str]:
    return [(await commit_next(client, query_id, step))[1] for step in range(count)]


async def rubrics(*arguments: str) -> str:
    """Run the command in a process of its own, as a person does; return what it wrote."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "drivers.rubrics",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    written, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, written
    return written.decode()
