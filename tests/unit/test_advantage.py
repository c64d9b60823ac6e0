"""Group-relative advantages worked out by hand, and which rollouts train at all."""

import math
from dataclasses import replace

import pytest

from core.advantage import group_advantages, score_group, usable_rollouts
from core.config import AdvantageConfig, RewardConfig
from core.metrics import step_metrics
from core.records import GradedGroup
from core.rubric import Rubric
from tests.unit.method_builders import graded_group, llm

RUBRIC = Rubric(criteria=(llm("c1", max=2),))
CONFIG = AdvantageConfig()
EXACT = AdvantageConfig(eps=0.0)


def group_of(*scores: float | None) -> GradedGroup:
    return graded_group(RUBRIC, [{"c1": s} for s in scores])


def test_two_rewards_have_unit_distance_over_root_two_with_unbiased_deviation() -> None:
    # mean 0.5, unbiased deviation sqrt(0.5)
    assert group_advantages([0.0, 1.0], EXACT) == pytest.approx((-(0.5**0.5), 0.5**0.5))


def test_population_deviation_is_an_option() -> None:
    config = AdvantageConfig(ddof=0, eps=0.0)
    assert group_advantages([0.0, 1.0], config) == pytest.approx((-1.0, 1.0))


def test_eps_stands_inside_the_denominator() -> None:
    config = AdvantageConfig(ddof=0, eps=0.5)
    assert group_advantages([0.0, 1.0], config) == pytest.approx((-0.5, 0.5))


def test_scaling_can_be_left_out() -> None:
    config = AdvantageConfig(should_scale=False)
    assert group_advantages([0.0, 1.0, 0.5], config) == pytest.approx((-0.5, 0.5, 0.0))


def test_a_truncated_rollout_is_rewarded_as_it_is_unless_there_is_a_penalty() -> None:
    group = group_of(2, 2, None)
    cut = replace(group.rollouts[1].rollout, finish_reason="length")
    members = (group.rollouts[0], replace(group.rollouts[1], rollout=cut), group.rollouts[2])
    group = replace(group, rollouts=members)
    assert [r.reward for r in score_group(group, RewardConfig(), CONFIG).rollouts] == [1, 1, None]
    scored = score_group(group, RewardConfig(truncation_penalty=0.25), EXACT)
    assert [r.reward for r in scored.rollouts] == [1.0, 0.75, None]
    assert [r.before_veto for r in scored.rollouts] == [1.0, 1.0, None]
    assert [r.advantage for r in scored.rollouts] == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0])


def test_an_ungraded_rollout_is_out_of_mean_and_deviation() -> None:
    # over 0.5, 0.5, 1.0: mean 2/3, unbiased deviation sqrt((2 * (1/6)^2 + (1/3)^2) / 2) = 0.288675
    got = group_advantages([0.5, None, 0.5, 1.0], EXACT)
    assert got == pytest.approx((-0.5773503, 0.0, -0.5773503, 1.1547005))
    assert usable_rollouts([0.5, None, 0.5, 1.0]) == (True, False, True, True)


def test_a_single_graded_rollout_has_nothing_to_compare_with() -> None:
    assert group_advantages([0.7], CONFIG) == (0.0,)
    assert usable_rollouts([0.7]) == (False,)
    assert usable_rollouts([0.7, None, None]) == (False, False, False)


def test_equal_rewards_give_zero_but_stay_in() -> None:
    scored = score_group(group_of(1, 1, 1), RewardConfig(), CONFIG)
    assert [r.advantage for r in scored.rollouts] == [0.0, 0.0, 0.0]
    assert not scored.is_masked


def test_rounding_noise_is_not_spread_even_without_eps() -> None:
    assert group_advantages([0.1 + 0.2, 0.3], EXACT) == (0.0, 0.0)


def test_a_group_without_any_graded_rollout_is_masked() -> None:
    scored = score_group(group_of(None, None), RewardConfig(), CONFIG)
    assert scored.is_masked
    assert [r.reward for r in scored.rollouts] == [None, None]
    assert [r.advantage for r in scored.rollouts] == [0.0, 0.0]


def test_a_masked_group_keeps_the_reward_of_its_one_graded_rollout() -> None:
    scored = score_group(group_of(2, None), RewardConfig(), CONFIG)
    assert scored.is_masked
    assert [r.reward for r in scored.rollouts] == [1.0, None]


def test_advantages_are_always_finite() -> None:
    vectors: list[list[float | None]] = [[], [None], [0.0], [1.0, 1.0], [1e-12, 0.0], [5.0, -3.0]]
    for ddof in (0, 1):
        for rewards in vectors:
            for config in (AdvantageConfig(ddof=ddof), AdvantageConfig(ddof=ddof, eps=0.0)):
                assert all(math.isfinite(a) for a in group_advantages(rewards, config))


def test_rare_mask_vector_leaves_rows_zero_and_two() -> None:
    # groups a a a b b c with valid 1 0 1 1 0 1
    groups = [
        score_group(group_of(*scores), RewardConfig(), CONFIG)
        for scores in ((2, None, 0), (1, None), (2,))
    ]
    usable = [u for g in groups for u in usable_rollouts([r.reward for r in g.rollouts])]
    assert [row for row, is_usable in enumerate(usable) if is_usable] == [0, 2]
    metrics = step_metrics(groups, learner_version=0)
    assert metrics["judge/invalid_samples"] == 2
    assert metrics["judge/unrankable_valid_samples"] == 2
    assert [g.is_masked for g in groups] == [False, True, True]
    assert [r.advantage for r in groups[0].rollouts] == pytest.approx(
        [0.5**0.5, 0.0, -(0.5**0.5)], abs=1e-5
    )
