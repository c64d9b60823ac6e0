"""An offline run in its folder: finished, gone on with, refused, summed up. No torch."""

import json
from pathlib import Path

import pytest

from core.config_offline import OfflineConfig
from core.errors import ConfigError
from drivers import offline, offline_plan
from drivers.offline_data import load_offline_data
from drivers.offline_run import Start, begin, finish, is_finished, mark_whole, summary_of
from drivers.run_files import RunFiles
from tests.unit.offline_rig import config_of, scripts, small_command, write_rows


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a small run; TRL need not be there."""
    monkeypatch.setattr(offline_plan, "find_spec", lambda name: object())
    return small_command(tmp_path)


def folder_of(config: OfflineConfig) -> RunFiles:
    return RunFiles(Path(str(config.runs_dir)) / config.name)


def checkpoint(files: RunFiles, step: int, fingerprint: str = "", *, is_whole: bool = True) -> Path:
    folder = files.checkpoints / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text("{}")
    if is_whole:
        mark_whole(folder, step, 10.0 * step, fingerprint)
    return folder


def test_a_run_goes_on_from_the_newest_whole_checkpoint_and_forgets_what_came_after(
    command: list[str],
) -> None:
    config = config_of(command)
    files, data = folder_of(config), load_offline_data(config)
    assert begin(config, files, data) == Start()
    for step in (0, 1, 2, 3, 4):
        files.write_step(step, step, {"loss": float(step)})
    whole, cut = checkpoint(files, 2, data.fingerprint), checkpoint(files, 4, is_whole=False)
    assert begin(config, files, data) == Start(checkpoint=str(whole), step=2, wall_s=20.0)
    assert not cut.exists()
    steps = [json.loads(line)["step"] for line in files.metrics.read_text().splitlines()]
    assert steps == [0, 1, 2]


def test_fresh_starts_over(command: list[str]) -> None:
    config = config_of(command)
    files, data = folder_of(config), load_offline_data(config)
    begin(config, files, data)
    whole = checkpoint(files, 2, data.fingerprint)
    files.write_step(1, 1, {"loss": 1.0})
    assert begin(config_of(command, "fresh=true", "seed=4"), files, data) == Start()
    assert not whole.exists()
    assert not files.metrics.exists()


def test_a_finished_run_says_so_and_other_settings_or_rows_are_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(command)
    files, data = folder_of(config), load_offline_data(config)
    begin(config, files, data)
    assert not is_finished(config, files, data)
    finish(config, files, data, {"wall_s": 1.0})
    assert offline.main(command) == 0
    assert "is finished" in capsys.readouterr().out
    assert offline.main([*command, "trackers=[]", "loop.keep_checkpoints=9"]) == 0
    assert offline.main([*command, "learner.lr=1", "loop.epochs=9"]) == 2
    assert "got learner.lr=1.0 for a run that began with 1e-05 (and 1 more" in (
        capsys.readouterr().err
    )
    write_rows(tmp_path / "rows.jsonl", scripts(14))
    assert offline.main(command) == 2
    assert "got other rows in data.train" in capsys.readouterr().err


def test_a_checkpoint_of_other_rows_is_not_gone_on_from(command: list[str]) -> None:
    config = config_of(command)
    files, data = folder_of(config), load_offline_data(config)
    checkpoint(files, 2, "another")
    with pytest.raises(ConfigError, match="got other rows"):
        begin(config, files, data)


def test_the_folder_of_a_run_with_rollouts_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = folder_of(config_of(command))
    files.write_config("name: sft_scripts\nloop: {steps: 3}\n")
    assert offline.main(command) == 2
    assert "holds another kind of run" in capsys.readouterr().err


def test_a_run_that_another_process_writes_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = folder_of(config_of(command))
    with files.lock():
        assert offline.main(command) == 2
    assert "wanted one driver a run" in capsys.readouterr().err


def test_the_summary_adds_up_the_metrics_and_leaves_out_what_is_not_there() -> None:
    rows = [
        {"step": 0, "val/loss": 3.0},
        {"step": 1, "loss": 2.0, "timing_s/step": 1.0},
        {"step": 2, "loss": 1.0, "timing_s/step": 3.0, "val/loss": 1.5},
        {"step": 3, "loss": 0.0, "timing_s/step": 2.0, "val/loss": 2.5},
    ]
    assert summary_of(rows) == {
        "steps": 3,
        "step_s_mean": 2.0,
        "loss_first5": 1.0,
        "loss_last5": 1.0,
        "val_loss_first": 3.0,
        "val_loss_last": 2.5,
        "val_loss_best": 1.5,
        "val_loss_best_step": 2,
    }
    assert summary_of([])["val_loss_best"] is None
    assert summary_of([])["loss_first5"] is None


def test_a_run_that_made_no_checkpoint_may_begin_again_with_other_settings(
    command: list[str],
) -> None:
    config = config_of(command)
    files, data = folder_of(config), load_offline_data(config)
    begin(config, files, data)
    other = config_of(command, "learner.lr=0.5")
    assert not is_finished(other, files, data)
    assert begin(other, files, data) == Start()
    checkpoint(files, 2, data.fingerprint)
    with pytest.raises(ConfigError, match=r"got learner.lr=1e-05 for a run that began with 0\.5"):
        begin(config, files, data)
