"""RARE's analyses of replacement events, each on a few rollouts with the answer worked out by hand.

Three events of four rollouts, one replacement each, on 0..2:

    A  scores 2 1 0 2   shares 1 .5 0 1    mean .625  variance .5625 - .390625 = .171875
    B  scores 2 2 2 2   shares 1 1 1 1     mean 1     variance 0
    C  scores 1 1 1 1   shares .5 .5 .5 .5 mean .5    variance 0
"""

import itertools

import pytest

from core.analysis.budget import budget_coverage
from core.analysis.directions import by_direction, matched
from core.analysis.evidence import NotInFiles
from core.analysis.false_saturation import false_saturation, missed_share
from core.analysis.moments import box_row, standardised
from core.analysis.reopening import reopening
from tests.unit.analysis_rig import criterion, event, run_of

TWO = criterion("c", top=2)
A = event([(TWO, "negative")], {"c": [2, 1, 0, 2]}, query_id="a")
B = event([(TWO, "negative")], {"c": [2, 2, 2, 2]}, query_id="b")
C = event([(TWO, "negative")], {"c": [1, 1, 1, 1]}, query_id="c")


# ------------------------------------------------------------------ reopening
def test_headroom_and_variance_are_shares_of_events() -> None:
    found = reopening([run_of([A, B, C])])
    assert found["headroom_reopened"]["count"] == 2  # A and C
    assert found["headroom_reopened"]["value"] == pytest.approx(2 / 3)
    assert found["variance_restored"]["count"] == 1  # C fell for all alike
    assert found["headroom"]["value"] == pytest.approx((0.375 + 0 + 0.5) / 3)
    assert found["variance"]["value"] == pytest.approx(0.171875 / 3)


def test_an_interval_holds_its_share() -> None:
    found = reopening([run_of([A, B, C])])["headroom_reopened"]
    assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1


def test_replacements_of_one_event_count_by_their_maxima() -> None:
    pairs = [(criterion("x", top=1), "negative"), (criterion("y", top=3), "negative")]
    both = event(pairs, {"x": [0, 1], "y": [3, 0]})
    assert both.summed == (3 / 4, 1 / 4)


def test_event_means_are_a_box_of_each_type() -> None:
    (box,) = reopening([run_of([A, B, C])])["event_means"]
    assert (box["type"], box["n"]) == ("films", 3)
    assert box["median"] == 0.625
    assert box["mean"] == pytest.approx((0.625 + 1 + 0.5) / 3)


def test_whiskers_stop_at_the_last_value_within_reach() -> None:
    # Quartiles of 0 4 5 6 7 (linear): 4, 5, 6; reach 1.5 * 2 = 3, so from 1 to 9.
    box = box_row([7.0, 0.0, 4.0, 5.0, 6.0])
    assert [box[k] for k in ("q1", "median", "q3")] == [4, 5, 6]
    assert (box["whisker_low"], box["whisker_high"]) == (4, 7)


def test_a_run_without_replacements_says_so() -> None:
    with pytest.raises(NotInFiles, match="no accepted replacement"):
        reopening([run_of()])


def test_equal_thirds_have_no_variance_by_rounding() -> None:
    thirds = event([(criterion("c", top=3), "negative")], {"c": [1, 1, 1, 1, 1, 1]})
    assert reopening([run_of([thirds])])["variance_restored"]["count"] == 0
    assert standardised([1 / 3] * 6) == (0.0,) * 6


# ------------------------------------------------------------------ directions
def test_the_advantage_of_replacements_is_standardised_by_the_population_deviation() -> None:
    # A: shares minus .625 are .375 -.125 -.625 .375; deviation sqrt(.171875) = .414578;
    # sizes .904534 .301511 1.507557 .904534, mean .904534. B is tied: 0.
    (row,) = by_direction([run_of([A, B])])["directions"]
    assert row["direction"] == "negative"
    assert row["abs_advantage_of_restored"] == pytest.approx(0.904534, abs=1e-5)
    assert row["abs_advantage"]["value"] == pytest.approx(0.904534 / 2, abs=1e-5)


def test_runs_are_put_together_by_the_direction_they_asked_for() -> None:
    positive = run_of([C], name="s", polarity="positive")
    rows = by_direction([run_of([A, B]), positive])["directions"]
    assert [(r["direction"], r["events"]) for r in rows] == [("negative", 2), ("positive", 1)]


