"""Where a run stands: what a checkpoint says about draws, and what a later start makes of it."""

import asyncio
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.records import GenerateRequest, Rollout
from drivers.checkpoint import latest_checkpoint
from drivers.loop import Position
from tests.fakes import FakePool
from tests.unit.loop_rig import Rig, make_config


class SlowQuery(FakePool):
    """The first query to be asked is answered last of all."""

    first = ""

    async def generate(self, request: GenerateRequest) -> Rollout:
        self.first = self.first or request.query_id
        if request.query_id == self.first and request.visit == 0:
            await asyncio.sleep(0.15)
        return await super().generate(request)


async def test_a_checkpoint_in_finished_order_leaves_a_slow_group_in_the_run(
    tmp_path: Path,
) -> None:
    config = make_config(
        loop__order="finished", loop__max_policy_age=1, loop__checkpoint_every=1, loop__steps=4
    )
    rig = Rig(config, tmp_path, pool=SlowQuery(delay_s=0.05))
    end = await rig.run()
    assert end.step == 4
    assert len(rig.trained_in_a_row()) == 8


async def test_every_checkpoint_names_the_draws_that_wait_to_be_admitted_again(
    tmp_path: Path,
) -> None:
    """A run resumed with fewer slots admits only some of them before its next checkpoint."""
    config = make_config(loop__checkpoint_every=1, loop__steps=2)
    rig = Rig(config, tmp_path)
    start = Position(step=1, next_draw=8, untrained=(2, 3, 4, 5, 6, 7))
    await rig.run(start)
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.position == Position(step=2, next_draw=8, untrained=(4, 5, 6, 7))


async def test_draw_order_refuses_a_checkpoint_whose_steps_trained_other_draws(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"got loop\.order=drawn .* wanted finished"):
        await Rig(make_config(), tmp_path).run(Position(step=1, next_draw=4, untrained=(0, 3)))
