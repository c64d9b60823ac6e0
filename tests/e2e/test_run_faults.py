"""SIGKILL of the rollout worker and of the RubricStore in one real run, which ends as usual."""

import json
from pathlib import Path

import psutil
import pytest

from drivers.packaged_model import packaged_model_folder
from tests.whole_run import (
    END_TIMEOUT_S,
    START_TIMEOUT_S,
    Driver,
    accepted_events,
    accepted_in_store,
    assert_whole,
    first_queries,
    small_run,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

STEPS = 6


def test_a_killed_worker_and_a_killed_store_lose_no_edit_and_no_step(tmp_path: Path) -> None:
    packaged_model_folder(progress=False)
    query_ids = first_queries(tmp_path / "queries.jsonl")
    command = small_run(
        tmp_path,
        "faults",
        tmp_path / "queries.jsonl",
        f"loop.steps={STEPS}",
        "loop.checkpoint_every=0",
    )
    with Driver(command, tmp_path / "faults") as driver:
        files = driver.files
        driver.wait_for_step(1)
        worker = driver.actor("RolloutWorker")
        engine = worker.children(recursive=True)
        worker.kill()
        step = driver.num_steps
        # Meanwhile the groups that were ready are trained; a later step needs the new worker.
        driver.wait_for_step(step + 2)
        acknowledged = accepted_events(files)
        store = driver.actor("RubricStore")
        store.kill()
        driver.wait_for_step(STEPS, START_TIMEOUT_S)
        assert driver.wait(END_TIMEOUT_S) == 0, driver.output[-6000:]
        left_over = [str(p) for p in driver.left_over(10.0)]

    assert "RolloutWorker 0 is out, starting it again" in driver.output
    assert not psutil.wait_procs([*engine, worker, store], timeout=0)[1], "a killed one still runs"
    assert left_over == []
    assert_whole(files, query_ids, STEPS)
    assert acknowledged, "no edit was acknowledged before the kill: nothing is shown"
    assert not acknowledged - accepted_in_store(files)
    assert not acknowledged - accepted_events(files)
    summary = json.loads(files.summary.read_bytes())
    assert (summary["steps"], summary["resumed"]) == (STEPS, False)
