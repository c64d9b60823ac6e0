"""Statistics against answers computed by hand, and against the numbers that the papers print."""

import math

import pytest

from core.statistics import (
    Interval,
    OverSeeds,
    Share,
    bootstrap_interval,
    directional_agreement,
    krippendorff_alpha,
    nested_mean,
    over_seeds,
    paired_difference,
    preference_score,
    proportion_interval,
)


# ------------------------------------------------------------------ bootstrap
def test_values_that_are_all_the_same_have_an_interval_of_no_width() -> None:
    assert bootstrap_interval([0.5] * 20) == Interval(0.5, 0.5)


def test_two_values_give_the_percentiles_of_their_four_resamples() -> None:
    """Means of two draws from {0, 1}: 0, 1/2, 1/2, 1 with a quarter each."""
    assert bootstrap_interval([0.0, 1.0], level=0.95) == Interval(0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], level=0.4) == Interval(0.5, 0.5)


def test_the_interval_of_many_values_is_near_the_normal_one() -> None:
    """300 prompts won by 45 %: 1.96 * sqrt(0.45 * 0.55 / 300) = 0.0563."""
    interval = bootstrap_interval([1.0] * 135 + [0.0] * 165)
    assert interval.low == pytest.approx(0.45 - 0.0563, abs=0.006)
    assert interval.high == pytest.approx(0.45 + 0.0563, abs=0.006)


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    values = [math.sin(i) for i in range(50)]
    assert bootstrap_interval(values, seed=7) == bootstrap_interval(values, seed=7)
    assert bootstrap_interval(values, seed=7) != bootstrap_interval(values, seed=8)


def test_clusters_are_resampled_whole() -> None:
    """Two clusters of ten equal values each: as if there were two values, not twenty."""
    values = [0.0] * 10 + [1.0] * 10
    by_cluster = bootstrap_interval(values, clusters=["x"] * 10 + ["y"] * 10)
    assert by_cluster == Interval(0.0, 1.0)
    by_value = bootstrap_interval(values)
    assert by_value.high - by_value.low < 0.5


def test_a_cluster_counts_by_its_size() -> None:
    """Clusters (three zeros) and (one 1): replicates have means 0, 1/4 (twice) and 1."""
    interval = bootstrap_interval([0, 0, 0, 1], clusters=["x", "x", "x", "y"], level=0.4)
    assert interval == Interval(0.25, 0.25)


def test_strata_keep_their_number_of_values() -> None:
    """Each stratum is constant, so that no resample within strata changes the mean."""
    values = [0.0] * 5 + [1.0] * 15
    assert bootstrap_interval(values, strata=["x"] * 5 + ["y"] * 15) == Interval(0.75, 0.75)


def test_a_cluster_label_counts_within_its_stratum() -> None:
    """The label "v" in two strata is two clusters: each stratum has one, so nothing varies."""
    interval = bootstrap_interval([0.0, 1.0], clusters=["v", "v"], strata=["x", "y"])
    assert interval == Interval(0.5, 0.5)


def test_replicates_that_do_not_fit_at_once_are_drawn_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = bootstrap_interval([0.0, 1.0, 3.0])
    monkeypatch.setattr("core.statistics._CELLS_AT_ONCE", 100)
    assert bootstrap_interval([0.0, 1.0, 3.0]) == whole


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "got no values"),
        ([1.0, math.nan], {}, "1 of 2 values that are not finite"),
        ([1.0, math.inf], {}, "not finite"),
        ([1.0], {"clusters": ["x", "y"]}, "got 2 clusters for 1 values"),
        ([1.0], {"strata": []}, "got 0 strata for 1 values"),
        ([1.0], {"replicates": 0}, "replicates=0"),
        ([1.0], {"level": 1.0}, "level=1.0"),
    ],
)
def test_what_has_no_interval_is_refused(values, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(values, **options)


def test_paired_values_are_compared_by_id_and_the_others_counted() -> None:
    a = {"q1": 1.0, "q2": 3.0, "q3": 9.0}
    b = {"q2": 1.0, "q1": 0.0, "q4": 5.0, "q5": 5.0}
    found = paired_difference(a, b)
    assert found.difference == pytest.approx(1.5)
    assert (found.num_pairs, found.num_only_a, found.num_only_b) == (2, 1, 2)
    assert found.interval == Interval(1.0, 2.0)


def test_pairing_takes_away_what_both_share() -> None:
    """b is a minus one everywhere, however much the values differ: no uncertainty is left."""
    a = {str(i): float(i) for i in range(30)}
    found = paired_difference(a, {i: v - 1.0 for i, v in a.items()})
    assert found.interval == Interval(1.0, 1.0)


def test_pairs_can_be_clustered_and_stratified() -> None:
    a, b = {"q1": 0.0, "q2": 0.0, "q3": 4.0}, {"q1": 0.0, "q2": 0.0, "q3": 0.0}
    together = paired_difference(a, b, clusters={"q1": "x", "q2": "x", "q3": "x"})
    assert together.interval == Interval(together.difference, together.difference)
    apart = paired_difference(a, b, strata={"q1": "x", "q2": "x", "q3": "y"})
    assert apart.interval.low == apart.interval.high == pytest.approx(4 / 3)


def test_pairs_without_a_common_id_or_a_label_are_refused() -> None:
    with pytest.raises(ValueError, match="without a common id"):
        paired_difference({"q1": 1.0}, {"q2": 1.0})
    with pytest.raises(ValueError, match="no cluster for 'q1'"):
        paired_difference({"q1": 1.0}, {"q1": 1.0}, clusters={})


# ------------------------------------------------------------------ means
def test_seeds_have_a_mean_and_a_sample_deviation() -> None:
    """CARE table 6, step 200: 35, 36 and 35 % are 35.3 with a deviation of 0.6."""
    found = over_seeds([35.0, 36.0, 35.0])
    assert round(found.mean, 1) == 35.3
    assert found.deviation is not None
    assert round(found.deviation, 1) == 0.6


def test_one_seed_has_no_deviation() -> None:
    assert over_seeds([2.0]) == OverSeeds(mean=2.0, deviation=None, num_seeds=1)


def test_types_count_equally_within_a_seed_and_seeds_equally_at_the_end() -> None:
    """Seed 1: types 1 and 4, so 2.5 (queries together would give 2). Seed 2: 3 and 6, so 4.5."""
    found = nested_mean(
        {"1": {"2d": [0.0, 2.0, 1.0, 1.0], "3d": [4.0]}, "2": {"2d": [3.0], "3d": [5.0, 7.0]}}
    )
    assert found.by_seed == {"1": 2.5, "2": 4.5}
    assert found.overall.mean == 3.5
    assert found.overall.deviation == pytest.approx(math.sqrt(2))
    assert found.by_type["3d"].mean == 5.0


def test_seeds_of_different_types_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="same ones for every seed"):
        nested_mean({"1": {"2d": [1.0], "3d": [1.0]}, "2": {"2d": [1.0]}})
    with pytest.raises(ValueError, match="got no seeds"):
        nested_mean({})
    with pytest.raises(ValueError, match="got no values"):
        nested_mean({"1": {"2d": []}})