def test_matched_events_average_criteria_within_a_direction_first() -> None:
    n1, n2, p = criterion("n1", top=2), criterion("n2"), criterion("p")
    # n1: shares 1 0 1 0, headroom .5, variance .25.  n2: all full, headroom 0, variance 0.
    # p: shares 1 1 1 0, headroom .25, variance .1875.
    both = event(
        [(n1, "negative"), (n2, "negative"), (p, "positive")],
        {"n1": [2, 0, 2, 0], "n2": [1, 1, 1, 1], "p": [1, 1, 1, 0]},
    )
    found = matched([run_of([both, A], polarity="mixed")])
    assert (found["events"], found["matched_events"]) == (2, 1)
    assert (found["negative_replacements"], found["positive_replacements"]) == (3, 1)
    rows = {r["statistic"]: r for r in found["statistics"]}
    assert (rows["headroom"]["negative"], rows["headroom"]["positive"]) == (0.25, 0.25)
    assert rows["variance"]["negative"] == pytest.approx(0.125)
    assert rows["variance"]["positive"] == pytest.approx(0.1875)
    assert rows["variance"]["difference"]["relative"] == pytest.approx(-1 / 3)
    assert rows["headroom_rate"]["difference"]["value"] == pytest.approx(0.5 - 1.0)
    # Sizes of z: n1 1 1 1 1 (mean 1), n2 0; p .57735 thrice and 1.73205, mean .866025.
    assert rows["abs_standardised"]["negative"] == pytest.approx(0.5, abs=1e-5)
    assert rows["abs_standardised"]["positive"] == pytest.approx(0.866025, abs=1e-5)


def test_events_of_one_direction_are_not_matched() -> None:
    with pytest.raises(NotInFiles, match="polarity=mixed"):
        matched([run_of([A, B])])


# ------------------------------------------------------------------ budget
def test_a_budget_covers_what_it_can_of_the_saturated() -> None:
    # Replaced: c (0..2). Left though full everywhere: s, t. Not saturated: o. A veto: r.
    others = [criterion("s"), criterion("t"), criterion("o"), criterion("r", is_resist=True)]
    full = [1, 1, 1, 1]
    columns = {"c": [2, 1, 0, 2], "s": full, "t": full, "o": [1, 0, 1, 1], "r": full}
    wide = event([(TWO, "negative")], columns, others=others, query_id="w")
    found = budget_coverage([run_of([wide, A], budget=1)])
    assert found["saturated_an_event"] == [
        {"saturated": 1, "events": 1},
        {"saturated": 3, "events": 1},
    ]
    assert found["share_replaced"] == 2 / 4
    first, second, third = found["coverage"]
    assert (first["events_over"], first["criteria_covered_share"]) == (1, 2 / 4)
    assert second["criteria_covered_share"] == 3 / 4
    assert (third["events_over"], third["events_covered_share"]) == (0, 1.0)


def test_a_reward_moves_by_at_most_the_replaced_share_of_the_maxima() -> None:
    # Sum of maxima 2 + 1 + 1 = 4: rollout 3 of A's column loses 2 of 4, the bound is 2 of 4.
    others = [criterion("x"), criterion("y")]
    columns = {"c": [2, 1, 0, 2], "x": [1, 0, 1, 1], "y": [0, 0, 0, 1]}
    found = budget_coverage([run_of([event([(TWO, "negative")], columns, others=others)])])
    assert (found["max_reward_change"], found["mean_bound"]) == (0.5, 0.5)
    assert found["within_bound"] == 1


# ------------------------------------------------------------------ false saturation
@pytest.mark.parametrize("size", [4, 6])
@pytest.mark.parametrize("num_below", range(9))
def test_the_formula_counts_every_subset(size: int, num_below: int) -> None:
    is_full = [False] * num_below + [True] * (8 - num_below)
    subsets = list(itertools.combinations(is_full, size))
    assert missed_share(8, num_below, size) == sum(map(all, subsets)) / len(subsets)


def test_false_saturation_is_given_of_all_and_of_the_open_cases() -> None:
    # Eight rollouts: one below full misses 35 of 70 subsets of four and 7 of 28 of six; two below
    # miss 15 of 70 and 1 of 28; a saturated one cannot be wrong.
    columns = ([1] * 7 + [0], [1] * 6 + [0, 0], [1] * 8)
    events = [
        event([(criterion("c"), "negative")], {"c": column}, query_id=f"q{i}")
        for i, column in enumerate(columns)
    ]
    rows = false_saturation([run_of(events)])["rates"]
    four, six = (r for r in rows if r["unit"] == "criterion")
    assert (four["cases"], four["open_cases"]) == (3, 2)
    assert four["of_all"] == pytest.approx((0.5 + 15 / 70) / 3)
    assert four["of_open"] == pytest.approx((0.5 + 15 / 70) / 2)
    assert four["of_seeming"] == pytest.approx((0.5 + 15 / 70) / (1 + 0.5 + 15 / 70))
    assert six["of_all"] == pytest.approx((7 / 28 + 1 / 28) / 3)


def test_an_event_is_open_when_any_of_its_replacements_is() -> None:
    pairs = [(criterion("x"), "negative"), (criterion("y"), "negative")]
    both = event(pairs, {"x": [0] + [1] * 7, "y": [1] * 7 + [0]})
    rows = false_saturation([run_of([both])], sizes=(4,))["rates"]
    by_unit = {r["unit"]: r["of_all"] for r in rows}
    assert by_unit == {"criterion": 0.5, "event": pytest.approx(15 / 70)}


def test_groups_no_larger_than_a_subset_say_nothing() -> None:
    with pytest.raises(NotInFiles, match="more than 4 rollouts"):
        false_saturation([run_of([A])])
