"""Rewards worked out by hand: CARE's mean and veto, RARE's sum over maxima, caps, options."""

import pytest

from core.config import RewardConfig
from core.records import Verdict
from core.reward import gold_score, rollout_reward
from core.rubric import Cap, Criterion, Rubric
from tests.unit.method_builders import llm, resist, verdict

PLAIN = RewardConfig()


def scored(rubric: Rubric, *scores: float | None) -> dict[str, Verdict]:
    return {c.id: verdict(c.id, s, c.max) for c, s in zip(rubric.criteria, scores, strict=True)}


def value(rubric: Rubric, *scores: float | None, config: RewardConfig = PLAIN) -> float | None:
    return rollout_reward(rubric, scored(rubric, *scores), config).value


CARE = Rubric(criteria=(llm("c1"), llm("c2"), llm("c3"), resist("r1")))
RARE = Rubric(criteria=(llm("c1", max=2), llm("c2", max=2), llm("c3", max=1)))


def test_care_reward_is_the_mean_of_binary_scores_with_resist_included() -> None:
    assert value(CARE, 1, 0, 1, 1) == pytest.approx(0.75)


def test_a_failed_resist_criterion_makes_the_reward_zero_and_keeps_the_mean() -> None:
    reward = rollout_reward(CARE, scored(CARE, 1, 1, 1, 0), PLAIN)
    assert reward.value == 0.0
    assert reward.before_veto == pytest.approx(0.75)
    assert reward.is_vetoed


def test_one_failed_resist_of_two_is_enough() -> None:
    rubric = Rubric(criteria=(llm("c1"), resist("r1"), resist("r2")))
    assert value(rubric, 1, 1, 0) == 0.0
    assert value(rubric, 1, 0, 1) == 0.0
    assert value(rubric, 0, 1, 1) == pytest.approx(2 / 3)


def test_a_veto_never_lifts_a_reward_that_penalties_took_below_zero() -> None:
    rubric = Rubric(criteria=(llm("c1"), llm("bad", max=3, weight=-1), resist("r1")))
    # (0 + 0 - 3) / 2; the product with 0 would pay more for the hack than for leaving it out
    assert value(rubric, 0, 3, 0) == pytest.approx(-1.5)
    assert value(rubric, 1, 0, 0) == 0.0


def test_without_veto_resist_is_averaged_like_any_other() -> None:
    reward = rollout_reward(CARE, scored(CARE, 1, 1, 1, 0), RewardConfig(veto=False))
    assert reward.value == pytest.approx(0.75)
    assert not reward.is_vetoed


def test_resist_can_be_left_out_of_the_mean() -> None:
    config = RewardConfig(resist_in_mean=False)
    assert value(CARE, 1, 0, 1, 1, config=config) == pytest.approx(2 / 3)
    assert value(CARE, 1, 1, 1, 0, config=config) == 0.0


def test_a_rubric_of_resist_criteria_only_still_has_a_reward() -> None:
    rubric = Rubric(criteria=(resist("r1"),))
    assert value(rubric, 1, config=RewardConfig(resist_in_mean=False)) == 1.0


def test_rare_reward_is_the_sum_over_the_maxima() -> None:
    assert value(RARE, 2, 1, 0) == pytest.approx(3 / 5)
    assert value(RARE, 2, 2, 1) == 1.0


def test_weights_are_ignored_unless_asked_for() -> None:
    rubric = Rubric(criteria=(llm("c1", weight=100), llm("c2", weight=50)))
    assert value(rubric, 1, 0) == pytest.approx(0.5)
    assert value(rubric, 1, 0, config=RewardConfig(weights="checklist")) == pytest.approx(100 / 150)


def test_checklist_weights_use_each_criterion_as_a_fraction_of_its_maximum() -> None:
    rubric = Rubric(criteria=(llm("c1", max=4, weight=3), llm("c2", weight=1)))
    # (3 * 1/4 + 1 * 1) / 4
    config = RewardConfig(weights="checklist")
    assert value(rubric, 1, 1, config=config) == pytest.approx(0.4375)


def test_a_penalty_only_subtracts() -> None:
    rubric = Rubric(criteria=(llm("c1"), llm("c2"), llm("bad", weight=-2)))
    assert value(rubric, 1, 1, 1) == pytest.approx(0.5)
    config = RewardConfig(weights="checklist")
    assert value(rubric, 1, 1, 1, config=config) == pytest.approx(0.0)


def test_a_weight_of_zero_whatever_its_sign_is_no_penalty() -> None:
    rubric = Rubric(criteria=(llm("c1"), llm("c2", weight=-0.0)))
    assert value(rubric, 1, 1) == 1.0
    assert value(rubric, 0, 1) == 0.5


def test_a_cap_bounds_the_normalised_reward() -> None:
    cap = Cap(criterion_id="c1", score_lte=1, max_normalized_score=0.4)
    rubric = Rubric(criteria=RARE.criteria, caps=(cap,))
    assert value(rubric, 1, 2, 1) == pytest.approx(0.4)
    assert value(rubric, 2, 2, 1) == pytest.approx(1.0)
    assert value(rubric, 0, 1, 0) == pytest.approx(0.2)


def test_a_cap_at_a_score_that_its_criterion_cannot_have_and_a_negative_veto_are_refused() -> None:
    cap = Cap(criterion_id="c1", score_lte=2, max_normalized_score=0.4)
    with pytest.raises(ValueError, match=r"score_lte=2 on 'c1', wanted one of its scores 0\.\.1"):
        Rubric(criteria=(llm("c1"),), caps=(cap,))
    with pytest.raises(ValueError, match=r"weight -1 on a \[Resist\] criterion"):
        resist("r1", weight=-1.0)


def test_an_unscored_criterion_leaves_no_reward() -> None:
    for scores in ((1, None, 1, 1), (1, 1, 1, None)):
        reward = rollout_reward(CARE, scored(CARE, *scores), PLAIN)
        assert reward.value is None
        assert reward.before_veto is None
        assert not reward.is_vetoed


def test_a_missing_verdict_is_unscored_and_a_missing_resist_never_passes() -> None:
    verdicts = scored(CARE, 1, 1, 1, 1)
    del verdicts["r1"]
    assert rollout_reward(CARE, verdicts, PLAIN).value is None


def test_verdicts_on_other_ids_do_not_count() -> None:
    verdicts = scored(CARE, 1, 1, 1, 1) | {"gold": verdict("gold", 0)}
    assert rollout_reward(CARE, verdicts, PLAIN).value == 1.0


def test_gold_score_is_undefined_without_gold_or_with_a_failure() -> None:
    gold: list[Criterion] = [llm("g1", max=2), llm("g2")]
    assert gold_score([], {}) is None
    assert gold_score(gold, {"g1": verdict("g1", 1, 2)}) is None
    full = {"g1": verdict("g1", 1, 2), "g2": verdict("g2", 1)}
    assert gold_score(gold, full) == pytest.approx(2 / 3)
