"""Rubric health on hand-computed groups: what each number counts, and when there is none."""

import math

import pytest

from core.config import RewardConfig
from core.evolution.health import (
    CriterionHealth,
    VerdictGroup,
    disagreement,
    discrimination,
    rubric_health,
    signs,
)
from core.records import Verdict
from core.rubric import Criterion, Rubric

C1 = Criterion(id="c1", text="Is it short?")
C2 = Criterion(id="c2", text="Does it give two examples?", max=2)
VETO = Criterion(id="v", text="It has no filler.", kind="resist")
V0 = Rubric(criteria=(C1, C2))
V1 = Rubric(version=1, criteria=(C1, C2, VETO))


def verdicts(**scores: float | None) -> dict[str, Verdict]:
    return {
        i: Verdict(
            criterion_id=i,
            score=s,
            max=2 if i == "c2" else 1,
            failure="timeout" if s is None else None,
        )
        for i, s in scores.items()
    }


GROUPS = (
    VerdictGroup(step=1, version=0, rollouts=(verdicts(c1=1.0, c2=0.0), verdicts(c1=0.0, c2=2.0))),
    VerdictGroup(
        step=4,
        version=1,
        rollouts=(
            verdicts(c1=1.0, c2=1.0, v=1.0),
            verdicts(c1=1.0, c2=2.0, v=0.0),
            verdicts(c1=None, c2=2.0, v=1.0),
        ),
    ),
)


def health_of(criterion_id: str) -> CriterionHealth:
    found = rubric_health([V0, V1], {0: 0, 1: 3}, GROUPS, RewardConfig(), last_step=10)
    return next(h for h in found if h.criterion.id == criterion_id)


def test_discrimination_is_the_population_deviation_of_a_group():
    assert discrimination([0.0, 1.0]) == 0.5
    assert discrimination([0.0, 0.5, 1.0]) == pytest.approx(math.sqrt(1 / 6))
    assert discrimination([1.0, 1.0]) == 0.0
    assert discrimination([1.0]) == discrimination([]) == 0.0


def test_the_numbers_of_a_criterion_of_the_first_version():
    h = health_of("c1")
    assert (h.since_version, h.visits, h.age_visits, h.age_steps) == (0, 2, 2, 10)
    assert h.discrimination == pytest.approx((0.5 + 0.0) / 2)
    assert h.full_rate == pytest.approx(3 / 4)
    assert (h.all_full_rate, h.all_zero_rate) == (0.5, 0.0)
    assert h.failure_rate == pytest.approx(1 / 5)
    assert h.veto_rate is None


def test_a_score_counts_as_a_share_of_its_maximum():
    h = health_of("c2")
    # groups: (0, 1) and (1/2, 1, 1)
    assert h.discrimination == pytest.approx((0.5 + math.sqrt(1 / 18)) / 2)
    assert h.full_rate == pytest.approx(3 / 5)
    assert (h.all_full_rate, h.all_zero_rate, h.failure_rate) == (0.0, 0.0, 0.0)


def test_a_later_veto_counts_from_its_version_on_and_has_a_veto_rate():
    h = health_of("v")
    assert (h.since_version, h.visits, h.age_visits, h.age_steps) == (1, 1, 1, 7)
    assert h.veto_rate == pytest.approx(1 / 3)
    assert h.full_rate == pytest.approx(2 / 3)


def test_the_correlation_is_with_the_reward_of_the_rest_within_groups():
    # Group 1: c1 = 1, 0 and the rest (c2) = 0, 1: deviations (.5, -.5) and (-.5, .5).
    # Group 2: c1 = 1, 1 and the rest (c2, v): deviations of c1 are 0; the rest is 2/3 and 0
    # (vetoed): deviations (1/3, -1/3). So r = -0.5 / sqrt(0.5 * (0.5 + 2/9)).
    assert health_of("c1").rest_correlation == pytest.approx(-0.5 / math.sqrt(0.5 * (0.5 + 2 / 9)))


def test_the_level_of_a_query_does_not_count_in_the_correlation():
    easy = tuple(verdicts(c1=1.0, c2=2.0) for _ in range(2))
    hard = tuple(verdicts(c1=0.0, c2=0.0) for _ in range(2))
    groups = [VerdictGroup(step=s, version=0, rollouts=r) for s, r in ((1, easy), (2, hard))]
    found = rubric_health([V0], {0: 0}, groups, RewardConfig(), last_step=2)
    assert [h.rest_correlation for h in found] == [None, None]
    assert [h.full_rate for h in found] == [0.5, 0.5]


