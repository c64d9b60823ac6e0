"""How old a rollout's policy is: arithmetic only.

A policy version is the number of training steps done: step s makes version s. Age counts from the
version that wrote the oldest token. A group takes a slot when it enters and frees it after the
weight sync that follows its training; with ``LoopConfig.slots`` of them and groups trained in the
order in which they entered, no group is older than ``max_policy_age`` when it trains, so nothing
has to be dropped.
"""

from core.records import Rollout


def policy_age(learner_version: int, rollout: Rollout) -> int:
    """Return how many updates the learner made since the rollout's first token."""
    age = learner_version - rollout.policy_version_first
    assert age >= 0, (
        f"rollout {rollout.query_id}/{rollout.index} was written by version "
        f"{rollout.policy_version_first}, but the learner is at {learner_version}"
    )
    return age
