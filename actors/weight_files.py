"""A published weight update as safetensors files of this host, one after another.

``shm``: the one file the learner wrote. ``object_store``: each bucket is written to a file of its
own, which is gone when the next is asked for, so at most one bucket is in memory twice. vLLM's
processes are no Ray processes and cannot read the object store themselves.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from core.records import WeightUpdate

_MEMORY_FOLDER = Path("/dev/shm")


async def host_files(update: WeightUpdate) -> AsyncIterator[str]:
    """Yield paths that hold the update's tensors; a path is valid until the next one is asked."""
    match update.transport:
        case "shm":
            yield update.location
        case "object_store":
            for bucket in update.buckets:
                path = await asyncio.to_thread(write_bucket, await _fetched(bucket))
                try:
                    yield path
                finally:
                    os.unlink(path)


async def _fetched(bucket: Any) -> Mapping[str, np.ndarray]:
    """Return the bucket's arrays: it is an object reference, or (in one process) a plain dict."""
    return bucket if isinstance(bucket, Mapping) else await bucket


def write_bucket(bucket: Mapping[str, np.ndarray]) -> str:
    """Write ``{name: uint16 array of bf16 bits}`` as a bf16 safetensors file in memory."""
    tensors = {
        # A copy: the object store's arrays are read-only, which torch does not represent.
        name: torch.from_numpy(array.copy()).view(torch.bfloat16)
        for name, array in bucket.items()
    }
    folder = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK) else None
    handle, path = tempfile.mkstemp(prefix="ratchet-bucket-", suffix=".safetensors", dir=folder)
    os.close(handle)
    save_file(tensors, path)
    return path
