"""A query's judge calls stay on one replica, and no call waits for one while another is free."""

from collections import Counter

from serve.affinity import Loads, preference, tries

NAMES = ("a", "b", "c", "d")


def order_of(key: str) -> list[str]:
    return preference(key, NAMES)


def idle() -> dict[str, int | None]:
    return dict.fromkeys(NAMES, 0)


def test_a_query_always_prefers_the_same_replica_and_queries_spread_over_all() -> None:
    homes = Counter(order_of(f"q{n}")[0] for n in range(400))
    assert set(homes) == set(NAMES)
    assert max(homes.values()) < 140
    assert order_of("q1") == preference("q1", NAMES[::-1])


def test_a_replica_that_comes_or_goes_moves_only_its_own_queries() -> None:
    for n in range(100):
        before = order_of(f"q{n}")
        assert preference(f"q{n}", NAMES[:3]) == [name for name in before if name != "d"]


def test_the_preferred_replica_is_tried_first_and_the_others_after_it() -> None:
    first, second, *_ = order = order_of("q")
    assert tries("q", idle(), 64) == [[first], order[1:]]
    # A group of eight stays together on an idle system; more calls go to the next in line.
    assert tries("q", idle() | {first: 7}, 64)[0] == [first]
    assert tries("q", idle() | {first: 8}, 64)[0] == [second]


def test_a_replica_as_busy_as_the_others_is_still_preferred() -> None:
    first, second, *_ = order_of("q")
    even: Loads = dict.fromkeys(NAMES, 40)
    assert tries("q", even, 64)[0] == [first]
    assert tries("q", {**even, first: 55}, 64)[0] == [second]


def test_a_full_replica_is_not_waited_for() -> None:
    first, second, *_ = order_of("q")
    assert tries("q", idle() | {first: 4}, 4)[0] == [second]
    crowded = dict.fromkeys(NAMES, 4) | {second: 3}
    assert tries("q", crowded, 4)[0] == [second]
    # All are full: Serve asks each of them.
    assert tries("q", dict.fromkeys(NAMES, 4), 4) == [order_of("q")]


def test_beside_a_replica_of_which_nothing_is_known_stands_one_that_is_free() -> None:
    first, second, third, _ = order = order_of("q")
    assert tries("q", idle() | {first: None}, 64)[0] == [first, second]
    assert tries("q", idle() | {first: None, second: 64}, 64)[0] == [first, third]
    # An unknown replica further down does not matter.
    assert tries("q", idle() | {second: None}, 64)[0] == [first]
    assert tries("q", dict.fromkeys(NAMES), 64) == [[first], order[1:]]


def test_one_replica_needs_no_choice() -> None:
    assert tries("q", {"a": 70}, 64) == [["a"]]
    assert tries("q", {"a": 7}, 64) == [["a"]]
