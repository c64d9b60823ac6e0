"""Published weights as files of this host."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from actors.weight_files import host_files
from core.records import WeightUpdate


async def test_a_shared_memory_update_is_the_published_file_itself() -> None:
    update = WeightUpdate(version=1, transport="shm", location="/dev/shm/x")
    assert [path async for path in host_files(update)] == ["/dev/shm/x"]


async def test_buckets_become_one_file_after_another_with_the_same_bits() -> None:
    weights = torch.tensor([[1.5, -2.25], [3.0e-3, 7.0]], dtype=torch.bfloat16)
    bits = weights.view(torch.uint16).numpy()
    bits.flags.writeable = False  # as the object store hands it out
    buckets = ({"a": bits}, {"b": np.zeros(3, dtype=np.uint16)})
    update = WeightUpdate(version=1, transport="object_store", buckets=buckets)
    seen: list[str] = []
    paths: list[Path] = []
    async for path in host_files(update):
        assert not any(p.exists() for p in paths), "one bucket at a time"
        paths.append(Path(path))
        tensors = load_file(path)
        seen += tensors
        if "a" in tensors:
            assert torch.equal(tensors["a"], weights)
    assert seen == ["a", "b"]
    assert not any(p.exists() for p in paths)
