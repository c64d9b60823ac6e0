"""The named normalisers on values worked out by hand."""

import pytest

from core.normalisers import (
    NORMALISERS,
    abs_sum,
    max_points,
    pos_sum,
    pos_sum_floor1,
    raw_sum,
    weight100,
)


def test_health_bench_vector_is_eleven_of_twenty_two() -> None:
    # points 7, 5, 10, -6; met yes, no, yes, yes: (7 + 10 - 6) / (7 + 5 + 10)
    assert pos_sum([7, 5, 10, -6], [1, 0, 1, 1]) == pytest.approx(11 / 22)


def test_penalties_can_take_pos_sum_below_zero() -> None:
    assert pos_sum([1, -3], [0.5, 1]) == pytest.approx(-2.5)


def test_pos_sum_without_positive_weight_is_undefined() -> None:
    assert pos_sum([-1, -2], [1, 0]) is None


def test_floor_of_one_keeps_a_small_weight_small() -> None:
    # 0.25 * 1 / max(0.25, 1), while pos_sum would give 1
    assert pos_sum_floor1([0.25], [1]) == pytest.approx(0.25)
    assert pos_sum_floor1([1, 1, -1], [1, 0.5, 0.5]) == pytest.approx(0.5)


def test_abs_sum_counts_penalties_in_the_denominator() -> None:
    # (3 * 1 - 1 * 1) / (3 + 1)
    assert abs_sum([3, -1], [1, 1]) == pytest.approx(0.5)
    assert abs_sum([0], [1]) is None


def test_max_points_is_sum_of_scores_over_sum_of_maxima() -> None:
    assert max_points([2, 2, 1], [2, 1, 0]) == pytest.approx(3 / 5)
    assert max_points([], []) is None


def test_raw_sum_is_not_normalised() -> None:
    assert raw_sum([3, 1, 2], [1, 0, 1]) == 5


def test_weight100_scales_hundred_point_scores_and_clips() -> None:
    # (100 * 80 + 50 * 20) / (100 * 150)
    assert weight100([100, 50], [80, 20]) == pytest.approx(0.6)
    assert weight100([1], [-1]) == 0.0
    assert weight100([0, 0], [10, 10]) is None


def test_unequal_lengths_are_never_paired_up_silently() -> None:
    for normaliser in NORMALISERS.values():
        with pytest.raises((ValueError, AssertionError)):
            normaliser([1, 2], [1])
