"""The rating of pairs by people: the design's balance, and votes counted by hand."""

from collections import Counter

import pytest

from core.raters import (
    NUM_RATERS,
    PAIRS_PER_TYPE,
    Candidate,
    Choice,
    Showing,
    Votes,
    agreement_table,
    assign_raters,
    pair_outcome,
    read_choices,
    select_pairs,
)
from core.statistics import Interval

TYPES = ("2d", "3d", "live")
RATERS = tuple(f"rater {i}" for i in range(1, NUM_RATERS + 1))


def candidates(num_sources: int = 30, per_source: int = 2) -> list[Candidate]:
    return [
        Candidate(id=f"{t}-{s}-{q}", type=t, source=f"video {s}")
        for t in TYPES
        for s in range(num_sources)
        for q in range(per_source)
    ]


# ------------------------------------------------------------------ the design
def test_sixty_pairs_are_twenty_of_each_type_with_no_source_twice() -> None:
    pairs = select_pairs(candidates())
    assert Counter(p.type for p in pairs) == dict.fromkeys(TYPES, PAIRS_PER_TYPE)
    assert len({(p.type, p.source) for p in pairs}) == 60


def test_the_selection_depends_on_the_seed_and_not_on_the_order_of_the_candidates() -> None:
    pool = candidates()
    assert select_pairs(pool, seed=5) == select_pairs(pool[::-1], seed=5)
    assert select_pairs(pool, seed=5) != select_pairs(pool, seed=6)


def test_too_few_sources_of_a_type_are_named() -> None:
    with pytest.raises(ValueError, match="got 19 sources of type '2d', wanted at least 20"):
        select_pairs(candidates(num_sources=19))
    with pytest.raises(ValueError, match="got no candidates"):
        select_pairs([])


def test_five_raters_see_36_pairs_each_twelve_of_every_type_half_with_a_first() -> None:
    shown = assign_raters(select_pairs(candidates()), RATERS)
    assert set(shown) == set(RATERS)
    for showings in shown.values():
        assert len(showings) == 36
        assert len({s.id for s in showings}) == 36
        orders = Counter((s.type, s.first) for s in showings)
        assert orders == {(t, side): 6 for t in TYPES for side in ("a", "b")}


def test_each_pair_has_three_raters_who_do_not_all_see_the_same_order() -> None:
    shown = assign_raters(select_pairs(candidates()), RATERS)
    by_pair: dict[str, list[Showing]] = {}
    for showings in shown.values():
        for showing in showings:
            by_pair.setdefault(showing.id, []).append(showing)
    assert len(by_pair) == 60
    assert all(len({s.rater for s in seen}) == 3 for seen in by_pair.values())
    assert all(len({s.first for s in seen}) == 2 for seen in by_pair.values())


def test_each_team_of_three_judges_two_pairs_of_each_type() -> None:
    shown = assign_raters(select_pairs(candidates()), RATERS)
    teams: dict[tuple[str, str], set[str]] = {}
    for showings in shown.values():
        for s in showings:
            teams.setdefault((s.type, s.id), set()).add(s.rater)
    counts = Counter((t, frozenset(team)) for (t, _), team in teams.items())
    assert set(counts.values()) == {2}
    assert len(counts) == 10 * len(TYPES)


def test_the_assignment_is_the_same_for_a_seed_and_mixes_the_types() -> None:
    pairs = select_pairs(candidates())
    shown = assign_raters(pairs, RATERS, seed=3)
    assert shown == assign_raters(pairs[::-1], RATERS, seed=3)
    assert shown != assign_raters(pairs, RATERS, seed=4)
    first_types = [s.type for s in shown[RATERS[0]]]
    assert first_types != sorted(first_types)


def test_numbers_that_cannot_be_balanced_are_refused() -> None:
    pairs = select_pairs(candidates(), per_type=10)
    with pytest.raises(ValueError, match="wanted a multiple of 20"):
        assign_raters(pairs, RATERS)
    with pytest.raises(ValueError, match="each named once"):
        assign_raters(pairs, ["x", "x"])
    with pytest.raises(ValueError, match="3 votes a pair with 2 raters"):
        assign_raters(pairs, ["x", "y"])


# ------------------------------------------------------------------ what was said
def showings_of(*orders: tuple[str, str, str]) -> list[Showing]:
    """Showings of (rater, pair, side that stands first), all of one type."""
    made: list[Showing] = []
    for rater, pair, first in orders:
        assert first in ("a", "b")
        made.append(Showing(rater=rater, id=pair, type="2d", first="a" if first == "a" else "b"))
    return made


