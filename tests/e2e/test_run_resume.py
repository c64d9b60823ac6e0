"""One real run, stopped by SIGTERM, killed, and each time gone on with by the same command.

The run is made once, in three starts; each test looks at what it left. The first start is stopped
at step 3, the second one's driver is killed with SIGKILL between two checkpoints, the third ends.
"""

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from drivers.checkpoint import latest_checkpoint
from drivers.packaged_model import packaged_model_folder
from drivers.run_files import RunFiles
from tests.whole_run import (
    END_TIMEOUT_S,
    STEP_TIMEOUT_S,
    Driver,
    accepted_events,
    accepted_in_store,
    assert_whole,
    first_queries,
    read_lines,
    small_run,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

# Two of Ray's own processes find out by and by that a killed driver's cluster is gone.
RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")

STEPS = 8
CHECKPOINT_EVERY = 2
MINI_BATCHES = 2


@dataclass(kw_only=True)
class Moment:
    """What stood on disk when a start of the run was over."""

    code: int
    step: int
    """The last step with a metrics line."""
    saved: int
    """The step of the newest whole checkpoint."""
    optimizer_steps: int
    """What Adam has counted in that checkpoint."""
    rollouts: dict[str, bytes]
    events: Counter[str]
    store: Counter[str]
    left_over: list[str]
    """Processes that run 10 seconds after the driver."""
    output: str


@dataclass(kw_only=True)
class Story:
    """The run's folder and its three ends."""

    files: RunFiles
    command: list[str]
    query_ids: list[str]
    moments: list[Moment] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    """Processes of any start that run when all is over."""
    weights_left: list[str] = field(default_factory=list)
    """Published weights in shared memory when all is over."""


def optimizer_steps(checkpoint: Path) -> int:
    (path,) = (checkpoint / "learner" / "learner").glob("mp_rank_*_model_states.pt")
    saved = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    (steps,) = {int(state["step"]) for state in saved["optimizer"]["state"].values()}
    return steps


def moment(driver: Driver, code: int) -> Moment:
    files = driver.files
    found = latest_checkpoint(files.checkpoints)
    assert found is not None, driver.output[-6000:]
    left_over = [str(p) for p in driver.left_over(10.0)]
    return Moment(
        code=code,
        step=driver.num_steps,
        saved=found.position.step,
        optimizer_steps=optimizer_steps(found.folder),
        rollouts={p.name: p.read_bytes() for p in sorted(files.rollouts.glob("*.jsonl"))},
        events=accepted_events(files),
        store=accepted_in_store(files),
        left_over=left_over,
        output=driver.output,
    )


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    packaged_model_folder(progress=False)
    folder = tmp_path_factory.mktemp("resume")
    query_ids = first_queries(folder / "queries.jsonl")
    command = small_run(
        folder,
        "resumed",
        folder / "queries.jsonl",
        f"loop.steps={STEPS}",
        f"loop.checkpoint_every={CHECKPOINT_EVERY}",
        f"learner.mini_batches={MINI_BATCHES}",
    )
    run = folder / "resumed"
    story = Story(files=RunFiles(run), command=command, query_ids=query_ids)
    with ExitStack() as starts:
        stopped = starts.enter_context(Driver(command, run))
        stopped.wait_for_step(3)
        stopped.interrupt()
        story.moments.append(moment(stopped, stopped.wait(STEP_TIMEOUT_S + END_TIMEOUT_S)))
        saved = story.moments[0].saved
        killed = starts.enter_context(Driver(command, run))
        # A step past a checkpoint, so that the kill loses a trained step.
        killed.wait_for_step(saved + CHECKPOINT_EVERY + 1 - saved % CHECKPOINT_EVERY)
        killed.kill()
        story.moments.append(moment(killed, killed.wait(1)))
        ended = starts.enter_context(Driver(command, run))
        ended.wait_for_step(STEPS)
        story.moments.append(moment(ended, ended.wait(END_TIMEOUT_S)))
        story.left_over = [str(p) for d in (stopped, killed, ended) for p in d.left_over(10.0)]
    story.weights_left = sorted(str(p) for p in Path("/dev/shm").glob("ratchet-resumed-*"))
    return story


def test_sigterm_ends_the_run_with_143_and_a_checkpoint_of_its_last_step(story: Story) -> None:
    stopped = story.moments[0]
    assert stopped.code == 143, stopped.output[-6000:]
    assert 3 <= stopped.step < STEPS
    assert stopped.saved == stopped.step
    assert stopped.optimizer_steps == stopped.step * MINI_BATCHES
    assert len(stopped.rollouts) == stopped.step
    assert "the same command goes on from there" in stopped.output


def test_a_killed_driver_leaves_the_checkpoint_before_it(story: Story) -> None:
    stopped, killed, _ = story.moments
    assert killed.code == -9
    assert f"going on after step {stopped.saved}" in killed.output
    assert stopped.saved < killed.saved < killed.step < STEPS
    assert killed.optimizer_steps == killed.saved * MINI_BATCHES


def test_the_last_start_finishes_the_run(story: Story) -> None:
    _, killed, ended = story.moments
    assert ended.code == 0, ended.output[-6000:]
    assert f"going on after step {killed.saved}" in ended.output
    assert ended.saved == ended.step == STEPS
    assert ended.optimizer_steps == STEPS * MINI_BATCHES
    summary = json.loads(story.files.summary.read_bytes())
    assert summary["resumed"] is True
    assert summary["steps"] == STEPS
    assert (story.files.policy / "config.json").is_file()
    assert story.files.report.is_file()


def test_queries_versions_and_edits_go_on_as_if_nothing_had_happened(story: Story) -> None:
    assert_whole(story.files, story.query_ids, STEPS)
    visits = {row["visit"] for _, rows in story.files.read_rollouts() for row in rows}
    assert visits == set(range(STEPS // 2)), "each of four queries is drawn every second step"


def test_what_a_checkpoint_holds_is_kept_letter_for_letter(story: Story) -> None:
    for before, after in zip(story.moments, story.moments[1:], strict=False):
        kept = list(before.rollouts)[: before.saved]
        assert kept, "a checkpoint holds at least one step"
        assert all(after.rollouts[name] == before.rollouts[name] for name in kept)


def test_no_acknowledged_edit_of_a_kept_step_is_lost(story: Story) -> None:
    assert sum(story.moments[-1].store.values()) > 0, "the run made no edit: nothing is shown"
    for before in story.moments[:-1]:
        for seen in (before.events, before.store):
            kept = Counter(e for e in seen.elements() if json.loads(e)[3] <= before.saved)
            assert not kept - story.moments[-1].store
            assert not kept - story.moments[-1].events


def test_no_start_leaves_a_process_or_weights(story: Story) -> None:
    stopped, killed, ended = story.moments
    assert stopped.left_over == []
    assert [p for p in killed.left_over if not any(name in p for name in RAY_AGENTS)] == []
    assert ended.left_over == []
    assert story.left_over == []
    assert story.weights_left == []


def test_the_same_command_on_the_finished_run_says_so_within_seconds(story: Story) -> None:
    metrics = read_lines(story.files.metrics)
    with Driver(story.command, story.files.folder) as driver:
        assert driver.wait(20.0) == 0, driver.output
    assert "is finished" in driver.output
    assert "fresh=true" in driver.output
    assert read_lines(story.files.metrics) == metrics