def test_a_rewritten_criterion_starts_anew_and_one_never_graded_has_no_numbers():
    new = Rubric(version=2, criteria=(C1.model_copy(update={"text": "Is it brief?"}), C2, VETO))
    found = rubric_health([V0, V1, new], {2: 8}, GROUPS, RewardConfig(), last_step=10)
    h = found[0]
    assert (h.since_version, h.visits, h.age_visits, h.age_steps) == (2, 0, 0, 2)
    numbers = (h.discrimination, h.rest_correlation, h.full_rate, h.all_full_rate, h.failure_rate)
    assert numbers == (None,) * 5
    assert found[1].visits == 2


def test_a_criterion_that_came_back_counts_from_its_return():
    gone = Rubric(version=2, criteria=(C1, C2))
    back = Rubric(version=3, criteria=(C1, C2, VETO))
    found = rubric_health([V0, V1, gone, back], {3: 9}, GROUPS, RewardConfig(), last_step=10)
    assert (found[2].since_version, found[2].visits) == (3, 0)
    assert found[0].since_version == 0


def test_the_only_criterion_has_no_rest():
    alone = Rubric(criteria=(C1,))
    groups = [
        VerdictGroup(step=1, version=0, rollouts=(verdicts(c1=1.0), verdicts(c1=0.0))),
    ]
    (h,) = rubric_health([alone], {0: 0}, groups, RewardConfig(), last_step=1)
    assert h.rest_correlation is None
    assert h.discrimination == 0.5


def test_a_judge_asked_again_disagrees_by_the_share_of_scores_that_differ():
    def pair(a: float | None, b: float | None) -> tuple[Verdict, Verdict]:
        return verdicts(c2=a)["c2"], verdicts(c2=b)["c2"]

    found = disagreement([pair(2.0, 2.0), pair(2.0, 1.0), pair(0.0, 2.0), pair(1.0, None)])
    assert (found.num_asked, found.num_failed) == (4, 1)
    assert found.rate == pytest.approx(2 / 3)
    assert found.mean_difference == pytest.approx((0 + 0.5 + 1) / 3)
    assert disagreement([pair(None, 1.0)]).num_asked == 0
    assert disagreement([]).rate is None


def many(criterion: Criterion, *groups: tuple[float, ...]) -> CriterionHealth:
    rubric = Rubric(criteria=(criterion, C2.model_copy(update={"id": "other"})))
    made = [
        VerdictGroup(
            step=s,
            version=0,
            rollouts=tuple(
                {criterion.id: Verdict(criterion_id=criterion.id, score=x, max=criterion.max)}
                for x in scores
            ),
        )
        for s, scores in enumerate(groups, start=1)
    ]
    return rubric_health([rubric], {0: 0}, made, RewardConfig(), last_step=9)[0]


def test_what_stands_out_is_named():
    assert signs(many(C1, (1, 1), (1, 1), (1, 1))) == ("always_full",)
    assert signs(many(C1, (0, 0), (0, 0), (0, 0))) == ("always_zero",)
    assert signs(many(C1, (0, 0), (1, 1), (0, 0))) == ("flat",)
    assert signs(many(C1, (0, 1), (1, 1), (0, 0))) == ()
    assert signs(many(C1, (1, 1), (1, 1))) == ()  # too few groups
    assert signs(many(VETO, (1, 1), (1, 1), (1, 1))) == ()  # a veto that nobody earns is no fault


def test_a_penalty_works_where_it_takes_away_from_what_the_rest_rewards_less():
    penalty = C1.model_copy(update={"weight": -1.0})
    h = against(5, penalty)
    assert h.rest_correlation == pytest.approx(1)
    assert signs(h) == ()
    assert signs(many(penalty, (0, 0), (0, 0), (0, 0))) == ()  # a flaw that nobody has
    assert signs(many(penalty, (1, 1), (1, 1), (1, 1))) == ("always_full",)


def against(num_groups: int, first: Criterion = C1) -> CriterionHealth:
    """In each group the criterion is met exactly by the rollout that fails the rest."""
    groups = [
        VerdictGroup(
            step=s, version=0, rollouts=(verdicts(c1=1.0, c2=0.0), verdicts(c1=0.0, c2=2.0))
        )
        for s in range(num_groups)
    ]
    rubric = V0.model_copy(update={"criteria": (first, *V0.criteria[1:])})
    return rubric_health([rubric], {0: 0}, groups, RewardConfig(), last_step=num_groups)[0]


def test_a_correlation_counts_only_with_enough_scores():
    # A correlation of -1 is three standard errors (1 / sqrt(n)) away from 0 from n = 9 on.
    few, enough = against(4), against(5)
    assert few.rest_correlation == enough.rest_correlation == pytest.approx(-1)
    assert (few.num_scores, enough.num_scores) == (8, 10)
    assert signs(few) == ()
    assert signs(enough) == ("against_the_rest",)
