import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from actors.streamed_safetensors import StreamedSafetensors
from actors.weights import publish_file
from core.errors import WeightSyncError
from drivers import weights_folder
from drivers.weights_folder import KEPT, make_weights_folder, remove_weights_folders


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(weights_folder, "_parent", lambda: folder)
    return folder


def tiny_policy():
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 16}
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **size))


def test_a_start_removes_what_killed_starts_of_the_run_left(memory: Path, tmp_path: Path) -> None:
    first = make_weights_folder(tmp_path / "a")
    (first / "policy-1.safetensors").write_bytes(b"x")
    half_removed = first.with_name(f"{first.name}x.removed")
    half_removed.mkdir()
    other = make_weights_folder(tmp_path / "b")
    second = make_weights_folder(tmp_path / "a")
    assert sorted(memory.iterdir()) == sorted([other, second])
    remove_weights_folders(tmp_path / "a")
    assert list(memory.iterdir()) == [other]


@pytest.mark.parametrize("inside", [".", KEPT])
def test_a_learner_that_outlives_its_driver_makes_no_folder_again(
    memory: Path, tmp_path: Path, inside: str
) -> None:
    folder = make_weights_folder(tmp_path / "run")
    policy = tiny_policy()
    update = publish_file(policy, 1, str(folder / inside), rank=0)
    assert "lm_head.weight" in load_file(update.location)
    remove_weights_folders(tmp_path / "run")
    with pytest.raises(WeightSyncError, match="weight_transport to object_store"):
        publish_file(policy, 2, str(folder / inside), rank=0)
    assert list(memory.iterdir()) == []


def test_a_learner_in_the_middle_of_a_file_leaves_nothing(memory: Path, tmp_path: Path) -> None:
    folder = make_weights_folder(tmp_path / "run")
    path = folder / "policy-1.safetensors"

    def write() -> None:
        with StreamedSafetensors(path, {"a": (1,)}) as file:
            remove_weights_folders(tmp_path / "run")
            file.add("a", torch.zeros(1, dtype=torch.bfloat16))

    with pytest.raises(FileNotFoundError):
        write()
    assert list(memory.iterdir()) == []


def test_a_folder_that_cannot_be_renamed_is_left_and_the_start_goes_on(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_weights_folder(tmp_path / "run")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "rename", refuse)
    monkeypatch.setattr(Path, "rename", refuse)
    second = make_weights_folder(tmp_path / "run")
    assert {first, second} <= set(memory.iterdir())
