"""Two steps of a real run whose judge is a vLLM engine: nothing in it is decided by code.

The packaged model is too small to judge well. What is tested is that it is really asked, that what
it answers becomes scores or named failures, and that only scores become rewards.
"""

import json
from pathlib import Path
from typing import get_args

import pytest

from core.records import FailureKind
from drivers.packaged_model import NAME, PREFIX, packaged_model_folder
from tests.whole_run import (
    END_TIMEOUT_S,
    GROUPS,
    ROLLOUTS,
    STEP_TIMEOUT_S,
    Driver,
    assert_whole,
    read_lines,
    small_run,
)

pytest.importorskip("vllm")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

STEPS = 2
QUERIES = [
    {
        "id": name,
        "messages": [{"role": "user", "content": f"Write one friendly sentence about {topic}."}],
        "rubric": [
            {"id": "friendly", "text": "The sentence is friendly."},
            {"id": "topic", "text": f"The sentence is about {topic}.", "max": 2},
        ],
        "anchor": {"model": "written by hand", "response": f"I am fond of {topic}."},
        "gold": [{"id": "gold_short", "text": "The answer is one sentence."}],
    }
    for name, topic in (("river", "a river"), ("tea", "a cup of tea"))
]


def test_two_steps_with_a_vllm_judge_train_on_scores_only(tmp_path: Path) -> None:
    packaged_model_folder(progress=False)
    queries = tmp_path / "queries.jsonl"
    queries.write_text("".join(json.dumps(q) + "\n" for q in QUERIES), encoding="utf-8")
    command = small_run(
        tmp_path,
        "judged",
        queries,
        f"loop.steps={STEPS}",
        "loop.checkpoint_every=0",
        "judge.backend=vllm",
        f"judge.model={PREFIX}{NAME}",
        "judge.num_cpus=0",  # the two CPUs are the worker's and the learner's
        "judge.max_model_len=2048",
        "judge.max_tokens=128",
        "judge.max_ongoing_requests=8",
        "judge.max_failed_frac=1.0",
    )
    with Driver(command, tmp_path / "judged") as driver:
        driver.wait_for_step(STEPS, timeout_s=420.0)
        assert driver.wait(STEP_TIMEOUT_S + END_TIMEOUT_S) == 0, driver.output[-6000:]
        left_over = [str(p) for p in driver.left_over(10.0)]

    assert left_over == []
    assert_whole(driver.files, [str(q["id"]) for q in QUERIES], STEPS)
    rows = [row for _, step_rows in driver.files.read_rollouts() for row in step_rows]
    assert len(rows) == STEPS * GROUPS * ROLLOUTS
    verdicts = [v for row in rows for v in (*row["verdicts"].values(), *row["gold"].values())]
    failures = [v["failure"] for v in verdicts if v["score"] is None]
    assert len(failures) < len(verdicts), f"the judge scored nothing: {set(failures)}"
    assert set(failures) <= set(get_args(FailureKind))
    for row in rows:
        is_scored = all(v["score"] is not None for v in row["verdicts"].values())
        assert (row["reward"] is not None) == is_scored == row["graded"]
    assert any(row["reward"] is not None for row in rows)
    metrics = read_lines(driver.files.metrics)
    assert sum(row["judge/calls"] for row in metrics) > 0
    assert sum(row["judge/completion_tokens"] for row in metrics) > 0
