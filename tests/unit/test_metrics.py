"""The metrics of one step, worked out by hand, and the one table of their names."""

import math
from dataclasses import replace

import pytest

from core.advantage import score_group
from core.config import AdvantageConfig, RewardConfig
from core.metrics import METRICS, StepCounts, saturation_counts, step_metrics
from core.records import GradedGroup, RubricEdit, ScoredGroup
from core.rubric import Rubric
from tests.unit.method_builders import graded_group, llm, resist, rollout, verdict

RUBRIC = Rubric(criteria=(llm("c1"), llm("c2"), resist("r1"), resist("r2")))
GOLD = (llm("g1"),)


def scored(group: GradedGroup) -> ScoredGroup:
    return score_group(group, RewardConfig(), AdvantageConfig(ddof=0, eps=0.0))


def group_of(*rows: tuple[float | None, ...]) -> GradedGroup:
    scores = [dict(zip(RUBRIC.ids, row, strict=True)) for row in rows]
    return graded_group(RUBRIC, scores, gold=GOLD)


SPREAD = group_of((1, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 0))
"""Rewards 1.0, 0.75 and 0 (vetoed, 0.75 before)."""
FLAT = group_of((0, 0, 1, 1), (0, 0, 1, 1))


def edit(branch: str, status: str, *, has_old: bool = False) -> RubricEdit:
    return RubricEdit(
        method="care",
        branch=branch,  # type: ignore[arg-type]
        status=status,  # type: ignore[arg-type]
        old=llm("c1") if has_old else None,
        new=llm("c1", "new") if status in ("accepted", "refused") else None,
    )


def test_rewards_scores_and_vetoes_of_a_step() -> None:
    metrics = step_metrics([scored(SPREAD), scored(FLAT)], learner_version=0)
    # rewards 1, .75, 0, .5, .5; before the veto 1, .75, .75, .5, .5
    assert metrics["critic/rewards/mean"] == pytest.approx(0.55)
    assert metrics["critic/rewards/max"] == 1.0
    assert metrics["critic/rewards/min"] == 0.0
    assert metrics["critic/rewards/std"] == pytest.approx(math.sqrt(0.11))
    assert metrics["critic/score/mean"] == pytest.approx(0.7)
    assert metrics["evolving_rubrics/veto_rate"] == pytest.approx(1 / 5)
    assert metrics["frac_reward_zero_std"] == pytest.approx(0.5)
    assert metrics["critic/advantages/mean"] == pytest.approx(0.0, abs=1e-12)
    # over rewards 1, .75, 0: mean 7/12, population deviation sqrt(0.4479167 - 0.3402778 + ...)
    deviation = math.sqrt((1 + 0.5625) / 3 - (7 / 12) ** 2)
    assert metrics["critic/advantages/max"] == pytest.approx((5 / 12) / deviation)


def test_masked_groups_are_out_of_flatness_and_advantages() -> None:
    masked = scored(group_of((1, 1, 1, 1), (None, 1, 1, 1)))
    metrics = step_metrics([masked], learner_version=0)
    assert "frac_reward_zero_std" not in metrics
    assert "critic/advantages/mean" not in metrics
    assert metrics["critic/rewards/mean"] == 1.0
    assert metrics["judge/invalid_samples"] == 1
    assert metrics["judge/unrankable_valid_samples"] == 1


def test_a_step_without_any_grade_has_no_reward_metrics_and_no_nan() -> None:
    metrics = step_metrics([scored(group_of((None, 1, 1, 1), (None, 1, 1, 1)))], learner_version=0)
    assert not any(name.startswith("critic/") for name in metrics)
    assert all(math.isfinite(v) for v in metrics.values())
    assert all(math.isfinite(v) for v in step_metrics([], learner_version=0).values())


def test_gold_is_the_mean_over_rollouts_whose_gold_was_scored() -> None:
    members = [
        replace(r, gold={"g1": verdict("g1", s)})
        for r, s in zip(SPREAD.rollouts, (1, None, 0), strict=True)
    ]
    group = replace(SPREAD, rollouts=tuple(members))
    metrics = step_metrics([scored(group)], learner_version=0)
    assert metrics["gold/mean"] == pytest.approx(0.5)
    assert "gold/mean" not in step_metrics([scored(SPREAD)], learner_version=0)


def test_lengths_cuts_and_ages_are_over_all_rollouts() -> None:
    rollouts = (
        rollout(0, num_tokens=2, first=3),
        rollout(1, num_tokens=6, first=1, last=3, is_cut=True),
        rollout(2, num_tokens=4, first=2),
    )
    members = tuple(
        replace(r, rollout=new) for r, new in zip(SPREAD.rollouts, rollouts, strict=True)
    )
    metrics = step_metrics([scored(replace(SPREAD, rollouts=members))], learner_version=3)
    assert metrics["response_length/mean"] == 4
    assert (metrics["response_length/max"], metrics["response_length/min"]) == (6, 2)
    assert metrics["response_length/clip_ratio"] == pytest.approx(1 / 3)
    assert metrics["prompt_length/mean"] == 2
    prefix = "training/off_policy/trajectory_staleness"
    assert metrics[f"{prefix}/mean"] == pytest.approx(1.0)
    assert (metrics[f"{prefix}/max"], metrics[f"{prefix}/min"]) == (2, 0)


def test_rubric_sizes_and_saturation_leave_resist_criteria_out() -> None:
    assert saturation_counts(SPREAD) == (1, 2)
    assert saturation_counts(FLAT) == (0, 2)
    metrics = step_metrics([scored(SPREAD), scored(FLAT)], learner_version=0)
    assert metrics["evolving_rubrics/num_active_rubrics"] == 4
    assert metrics["evolving_rubrics/num_resist"] == 2
    assert metrics["evolving_rubrics/saturated_ratio"] == pytest.approx(1 / 4)


def test_saturation_counted_before_a_replacement_wins() -> None:
    counts = StepCounts(num_saturated=3, num_saturable=4)
    metrics = step_metrics([scored(SPREAD)], 0, counts)
    assert metrics["evolving_rubrics/saturated_ratio"] == pytest.approx(0.75)


def test_edits_are_counted_by_branch_and_outcome() -> None:
    counts = StepCounts(
        edits=(
            edit("adaptive", "accepted", has_old=True),
            edit("adaptive", "refused"),
            edit("chase", "accepted"),
            edit("replacement", "accepted", has_old=True),
            edit("replacement", "failed"),
            edit("adaptive", "noop"),
        ),
        num_contrasts=4,
        num_restored=2,
        num_deadline_missed=1,
        num_commit_conflicts=1,
    )
    metrics = step_metrics([scored(SPREAD)], 0, counts)
    wanted = {
        "branch_adaptive": 1,
        "branch_chase": 1,
        "replaced": 1,
        "num_new_rubrics": 1,
        "num_overrides": 2,
        "refused": 1,
        "failed": 1,
        "noop": 1,
        "restored": 2,
        "deadline_missed": 1,
        "commit_conflicts": 1,
        "hack_detected_rate": 0.5,
    }
    assert {name: metrics[f"evolving_rubrics/{name}"] for name in wanted} == wanted


def test_every_metric_stands_in_the_table_with_a_meaning() -> None:
    counts = StepCounts(num_contrasts=1)
    metrics = step_metrics([scored(SPREAD)], 0, counts)
    assert set(metrics) <= set(METRICS)
    assert all(meaning for meaning in METRICS.values())
