"""What a worker's own error becomes on the driver's side: its sentence, without a traceback."""

from typing import Any

import pytest
from ray.exceptions import RayTaskError

from core.errors import ConfigError, RolloutError
from drivers.rollout_handles import RayRolloutWorker


class Call:
    """An actor method whose call fails."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause

    def remote(self, *_: object) -> Any:
        async def failed() -> None:
            traceback = "Traceback (most recent call last): ..."
            raise RayTaskError("start", traceback, self.cause).as_instanceof_cause()

        return failed()


async def failing(cause: Exception) -> RayRolloutWorker:
    worker = RayRolloutWorker(1, object)
    worker._actor = type("Actor", (), {"check_engine": Call(cause)})()
    return worker


async def test_a_workers_own_error_keeps_its_type_and_its_one_sentence() -> None:
    worker = await failing(ConfigError("got model m without a chat template, wanted one"))
    with pytest.raises(ConfigError) as caught:
        await worker.check()
    assert str(caught.value) == "got model m without a chat template, wanted one"
    assert not isinstance(caught.value, RayTaskError)


async def test_any_other_error_names_worker_and_call() -> None:
    worker = await failing(ZeroDivisionError("by zero"))
    with pytest.raises(RolloutError, match="RolloutWorker 1 failed in check_engine: ZeroDivision"):
        await worker.check()