# ------------------------------------------------------------------ preferences and agreement
def test_the_papers_38_wins_13_losses_and_9_others_are_70_point_8_percent() -> None:
    assert round(100 * preference_score(wins=38, ties=9, losses=13), 1) == 70.8


def test_the_papers_interval_of_the_preference_score_comes_out_within_a_point() -> None:
    """RARE section 5.4: 60.0 to 80.8 %; how the votes fall on the three types is not printed."""
    points = [1.0] * 38 + [0.5] * 9 + [0.0] * 13
    interval = bootstrap_interval(points, strata=[i % 3 for i in range(60)])
    assert 100 * interval.low == pytest.approx(60.0, abs=1.7)
    assert 100 * interval.high == pytest.approx(80.8, abs=1.7)


def test_a_preference_needs_cases() -> None:
    with pytest.raises(ValueError, match="at least one case"):
        preference_score(0, 0, 0)
    with pytest.raises(ValueError, match="-1 losses"):
        preference_score(2, 0, -1)


def test_directional_agreement_counts_what_both_orders_say() -> None:
    outcomes = [("a", "a"), ("a", "b"), ("tie", "tie"), ("b", "tie"), ("a", None)]
    assert directional_agreement(outcomes) == Share(value=0.5, n=4, missing=1)
    assert directional_agreement([(None, "a")]) == Share(value=None, n=0, missing=1)


def test_alpha_of_two_raters_is_the_one_computed_by_hand() -> None:
    """Items aa, aa, bb, ab: 8 paired values, 5 a and 3 b; observed disagreement 2 / 8, expected
    2 * 5 * 3 / (8 * 7) = 30 / 56; alpha = 1 - 0.25 * 56 / 30 = 0.5333."""
    ratings = {
        "r1": {"1": "a", "2": "a", "3": "b", "4": "a"},
        "r2": {"1": "a", "2": "a", "3": "b", "4": "b"},
    }
    assert krippendorff_alpha(ratings) == pytest.approx(1 - 0.25 * 56 / 30)


def test_an_item_that_one_rater_alone_has_rated_changes_nothing() -> None:
    ratings = {"r1": {"1": "a", "2": "b", "3": "a"}, "r2": {"1": "a", "2": "a", "3": "b"}}
    more = {**ratings, "r3": {"9": "c"}}
    assert krippendorff_alpha(more) == krippendorff_alpha(ratings)


def test_alpha_of_numbers_at_the_interval_level_is_the_one_computed_by_hand() -> None:
    """Items (1, 2) and (3, 3): observed (1 + 1) / 4 = 1/2; expected over all ordered pairs of
    1, 2, 3, 3: 2 * (1 + 4 + 4 + 1 + 1 + 0) / 12 = 22 / 12; alpha = 1 - 6 / 22."""
    ratings = {"r1": {"x": 1.0, "y": 3.0}, "r2": {"x": 2.0, "y": 3.0}}
    assert krippendorff_alpha(ratings, "interval") == pytest.approx(1 - 6 / 22)


def test_alpha_is_missing_where_chance_agreement_is_not_defined() -> None:
    assert krippendorff_alpha({"r1": {"1": "a"}, "r2": {"1": "a"}}) is None
    assert krippendorff_alpha({"r1": {"1": "a", "2": "b"}}) is None
    assert krippendorff_alpha({}) is None


def test_words_have_no_interval_level() -> None:
    with pytest.raises(ValueError, match="no numbers"):
        krippendorff_alpha({"r1": {"1": "a"}, "r2": {"1": "b"}}, "interval")


def test_a_proportion_has_wilsons_interval() -> None:
    """1 of 2: centre (0.5 + z²/4) / (1 + z²/2) = 0.5, half width z / (2 sqrt(2 + z²)) = 0.4055."""
    interval = proportion_interval(1, 2)
    assert interval.low == pytest.approx(0.0945, abs=1e-4)
    assert interval.high == pytest.approx(0.9055, abs=1e-4)
    with pytest.raises(ValueError, match="2 of 1 cases"):
        proportion_interval(2, 1)
