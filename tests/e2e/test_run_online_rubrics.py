"""A real run with a second worker pool: Online Rubrics with the initial policy as control.

The judge is code and the writer a stub, so that the rubrics are known: each visit adds one
criterion that code can decide. What is real is generation by two pools, the weight sync, and a
resume.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drivers.packaged_model import packaged_model_folder
from tests.stub_openai import Reply, StubOpenAI
from tests.whole_run import (
    END_TIMEOUT_S,
    GROUPS,
    ROLLOUTS,
    STEP_TIMEOUT_S,
    Driver,
    assert_drawn_in_order,
    first_queries,
    read_lines,
    small_run,
)

pytest.importorskip("vllm")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NEW = "The response has at least 12 words."
CONTROL_ROLLOUTS = 2


def written(body: dict[str, Any], _: int) -> Reply:
    """One candidate a pair, and their merge."""
    prompt = body["messages"][-1]["content"]
    item = {"quote": "", "criterion": NEW, "weight": 3}
    is_merge = '"final_criteria"' in prompt
    return Reply(text=json.dumps({"final_criteria" if is_merge else "new_criteria": [item]}))


def trained(tmp_path: Path, queries: Path, stub: StubOpenAI, steps: int) -> Driver:
    """Run until ``steps`` with the same command otherwise, and return the ended driver."""
    command = small_run(
        tmp_path,
        "online",
        queries,
        "evolution.method=online_rubrics",
        f"evolution.online.control_group_size={CONTROL_ROLLOUTS}",
        "writer.backend=openai",
        "writer.model=stub",
        f"writer.base_url={stub.base_url}",
        "reward.weights=checklist",
        "loop.max_policy_age=0",
        "loop.checkpoint_every=1",
        "learner.num_cpus=0.5",  # three processes on two CPUs
        "rollout.num_cpus=0.5",
        f"loop.steps={steps}",
    )
    with Driver(command, tmp_path / "online") as driver:
        driver.wait_for_step(steps)
        assert driver.wait(STEP_TIMEOUT_S + END_TIMEOUT_S) == 0, driver.output[-6000:]
        assert [str(p) for p in driver.left_over(10.0)] == []
    return driver


def loaded(driver: Driver, worker: str) -> list[int]:
    """The policy versions that a worker loaded, as the driver's log says."""
    return [int(v) for v in re.findall(rf"{worker} 0 has policy version (\d+)", driver.output)]


def test_control_workers_hold_the_initial_policy_over_a_resume(tmp_path: Path) -> None:
    packaged_model_folder(progress=False)
    queries = tmp_path / "queries.jsonl"
    ids = first_queries(queries)
    with StubOpenAI(written) as stub:
        first = trained(tmp_path, queries, stub, steps=2)
        assert loaded(first, "ControlWorker") == [0]
        # Two groups a step, one call a pair and one that merges.
        assert len(stub.seen) == 2 * GROUPS * (CONTROL_ROLLOUTS + 1)
        second = trained(tmp_path, queries, stub, steps=3)
        assert loaded(second, "ControlWorker") == [0]
        assert len(stub.seen) == 3 * GROUPS * (CONTROL_ROLLOUTS + 1)
    assert_drawn_in_order(second.files, ids, 3)
    for _, rows in second.files.read_rollouts():
        for row in rows:
            # Each visit has its own version: the initial criteria and the visit's one new one.
            assert row["rubric_version"] == row["visit"] + 1
            assert list(row["verdicts"])[-1] == f"local_{row['visit']}_1"
            assert row["reward"] is not None
        assert len(rows) == GROUPS * ROLLOUTS
    events = read_lines(second.files.events)
    assert [e["new"]["text"] for e in events if e["new"]] == [NEW] * 3 * GROUPS
    assert len([e for e in events if e["old"]]) == GROUPS  # the third step is the second visit
