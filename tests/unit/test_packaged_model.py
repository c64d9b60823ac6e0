"""The packaged model: names, the lock, and a folder that appears whole or not at all."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers import packaged_model
from drivers.packaged_model import packaged_model_folder, resolve_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ratchet" / "models"


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Replace the 20 seconds of conversion by writing the files; return the folders written."""
    gguf = tmp_path / "model.gguf"
    gguf.touch()
    written: list[Path] = []

    def convert(source: Path, folder: Path, progress: bool) -> None:
        written.append(folder)
        for name in packaged_model._FILES:
            (folder / name).write_text(source.name)

    monkeypatch.setattr(packaged_model, "find_gguf", lambda: gguf)
    monkeypatch.setattr(packaged_model, "_convert", convert)
    return written


def test_another_name_is_left_alone() -> None:
    assert resolve_model("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    assert resolve_model("/models/x") == "/models/x"


def test_an_unknown_packaged_name_says_which_one_there_is() -> None:
    with pytest.raises(ConfigError, match=r"got model 'packaged:gpt'.*smollm2-135m-instruct"):
        resolve_model("packaged:gpt")


def test_a_missing_package_says_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged_model, "_PACKAGE", "no_such_package_here")
    with pytest.raises(ConfigError, match=r"got no package.*wanted.*pip install"):
        resolve_model("packaged:smollm2-135m-instruct")


def test_the_model_is_unpacked_once(cache: Path, conversions: list[Path]) -> None:
    first = packaged_model_folder(progress=False)
    assert first == cache / "smollm2-135m-instruct"
    assert packaged_model_folder(progress=False) == first
    assert len(conversions) == 1
    assert sorted(p.name for p in first.iterdir()) == sorted(packaged_model._FILES)


def test_a_failed_conversion_leaves_no_folder(
    cache: Path, conversions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(source: Path, folder: Path, progress: bool) -> None:
        (folder / "config.json").touch()
        raise OSError("disk full")

    monkeypatch.setattr(packaged_model, "_convert", fails)
    with pytest.raises(OSError, match="disk full"):
        packaged_model_folder()
    assert [p.name for p in cache.iterdir()] == [".smollm2-135m-instruct.lock"]


def test_a_damaged_folder_and_what_a_killed_process_left_are_replaced(
    cache: Path, conversions: list[Path]
) -> None:
    folder = packaged_model_folder()
    (folder / "model.safetensors").unlink()
    (cache / ".smollm2-135m-instruct.tmp-killed").mkdir()
    assert packaged_model_folder() == folder
    assert len(conversions) == 2
    assert (folder / "model.safetensors").exists()
    assert not list(cache.glob(".*.tmp-*"))


def test_waiting_for_another_process_has_a_limit(
    cache: Path, conversions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged_model, "_LOCK_TIMEOUT_S", 0.3)
    cache.mkdir(parents=True)
    with (cache / ".smollm2-135m-instruct.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process"):
            packaged_model_folder()
    assert conversions == []


def test_importing_it_needs_no_torch() -> None:
    code = (
        "import sys, drivers.packaged_model; "
        "assert not {'torch', 'transformers'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
