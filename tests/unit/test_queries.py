"""The query stream: order, epochs, resume."""

import pytest

from core.errors import ConfigError
from drivers.queries import QueryStream, sampling_seed


def draws(stream: QueryStream, numbers: range) -> list[tuple[str, int, int, int]]:
    return [(d.query_id, d.step, d.position, d.visit) for d in (stream.draw(n) for n in numbers)]


def test_a_new_stream_continues_where_another_stopped() -> None:
    ids = [f"q{i}" for i in range(10)]
    whole = draws(QueryStream(ids, 3, seed=7), range(60))
    resumed = draws(QueryStream(ids, 3, seed=7), range(21, 60))
    assert whole[21:] == resumed


def test_no_batch_holds_a_query_twice_and_visits_count_up() -> None:
    stream = QueryStream([f"q{i}" for i in range(10)], 4, seed=1)
    rows = draws(stream, range(80))
    seen: dict[str, int] = {}
    for step in range(20):
        batch = rows[step * 4 : step * 4 + 4]
        assert len({row[0] for row in batch}) == 4
        assert {row[1] for row in batch} == {step + 1}
    for query_id, _, _, visit in rows:
        assert visit == seen.get(query_id, 0)
        seen[query_id] = visit + 1


def test_the_rest_of_an_epoch_that_fills_no_batch_is_dropped() -> None:
    stream = QueryStream([f"q{i}" for i in range(5)], 4, seed=1)
    first_epoch = {row[0] for row in draws(stream, range(4))}
    assert len(first_epoch) == 4
    assert stream.draw(4).step == 2


def test_epochs_are_shuffled_differently_and_seeds_matter() -> None:
    ids = [f"q{i}" for i in range(12)]
    one = [d[0] for d in draws(QueryStream(ids, 12, seed=1), range(24))]
    other = [d[0] for d in draws(QueryStream(ids, 12, seed=2), range(24))]
    assert one[:12] != one[12:]
    assert one != other
    assert sorted(one[:12]) == sorted(ids)


def test_too_few_queries_for_a_batch_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="lower groups_per_step"):
        QueryStream(["a"], 2, seed=0)


def test_sampling_seeds_differ_by_each_part_and_fit_31_bits() -> None:
    seeds = {
        sampling_seed(run, query, visit, index)
        for run in (0, 1)
        for query in ("a", "b")
        for visit in (0, 1)
        for index in range(8)
    }
    assert len(seeds) == 64
    assert all(0 <= s < 2**31 for s in seeds)
    assert sampling_seed(3, "q", 1, 2) == sampling_seed(3, "q", 1, 2)
