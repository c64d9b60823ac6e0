"""Policy age counts from the oldest token, and slots bound it."""

import pytest

from core.config import LoopConfig
from core.staleness import policy_age
from tests.unit.method_builders import rollout


def test_age_counts_from_the_version_of_the_first_token() -> None:
    assert policy_age(5, rollout(first=3, last=5)) == 2
    assert policy_age(5, rollout(first=5)) == 0


def test_a_rollout_from_the_future_is_a_bug_that_shows() -> None:
    with pytest.raises(AssertionError, match="version 3"):
        policy_age(2, rollout(first=3))


@pytest.mark.parametrize("max_age", [0, 1, 2, 3])
def test_with_these_slots_no_group_is_older_than_the_limit(max_age: int) -> None:
    """Enters as many groups as fit, trains the oldest batch, and looks at every age."""
    loop = LoopConfig(steps=1, groups_per_step=2, max_policy_age=max_age)
    running: list[int] = []
    oldest = 0
    for version in range(12):
        running += [version] * (loop.slots - len(running))
        batch, running = running[: loop.groups_per_step], running[loop.groups_per_step :]
        oldest = max(oldest, *(policy_age(version, rollout(first=v)) for v in batch))
    assert oldest == max_age
