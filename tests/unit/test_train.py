"""``drivers.train`` on the command line: bad input, exit codes, signals. No Ray, no model."""

import asyncio
import errno
import json
import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.rubric_log import RubricLog
from core.errors import ConfigError, RolloutError, RunStopped
from core.records import Commit
from core.rubric import Criterion, Rubric
from drivers import cli, train
from drivers.config_file import load_config
from drivers.placement import check_resources, local_resources
from drivers.run_folder import RunFolder

QUICKSTART = "drivers/configs/quickstart.yaml"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATCHET_RUNS_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loop.stepz=3"], "got the unknown key `loop.stepz`"),
        (["data.train=absent.jsonl"], "got no readable file"),
        (["sampling.max_new_tokens=512"], "wanted room for a prompt"),
        (["rollout.tensor_parallel_size=2"], "wanted as many GPUs a worker"),
        (["policy.chat_template=absent.jinja"], "wanted a Jinja template or an existing file"),
        (["data.eval=null"], "without data.eval"),
        (["judge.backend=openai", "judge.model=m"], "without a key"),
        (["loop.groups_per_step=1000", "learner.mini_batches=1"], "wanted at least that many"),
        (["loop"], "wanted key=value"),
        (["evolution=ratchet"], "wanted: a section with its method"),
        (["runs_dir=/dev/null"], "/dev/null is no folder"),
        (["runs_dir=/dev/null/runs"], "/dev/null is no folder"),
        (["runs_dir=~no-such-user-here/runs"], "which names no folder"),
        (["runs_dir=/proc/runs"], "/proc cannot be written"),
        (['data.train="a\\0b"'], "got no readable file"),
        (["policy.model=packaged:other"], "it is the only one packed"),
        (["judge.backend=vllm", "judge.model=packaged:other"], "it is the only one packed"),
        (["policy.chat_template={% nonsense %}"], "which the chat template refuses"),
    ],
)
def test_bad_input_is_exit_code_2_with_one_sentence_and_nothing_written(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    overrides: list[str],
    message: str,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert train.main(["--config", QUICKSTART, *overrides]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert list(runs.iterdir()) == []


def test_a_missing_tracker_is_named_before_anything_starts(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.preflight.find_spec", lambda name: None)
    assert train.main(["--config", QUICKSTART, "trackers=[wandb]"]) == 2
    assert "run `pip install wandb`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (RunStopped("too many failures"), 1, "stopped: too many failures\n"),
        (RolloutError("no worker left"), 1, "stopped: no worker left\n"),
        (TimeoutError("the driver waited 120 s"), 1, "stopped: the driver waited 120 s\n"),
        (RunStopped("two\nlines"), 1, "stopped: two lines\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_run_that_ends_itself_says_why(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    shown: str,
) -> None:
    def broken(*_: object) -> int:
        raise error

    monkeypatch.setattr(train, "_run", broken)
    assert train.main(["--config", QUICKSTART]) == code
    assert capsys.readouterr().err == shown


def test_a_full_disk_stops_the_run_in_one_sentence_and_other_errors_keep_their_traceback(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(number, os.strerror(number), "runs/x/metrics.jsonl")

    monkeypatch.setattr(train, "_run", broken)
    number = errno.ENOSPC
    assert train.main(["--config", QUICKSTART]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("stopped: got No space left on device (runs/x/metrics.jsonl), wanted")
    assert shown.count("\n") == 1
    number = errno.EINVAL
    with pytest.raises(OSError, match="Invalid argument"):
        train.main(["--config", QUICKSTART])


def test_every_command_shows_its_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("train", "report", "packaged_model"):
        monkeypatch.setattr(sys, "argv", ["ratchet", command, "--help"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 0
        assert f"usage: ratchet {command}" in capsys.readouterr().out


# ---------------------------------------------------------------------- signals
class StubRun:
    """Trains until it is asked to stop; ``is_running`` is false while the parts start."""

    is_running = True
    was_closed = False

    def __init__(self, *_: object) -> None:
        self.stop = asyncio.Event()

    def request_stop(self) -> bool:
        self.stop.set()
        return self.is_running

    async def train(self) -> bool:
        try:
            await self.stop.wait()
            await asyncio.sleep(0.01)
            return False
        finally:
            type(self).was_closed = True


@pytest.fixture
def stub_run(monkeypatch: pytest.MonkeyPatch) -> type[StubRun]:
    made = type("Made", (StubRun,), {})
    module: Any = types.ModuleType("drivers.run")
    module.Run = made
    monkeypatch.setitem(sys.modules, "drivers.run", module)
    return made


async def driven(during: Callable[[], None]) -> int:
    nothing: Any = None
    asyncio.get_running_loop().call_later(0.02, during)
    running = train._train_until_signal(nothing, nothing, nothing, 0.0)
    return await asyncio.wait_for(running, 5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_running", [True, False])
async def test_a_signal_ends_the_run_with_its_code_and_closes_what_was_started(
    stub_run: type[StubRun], number: signal.Signals, is_running: bool
) -> None:
    stub_run.is_running = is_running
    assert await driven(lambda: os.kill(os.getpid(), number)) == 128 + number
    assert stub_run.was_closed


async def test_a_cancelled_driver_is_no_success(stub_run: type[StubRun]) -> None:
    task = asyncio.current_task()
    assert task is not None
    nothing: Any = None
    asyncio.get_running_loop().call_later(0.02, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await train._train_until_signal(nothing, nothing, nothing, 0.0)
    task.uncancel()
    assert stub_run.was_closed


def said_at_the_end(folder: RunFolder, *, waiting: int = 0, **summary: Any) -> str:
    """The last lines of a run whose rubric "q" has edits that wait."""
    log = RubricLog(folder.files.rubrics)
    rubric = Rubric(criteria=(Criterion(id="c", text="t"),))
    log.register({"q": rubric})
    place: dict[str, Any] = {"query_id": "q", "from_version": 0, "edits": (), "step": 1, "visit": 0}
    for i in range(waiting):
        log.propose(Commit(rubric=rubric.model_copy(update={"version": 1}), key=f"k{i}", **place))
    log.close()
    numbers = {"reward_first5": 0.25, "reward_last5": 0.5, "gold_first5": None, "gold_last5": None}
    given = {"method": "care", "steps": 30, "wall_s": 61.4} | numbers | summary
    folder.files.summary.write_text(json.dumps(given))
    return train._where_everything_is(folder)


def test_a_finished_run_says_what_came_out_and_where_it_lies(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    text = said_at_the_end(folder)
    assert "30 steps in 61 s" in text
    assert "the first and the last five steps: reward 0.250 -> 0.500, gold none" in text
    assert str(folder.files.report) in text
    assert str(folder.policy) in text
    assert "wait" not in text
    assert text.endswith(f"{sys.executable} -m drivers.report {tmp_path} --check\n")


@pytest.mark.parametrize("summary", [{"steps": 9}, {"method": "static"}])
def test_a_short_or_static_run_says_which_claims_are_not_made_of_it(
    tmp_path: Path, summary: dict[str, Any]
) -> None:
    text = said_at_the_end(RunFolder(tmp_path), **summary)
    assert "--check (a gain and a veto are claimed of ten steps or more" in text


def test_the_end_of_a_very_short_run_says_one_mean(tmp_path: Path) -> None:
    text = said_at_the_end(RunFolder(tmp_path), steps=5, reward_first5=0.5)
    assert "Mean of its steps: reward 0.500, gold none" in text


def test_the_end_of_a_run_says_how_many_edits_wait_for_a_person(tmp_path: Path) -> None:
    text = said_at_the_end(RunFolder(tmp_path), waiting=2)
    assert f"2 edits wait for a person: ratchet rubrics waiting {tmp_path}\n" in text


def test_more_gpus_than_there_are_end_the_run_before_ray_starts() -> None:
    config = load_config(
        str(Path(train.__file__).parent / "configs" / "quickstart.yaml"), ["rollout.num_gpus=4"]
    )
    with pytest.raises(ConfigError, match=r"got a cluster with 1 GPUs, wanted 4 .*lower num_gpus"):
        check_resources(config, {"GPU": 1.0, "CPU": 8.0})
    check_resources(config, {"GPU": 4.0, "CPU": 8.0})
    assert local_resources()["GPU"] >= 0


# ---------------------------------------------------------------------- branches
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--branch-from", "absent"], "got --branch-from alone, wanted --rubric with it"),
        (["--rubric", "1"], "got --rubric alone, wanted --branch-from with it"),
        (["--branch-from", "absent", "--rubric", "0"], "got --branch-from absent, no such folder"),
        (["--branch-from", "absent", "--rubric", "old"], "wanted a version number"),
    ],
)
def test_a_branch_from_nowhere_is_exit_code_2_with_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert train.main(["--config", "quickstart", *options, "name=b"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(runs.iterdir()) == []


def test_a_branch_draws_from_the_queries_that_its_method_drew_from(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A static run needs no anchors, but a branch of a CARE run leaves out what that left out."""
    row = {"messages": [{"role": "user", "content": "x"}], "rubric": [{"id": "c", "text": "t"}]}
    anchor = {"anchor": {"response": "good"}}
    rows = [row | {"id": "a"} | anchor, row | {"id": "b"}, row | {"id": "c"} | anchor]
    (runs / "q.jsonl").write_text("\n".join(json.dumps(r) for r in rows))
    start = runs / "source" / "checkpoints" / "step_00002"
    (start / "learner").mkdir(parents=True)
    identity = {"data_fingerprint": "f", "seed": 0, "groups_per_step": 2, "group_size": 8}
    position = {"step": 2, "next_draw": 4, "untrained": []}
    content = {"position": position, "identity": identity, "wall_s": 1.0}
    (start / "position.json").write_text(json.dumps(content))
    monkeypatch.setattr(train, "missing", lambda *_: [])
    taken: list[Any] = []
    monkeypatch.setattr(train, "_run", lambda *args: taken.extend(args) or 0)
    overrides = [
        "name=b",
        f"data.train={runs / 'q.jsonl'}",
        "data.missing_anchor=skip",
        "evolution.method=care",
        "loop.groups_per_step=2",
    ]
    command = ["--config", QUICKSTART, "--branch-from", str(start), "--rubric", "0", *overrides]
    assert train.main(command) == 0
    config, data, branch = taken
    assert [q.id for q in data.train] == ["a", "c"]
    assert config.evolution.method == "static"
    assert branch.start.position.step == 2
    assert train.main([*command[:4], "seed=0", *command[4:], "--dry-run", "loop.steps=30"]) == 0
    shown = capsys.readouterr().out
    assert "method: static" in shown
    assert f"from {start} (step 2), rubric 0, frozen; 28 more steps" in shown
