"""Numbers that ranks agree on: sums, maxima, and whether any of them must stop."""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist


def summed(values: Mapping[str, float], maxima: Sequence[str] = ()) -> dict[str, float]:
    """Add each value up over all ranks; those named in ``maxima`` become the largest one.

    Every rank must give the same names.
    """
    sums = {name: value for name, value in values.items() if name not in maxima}
    largest = {name: value for name, value in values.items() if name in maxima}
    return _reduced(sums, dist.ReduceOp.SUM) | _reduced(largest, dist.ReduceOp.MAX)


def gathered_if_any(is_bad: bool, items: Sequence[str]) -> list[str] | None:
    """None when no rank is bad; else the sorted items of the bad ranks, the same on all ranks."""
    if not _reduced({"bad": float(is_bad)}, dist.ReduceOp.MAX)["bad"]:
        return None
    parts: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(parts, list(items) if is_bad else [])
    return sorted({item for part in parts for item in part})


def _reduced(values: Mapping[str, float], op: dist.ReduceOp.RedOpType) -> dict[str, float]:
    if not values or dist.get_world_size() == 1:
        return dict(values)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    tensor = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=op)
    return dict(zip(values, tensor.tolist(), strict=True))