def test_a_choice_is_read_by_the_order_that_its_rater_saw() -> None:
    showings = showings_of(("x", "p", "a"), ("y", "p", "b"), ("z", "p", "b"))
    choices = [
        Choice(rater="x", id="p", choice="First"),
        Choice(rater="y", id="p", choice="first"),
        Choice(rater="z", id="p", choice=" 2 "),
    ]
    assert read_choices(showings, choices).votes == {"p": {"x": "a", "y": "b", "z": "a"}}


def test_a_blank_is_missing_and_a_tie_is_not() -> None:
    showings = showings_of(("x", "p", "a"), ("y", "p", "b"))
    blank, tie = Choice(rater="x", id="p", choice=" "), Choice(rater="y", id="p", choice="tie")
    votes = read_choices(showings, [blank, tie])
    assert votes.votes == {"p": {"y": "tie"}}
    assert votes.num_missing == 1


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([Choice(rater="x", id="p", choice="both")], "got the choice 'both'"),
        ([Choice(rater="x", id="q", choice="tie")], "was not to judge"),
        ([Choice(rater="q", id="p", choice="tie")], "was not to judge"),
        (
            [Choice(rater="x", id="p", choice="1"), Choice(rater="x", id="p", choice="2")],
            "two different choices",
        ),
    ],
)
def test_choices_that_do_not_fit_the_assignment_are_refused(choices, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_choices(showings_of(("x", "p", "a")), choices)


@pytest.mark.parametrize(
    ("votes", "outcome"),
    [
        (["a", "a", "b"], "a"),
        (["b", "tie", "b"], "b"),
        (["tie", "tie", "a"], "tie"),
        (["a", "b", "tie"], "unresolved"),
        (["a", "a"], "a"),
        (["a", "b"], "incomplete"),
        (["a"], "incomplete"),
        ([], "incomplete"),
    ],
)
def test_two_matching_votes_of_three_decide_a_pair(votes, outcome: str) -> None:
    assert pair_outcome(votes, 3) == outcome


def test_the_papers_outcomes_give_its_preference_score() -> None:
    """RARE section 5.4: 38 pairs for a, 13 for b, and 9 ties or unresolved ones: 70.8 %."""
    said = [["a", "a", "b"]] * 38 + [["b"] * 3] * 13 + [["tie"] * 3] * 4 + [["a", "b", "tie"]] * 5
    votes = Votes(
        votes={str(i): dict(zip(RATERS, v, strict=False)) for i, v in enumerate(said)},  # pyright: ignore[reportArgumentType]
        types={str(i): TYPES[i % 3] for i in range(60)},
        asked=dict.fromkeys(map(str, range(60)), 3),
    )
    table = agreement_table(votes)
    assert table.overall.outcomes == {"a": 38, "b": 13, "tie": 4, "unresolved": 5}
    assert table.overall.score is not None
    assert round(100 * table.overall.score, 1) == 70.8
    assert table.num_unanimous == 17
    assert sum(t.outcomes["a"] for t in table.by_type.values()) == 38


def test_the_agreement_table_counts_what_is_missing_and_leaves_it_out() -> None:
    """Pair p: a, a; pair q: a, b; pair r: one of two votes. Alpha over p and q: 3 a and 1 b, one
    of two items differs: 1 - (2 / 4) * (4 * 3) / (2 * 3 * 1) = 0."""
    votes = Votes(
        votes={"p": {"x": "a", "y": "a"}, "q": {"x": "a", "y": "b"}, "r": {"x": "b"}},
        types={"p": "2d", "q": "2d", "r": "3d"},
        asked={"p": 2, "q": 2, "r": 2},
    )
    table = agreement_table(votes)
    assert table.overall.outcomes == {"a": 1, "unresolved": 1, "incomplete": 1}
    assert table.overall.score == 0.75
    assert table.overall.interval == Interval(0.5, 1.0)
    assert table.by_type["3d"].score is None
    assert table.by_type["3d"].interval is None
    assert table.alpha == pytest.approx(0.0)
    assert (table.num_votes, table.num_missing, table.num_unanimous) == (5, 1, 1)
    assert table.votes_by_rater == {"x": {"a": 2, "b": 1}, "y": {"a": 1, "b": 1}}
