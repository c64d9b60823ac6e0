"""How old a rollout's policy may be: arithmetic only.

A policy version is the number of training steps done: step s makes version s. Age counts from the
version that wrote the oldest token. A group takes a slot when it enters and frees it after the
weight sync that follows its training; with ``(max_policy_age + 1) * groups_per_step`` slots no
group can be older than ``max_policy_age`` when it trains, so nothing has to be dropped.
"""

from collections.abc import Iterable

from core.config import LoopConfig
from core.records import Rollout


def policy_age(learner_version: int, rollout: Rollout) -> int:
    """Return how many updates the learner made since the rollout's first token."""
    age = learner_version - rollout.policy_version_first
    assert age >= 0, (
        f"rollout {rollout.query_id}/{rollout.index} was written by version "
        f"{rollout.policy_version_first}, but the learner is at {learner_version}"
    )
    return age


def group_age(learner_version: int, rollouts: Iterable[Rollout]) -> int:
    """Return the age of the oldest rollout (0 for an empty group)."""
    return max((policy_age(learner_version, r) for r in rollouts), default=0)


def is_too_old(age: int, max_policy_age: int) -> bool:
    """Return whether a group of this age must not train."""
    return age > max_policy_age


def can_admit(num_running: int, loop: LoopConfig) -> bool:
    """Return whether another group may enter; those at the judge or the writer count as running."""
    return num_running < loop.slots


def oldest_version(learner_version: int, max_policy_age: int) -> int:
    """Return the oldest policy version that may still write tokens for the learner's next step."""
    return max(0, learner_version - max_policy_age)
