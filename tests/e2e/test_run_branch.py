"""A real run, and a branch from its checkpoint.

The source makes three steps at policy age 0 and keeps its checkpoint of step 2. The branch makes
step 3 from there under the rubrics as of the checkpoint, so that it sees what the source saw then.
Made once; each test looks at what was left. (How a branch goes on is in tests/unit/test_branch.py.)
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from actors.rubric_log import RubricLog
from drivers.packaged_model import packaged_model_folder
from drivers.report_check import check_run
from drivers.run_files import RunFiles
from tests.whole_run import END_TIMEOUT_S, START_TIMEOUT_S, Driver, Row, first_queries, small_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SHAPE = ("loop.max_policy_age=0", "loop.keep_checkpoints=3")


@dataclass(kw_only=True)
class Story:
    """What the two starts left."""

    source: RunFiles
    branch: RunFiles
    outputs: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    before: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of each of the source's files, before the branch and after."""
    after: dict[str, tuple[int, int]] = field(default_factory=dict)
    adam_steps: int = 0
    """What Adam has counted in the branch's first own checkpoint."""


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    found = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}


def run_to_its_end(story: Story, command: list[str], folder: Path) -> None:
    with Driver(command, folder) as driver:
        code = driver.wait(START_TIMEOUT_S + END_TIMEOUT_S)
        assert code == 0, driver.output[-6000:]
        story.left_over += [str(p) for p in driver.left_over(10.0)]
        story.outputs.append(driver.output)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    packaged_model_folder(progress=False)
    folder = tmp_path_factory.mktemp("branch")
    queries = folder / "queries.jsonl"
    first_queries(queries)
    story = Story(source=RunFiles(folder / "source"), branch=RunFiles(folder / "branch"))
    source = small_run(folder, "source", queries, "loop.steps=3", "loop.checkpoint_every=2", *SHAPE)
    run_to_its_end(story, source, story.source.folder)
    story.before = files_of(story.source.folder)
    checkpoint = story.source.checkpoints / "step_00002"
    options = ["--branch-from", str(checkpoint), "--rubric", "checkpoint"]
    branch = [*small_run(folder, "branch", queries, "loop.checkpoint_every=1", *SHAPE), *options]
    run_to_its_end(story, [*branch, "loop.steps=3"], story.branch.folder)
    story.after = files_of(story.source.folder)
    story.adam_steps = adam_steps(story.branch.checkpoints / "step_00003")
    return story


def adam_steps(checkpoint: Path) -> int:
    (path,) = (checkpoint / "learner" / "learner").glob("mp_rank_*_model_states.pt")
    saved = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    (steps,) = {int(state["step"]) for state in saved["optimizer"]["state"].values()}
    return steps


def rollouts(files: RunFiles, step: int) -> list[Row]:
    return dict(files.read_rollouts())[step]


def test_the_branch_begins_after_the_checkpoint_and_leaves_no_process(story: Story) -> None:
    assert story.left_over == []
    assert "evolution.method=ratchet is static here, with scope=query" in story.outputs[1]
    assert "going on after step 2" in story.outputs[1]
    summary = json.loads(story.branch.summary.read_bytes())
    assert (summary["method"], summary["steps"], summary["resumed"]) == ("static", 1, False)
    assert [step for step, _ in story.branch.read_rollouts()] == [3]


def test_the_branch_sees_what_its_source_saw_after_the_checkpoint(story: Story) -> None:
    own, before = rollouts(story.branch, 3), rollouts(story.source, 3)
    place = [[(r["query_id"], r["visit"], r["index"]) for r in rows] for rows in (own, before)]
    assert place[0] == place[1]
    same = sum(a["response"] == b["response"] for a, b in zip(own, before, strict=True))
    # The same weights and sampling seeds; another grouping in vLLM can flip a token here or there.
    assert same >= len(own) // 2, f"{same} of {len(own)} rollouts are the same"


def test_the_optimizer_counts_on_from_the_sources_steps(story: Story) -> None:
    mini_batches = 2  # of the quickstart
    assert story.adam_steps == 3 * mini_batches


def test_the_rubric_is_the_checkpoints_and_stays(story: Story) -> None:
    record = json.loads(story.branch.branch.read_bytes())
    assert record["checkpoint"] == str(story.source.checkpoints / "step_00002")
    assert (record["step"], record["asked"]["rubric"]) == (2, "checkpoint")
    versions = {name: r["version"] for name, r in record["rubrics"].items()}
    assert max(versions.values()) > 0, "the source made no edit by step 2: nothing is shown"
    source = RubricLog(story.source.rubrics, is_read_only=True)
    branch = RubricLog(story.branch.rubrics, is_read_only=True)
    for name, version in versions.items():
        wanted = source.history(name)[version].rubric
        (only,) = branch.history(name)
        assert only.rubric.criteria == wanted.criteria
        assert wanted.digest() == record["rubrics"][name]["digest"]
    source.close()
    branch.close()
    used = Counter(r["rubric_version"] for _, rows in story.branch.read_rollouts() for r in rows)
    assert set(used) == {0}
    assert not story.branch.events.is_file()
    for claim in check_run(story.branch, min_gain=-1.0):
        if not claim.text.startswith(("gold rose", "an adaptive edit")):
            assert claim.holds, claim.lines()


def test_the_sources_folder_is_never_written(story: Story) -> None:
    assert story.after == story.before
