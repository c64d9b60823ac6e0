"""The checkpoint folder: order, what a killed driver left, what cannot be read."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers.checkpoint import (
    Checkpoints,
    Identity,
    check_same_run,
    latest_checkpoint,
    whole_checkpoints,
)
from drivers.loop import Position
from tests.fakes import FakeLearner, FakeStore

IDENTITY = Identity(data_fingerprint="f", seed=0, groups_per_step=2, group_size=2)


def checkpoints(folder: Path, num_kept: int = 2) -> Checkpoints:
    return Checkpoints(folder, FakeLearner(), FakeStore(), IDENTITY, num_kept, lambda: 7.0)


async def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    position = Position(step=3, next_draw=9, untrained=(6, 7, 8))
    await checkpoints(tmp_path).save(position)
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert (found.position, found.identity, found.wall_s) == (position, IDENTITY, 7.0)
    check_same_run(found.identity, IDENTITY)


async def test_steps_are_ordered_as_numbers_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    saver = checkpoints(tmp_path)
    for step in (99_998, 99_999, 100_000):
        await saver.save(Position(step=step))
    assert [p.name for p in whole_checkpoints(tmp_path)] == ["step_99999", "step_100000"]


async def test_what_a_killed_driver_left_half_written_is_removed(tmp_path: Path) -> None:
    cut = tmp_path / "step_00002.tmp"
    cut.mkdir()
    (cut / "position.json").write_text("{}")
    assert latest_checkpoint(tmp_path) is None
    await checkpoints(tmp_path).save(Position(step=5))
    assert [p.name for p in tmp_path.iterdir()] == ["step_00005"]


async def test_a_position_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    await checkpoints(tmp_path).save(Position(step=5))
    (tmp_path / "step_00005" / "position.json").write_text('{"position": {}}')
    with pytest.raises(ConfigError, match=r"wanted what this version writes: delete"):
        latest_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["data_fingerprint", "seed", "groups_per_step", "group_size"])
def test_a_checkpoint_of_other_data_or_shape_is_refused(name: str) -> None:
    values = {"data_fingerprint": "f", "seed": 0, "groups_per_step": 2, "group_size": 2}
    other = Identity(**values | {name: "g" if name == "data_fingerprint" else 5})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"got {name}=.* fresh=true"):
        check_same_run(IDENTITY, other)
