"""Group-relative advantages (GRPO): how much better a rollout is than its group.

advantage = (reward - mean) / (deviation + eps), RARE section 3.1; mean and deviation over the
graded rollouts only. A group with fewer than two of them is masked whole. A group without spread
has advantage 0 but is not masked: it stays in the KL term and in the token-mean denominator.
The result is always finite.
"""

import math
from collections.abc import Sequence

from core.config import AdvantageConfig, RewardConfig
from core.records import GradedGroup, ScoredGroup, ScoredRollout
from core.reward import rollout_reward

MIN_GRADED = 2
"""Fewer graded rollouts than this give no baseline to compare with."""

_FLAT = 1e-9
"""A spread below this is rounding noise of equal rewards."""


def score_group(
    group: GradedGroup, reward: RewardConfig, advantage: AdvantageConfig
) -> ScoredGroup:
    """Return the group with rewards under its own rubric and their advantages."""
    rewards = [
        rollout_reward(group.rubric, r.verdicts, reward, is_cut=r.rollout.is_cut)
        for r in group.rollouts
    ]
    values = [r.value for r in rewards]
    advantages = group_advantages(values, advantage)
    return ScoredGroup(
        draw=group.draw,
        query=group.query,
        rubric=group.rubric,
        rollouts=tuple(
            ScoredRollout(
                graded=graded,
                reward=r.value,
                before_veto=r.before_veto,
                is_vetoed=r.is_vetoed,
                advantage=a,
            )
            for graded, r, a in zip(group.rollouts, rewards, advantages, strict=True)
        ),
        is_masked=not any(usable_rollouts(values)),
    )


def usable_rollouts(rewards: Sequence[float | None]) -> tuple[bool, ...]:
    """Return which rollouts train: graded, in a group with at least two graded ones."""
    is_graded = tuple(r is not None for r in rewards)
    return is_graded if sum(is_graded) >= MIN_GRADED else (False,) * len(rewards)


def group_advantages(rewards: Sequence[float | None], config: AdvantageConfig) -> tuple[float, ...]:
    """Return one advantage a rollout; 0 where there is no reward or nothing to compare with."""
    graded = [r for r in rewards if r is not None]
    if len(graded) < MIN_GRADED or is_flat(graded):
        return (0.0,) * len(rewards)
    mean = math.fsum(graded) / len(graded)
    scale = 1.0
    if config.should_scale:
        squares = math.fsum((r - mean) ** 2 for r in graded)
        scale = math.sqrt(squares / (len(graded) - config.ddof)) + config.eps
    return tuple(0.0 if r is None else (r - mean) / scale for r in rewards)


def is_flat(rewards: Sequence[float]) -> bool:
    """Return whether rewards are all equal, up to rounding."""
    return not rewards or max(rewards) - min(rewards) <= _FLAT
