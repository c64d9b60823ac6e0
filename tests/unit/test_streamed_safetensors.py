"""Weights written as they come are a file that safetensors' own reader takes."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from actors.streamed_safetensors import StreamedSafetensors


def tensors() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        "model.a": torch.randn(3, 5).bfloat16(),
        "b": torch.randn(5, 7).t().bfloat16(),  # not contiguous
        "schön": torch.tensor(1.5, dtype=torch.bfloat16),
        "odd": torch.randn(3).bfloat16(),
    }


def shapes(of: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in of.items()}


def test_the_library_reads_the_same_bits_and_the_format_of_torch(tmp_path: Path) -> None:
    written, path = tensors(), tmp_path / "policy-1.safetensors"
    with StreamedSafetensors(path, shapes(written)) as file:
        for name, tensor in written.items():
            assert not path.exists()
            file.add(name, tensor)
    read = load_file(path)
    assert set(read) == set(written)
    assert all(torch.equal(read[name], tensor) for name, tensor in written.items())
    with safe_open(path, framework="pt") as opened:
        assert opened.metadata() == {"format": "pt"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_midway_leaves_no_half_file_and_keeps_the_whole_one(tmp_path: Path) -> None:
    written, path = tensors(), tmp_path / "model.safetensors"
    path.write_bytes(b"the one before")

    def write_half() -> None:
        with StreamedSafetensors(path, shapes(written)) as file:
            file.add("model.a", written["model.a"])
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_half()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"the one before"


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("b", torch.zeros(5, 7).bfloat16(), r"got b .*wanted model\.a of shape \(3, 5\)"),
        ("model.a", torch.zeros(15).bfloat16(), r"got model\.a of shape \(15,\)"),
        ("model.a", torch.zeros(3, 5), r"in torch\.float32 .*wanted .* torch\.bfloat16"),
    ],
)
def test_another_tensor_than_the_next_one_is_refused(
    tmp_path: Path, name: str, tensor: Tensor, message: str
) -> None:
    path = tmp_path / "model.safetensors"
    with (
        pytest.raises(ValueError, match=message),
        StreamedSafetensors(path, shapes(tensors())) as file,
    ):
        file.add(name, tensor)
    assert not list(tmp_path.iterdir())


def test_a_file_without_all_its_tensors_is_not_kept(tmp_path: Path) -> None:
    written = tensors()
    with (
        pytest.raises(ValueError, match=r"got no b .*3 are missing"),
        StreamedSafetensors(tmp_path / "x.safetensors", shapes(written)) as file,
    ):
        file.add("model.a", written["model.a"])
    assert not list(tmp_path.iterdir())
