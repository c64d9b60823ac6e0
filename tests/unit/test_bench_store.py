"""The store's benchmark: its file is what commits leave, and its clients never collide."""

from pathlib import Path

from actors.rubric_log import RubricLog
from drivers.bench.store import rows
from drivers.bench.store_clients import Load, commit_for, percentile
from drivers.bench.store_file import build_file, next_commit, query_ids, rubric_of
from drivers.bench.timed_in_process import LocalStore


def test_the_file_written_in_bulk_is_what_commits_would_have_left(tmp_path: Path):
    build_file(tmp_path / "bulk.sqlite", 3, 4)
    log = RubricLog(tmp_path / "committed.sqlite")
    ids = query_ids(3)
    log.register({query_id: rubric_of(number) for number, query_id in enumerate(ids)})
    for number, query_id in enumerate(ids):
        for _ in range(3):
            log.commit(next_commit(query_id, log.current(query_id), number))
    bulk = RubricLog(tmp_path / "bulk.sqlite")
    assert (bulk.num_rubrics, bulk.num_edits) == (log.num_rubrics, log.num_edits) == (3, 9)
    for query_id in ids:
        written, committed = bulk.history(query_id), log.history(query_id)
        assert [v.rubric for v in written] == [v.rubric for v in committed]
        assert [(v.edits, v.key, v.step, v.visit) for v in written] == [
            (v.edits, v.key, v.step, v.visit) for v in committed
        ]
    # The next commits go on from it.
    assert bulk.commit(next_commit(ids[0], bulk.current(ids[0]), 0)).status == "applied"
    bulk.close()
    log.close()


async def test_clients_commit_on_rubrics_of_their_own():
    ids = query_ids(100)
    store = LocalStore()
    await store.register({q: rubric_of(number) for number, q in enumerate(ids)})
    load = Load(store, ids, seconds=0.01)  # type: ignore[arg-type]
    rates = [await commit_for(load, 1), await commit_for(load, 2)]
    made = sum([(await store.current(q)).version for q in ids])
    assert sum(rate.count for rate in rates) == made > 0
    assert all(rate.count == len(rate.latencies_s) for rate in rates)
    assert percentile([0.001, 0.002, 0.003], 50) == 2.0


def test_the_table_shows_what_was_measured():
    shown = {row.name: row.value for row in rows({"commits_per_s": 500.0, "restart_s": 1.0})}
    assert (shown["commits_per_s"], shown["restart_s"]) == (500.0, 1.0)
