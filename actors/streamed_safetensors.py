"""A safetensors file of bf16 tensors that is written as they come, none of them kept.

The format wants all names and shapes before the first tensor, so they are given first (the
library's own writer wants every tensor in memory at once). Tensors are then added in that order.
The file has a temporary name until it is whole; one that is not finished is removed.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

_ALIGNMENT = 8
"""Of the first tensor's bytes, as the library's writer has it."""
_BYTES = 2
"""Of a bf16 number."""

Shapes = Mapping[str, Sequence[int]]


class StreamedSafetensors:
    """``with StreamedSafetensors(path, shapes) as file: file.add(name, tensor)`` for each."""

    def __init__(self, path: Path, shapes: Shapes) -> None:
        """``shapes``: of every tensor that will be added, in that order."""
        self._path = path
        self._partial = path.with_suffix(".tmp")
        self._awaited = {name: tuple(shape) for name, shape in shapes.items()}

    def __enter__(self) -> Self:
        self._file = self._partial.open("wb")
        try:
            self._file.write(header_bytes(self._awaited))
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._remove()

    def add(self, name: str, tensor: Tensor) -> None:
        """Write the next tensor's bytes; it may be freed afterwards."""
        wanted = next(iter(self._awaited.items()), None)
        got = (name, tuple(tensor.shape))
        if got != wanted or tensor.dtype != torch.bfloat16:
            raise ValueError(
                f"got {got[0]} of shape {got[1]} in {tensor.dtype} for {self._path}, wanted "
                f"{'nothing more' if wanted is None else f'{wanted[0]} of shape {wanted[1]}'} in "
                "torch.bfloat16: add tensors in the order of the shapes that were given"
            )
        self._file.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        del self._awaited[name]

    def _finish(self) -> None:
        if self._awaited:
            raise ValueError(
                f"got no {next(iter(self._awaited))} for {self._path}, wanted every tensor whose "
                f"shape was given: {len(self._awaited)} are missing"
            )
        self._file.close()
        os.replace(self._partial, self._path)

    def _remove(self) -> None:
        """Close and remove the unfinished file; a finished one has its own name by now."""
        try:
            self._file.close()  # writes what is buffered, which fails on a full disk
        finally:
            self._partial.unlink(missing_ok=True)


def header_bytes(shapes: Shapes) -> bytes:
    """Return length and JSON of the header: dtype, shape and place of every tensor."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, shape in shapes.items():
        end = place + math.prod(shape) * _BYTES
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
