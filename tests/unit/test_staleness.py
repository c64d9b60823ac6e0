"""Policy age counts from the oldest token, and slots bound it."""

import pytest

from core.config import LoopConfig
from core.staleness import can_admit, group_age, is_too_old, oldest_version, policy_age
from tests.unit.method_builders import rollout


def test_age_counts_from_the_version_of_the_first_token() -> None:
    assert policy_age(5, rollout(first=3, last=5)) == 2
    assert policy_age(5, rollout(first=5)) == 0


def test_a_group_is_as_old_as_its_oldest_rollout() -> None:
    assert group_age(4, [rollout(first=4), rollout(first=2, last=4)]) == 2
    assert group_age(4, []) == 0


def test_a_rollout_from_the_future_is_a_bug_that_shows() -> None:
    with pytest.raises(AssertionError, match="version 3"):
        policy_age(2, rollout(first=3))


def test_only_more_than_the_limit_is_too_old() -> None:
    assert not is_too_old(0, 0)
    assert is_too_old(1, 0)
    assert not is_too_old(2, 2)
    assert oldest_version(5, 2) == 3
    assert oldest_version(1, 2) == 0


def test_a_synchronous_run_admits_one_batch_and_age_k_admits_k_more() -> None:
    synchronous = LoopConfig(steps=1, groups_per_step=4, max_policy_age=0)
    assert can_admit(3, synchronous)
    assert not can_admit(4, synchronous)
    ahead = LoopConfig(steps=1, groups_per_step=4, max_policy_age=2)
    assert can_admit(11, ahead)
    assert not can_admit(12, ahead)


@pytest.mark.parametrize("max_age", [0, 1, 2, 3])
def test_with_these_slots_no_group_is_older_than_the_limit(max_age: int) -> None:
    """Enters as many groups as fit, trains the oldest batch, and looks at every age."""
    loop = LoopConfig(steps=1, groups_per_step=2, max_policy_age=max_age)
    running: list[int] = []
    oldest = 0
    for version in range(12):
        while can_admit(len(running), loop):
            running.append(version)
        batch, running = running[: loop.groups_per_step], running[loop.groups_per_step :]
        oldest = max(oldest, *(group_age(version, [rollout(first=v)]) for v in batch))
    assert oldest == max_age
