"""From the verdicts on one response to its reward.

One reward holds both papers. Sum of scores over sum of maxima (RARE section 3.1) is, for binary
criteria, CARE's unweighted mean (CARE section 3.2); times the product of the [Resist] scores it is
CARE's veto reward (equation 3). Caps of a rubric bound the normalised sum before the veto, and a
veto never lifts a reward that penalties took below 0.
A response with a criterion that has no score has no reward: None, never 0, and a [Resist] criterion
without a score never counts as passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.config import RewardConfig
from core.normalisers import NORMALISERS, max_points
from core.records import Verdict
from core.rubric import Criterion, Rubric


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """One response's reward and what it was before the veto."""

    value: float | None
    """None when a criterion has no score."""
    before_veto: float | None
    is_vetoed: bool


UNGRADED = Reward(value=None, before_veto=None, is_vetoed=False)


def rollout_reward(
    rubric: Rubric,
    verdicts: Mapping[str, Verdict],
    config: RewardConfig,
    *,
    is_cut: bool = False,
) -> Reward:
    """Return the reward of one response under ``rubric``; verdicts on other ids are ignored.

    ``is_cut``: the response ended at the token limit, and the config's penalty for that counts.
    """
    scores = _scores(rubric.criteria, verdicts)
    if scores is None:
        return UNGRADED
    base = _normalised(rubric.criteria, scores, config)
    for cap in rubric.caps:
        if scores[cap.criterion_id] <= cap.score_lte:
            base = min(base, cap.max_normalized_score)
    is_vetoed = config.veto and any(c.is_resist and scores[c.id] == 0 for c in rubric.criteria)
    value = min(base, 0.0) if is_vetoed else base
    if is_cut:
        value -= config.truncation_penalty
    return Reward(value=value, before_veto=base, is_vetoed=is_vetoed)


def gold_score(gold: Sequence[Criterion], verdicts: Mapping[str, Verdict]) -> float | None:
    """Return sum of scores over sum of maxima of the criteria that are never rewarded.

    None when there is no gold criterion or one of them has no score.
    """
    scores = _scores(gold, verdicts)
    if scores is None:
        return None
    return max_points([c.max for c in gold], [scores[c.id] for c in gold])


def _scores(
    criteria: Sequence[Criterion], verdicts: Mapping[str, Verdict]
) -> dict[str, float] | None:
    scores: dict[str, float] = {}
    for criterion in criteria:
        verdict = verdicts.get(criterion.id)
        if verdict is None or verdict.score is None:
            return None
        assert verdict.max == criterion.max, (criterion, verdict)
        scores[criterion.id] = verdict.score
    return scores


def _normalised(
    criteria: Sequence[Criterion], scores: Mapping[str, float], config: RewardConfig
) -> float:
    """The weighted sum of scores as shares of their maxima, divided as ``normaliser`` says.

    With ``weights: none`` a criterion's weight is its maximum, and the default normaliser makes the
    sum over the maxima. A criterion of negative weight (a penalty) only subtracts; it is not in the
    denominator. A rubric that has only [Resist] criteria keeps them in the mean.
    """
    counted = [c for c in criteria if config.resist_in_mean or not c.is_resist]
    if not any(c.weight > 0 for c in counted):
        counted = list(criteria)
    is_weighted = config.weights == "checklist"
    weights = [
        c.weight if is_weighted else float(-c.max if c.is_penalty else c.max) for c in counted
    ]
    shares = [scores[c.id] / c.max for c in counted]
    value = NORMALISERS[config.normaliser](weights, shares)
    assert value is not None, criteria
    return value
