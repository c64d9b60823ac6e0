"""The publishing side of weight sync and of export: full bf16 tensors out of a sharded policy.

``collect_weights`` runs on all ranks in one order, since ranks meet in gathers; rank 0 gets the
tensors, bucket by bucket, the others nothing. Names are the Hugging Face ones; the output head is
always named, also where it is tied to the embeddings: an engine that keeps a head of its own would
silently keep the old one. A tensor without elements (a sharded placeholder) is refused.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import ray
import torch
from torch import Tensor
from transformers import PreTrainedModel

from actors.streamed_safetensors import StreamedSafetensors
from core.errors import WeightSyncError
from core.records import WeightUpdate

BUCKET_ELEMENTS = 64_000_000
"""Most elements gathered at one time."""
KEPT_FILES = 2
"""Published files left in the folder: the new one and the one a slow worker may still read."""

Bucket = dict[str, Tensor]


def collect_weights(
    model: PreTrainedModel, *, rank: int, has_tied_head: bool = True
) -> Iterator[Bucket]:
    """Yield buckets of bf16 tensors on CPU (rank 0) or empty ones (other ranks).

    ``has_tied_head``: whether a head that is tied to the embeddings is among them.
    """
    for bucket in _buckets(model, has_tied_head=has_tied_head):
        with _gathered([param for _, param in bucket]):
            yield {name: _copied(name, param) for name, param in bucket} if rank == 0 else {}


def publish_file(model: PreTrainedModel, version: int, folder: str, *, rank: int) -> WeightUpdate:
    """Write ``policy-<version>.safetensors`` (complete or absent, never half) and return it.

    Raises WeightSyncError where there is no such folder: the driver has none on this host, or has
    removed it since.
    """
    path = Path(folder) / f"policy-{version}.safetensors"
    try:
        sums = write_file(model, path, rank=rank)
    except FileNotFoundError as error:
        raise WeightSyncError(
            f"got no folder {folder} on the learner's host, wanted the one that the driver made "
            "(shm needs driver, learner and workers on one host: set rollout.weight_transport to "
            "object_store otherwise)"
        ) from error
    if rank == 0:
        _remove_older(path)
    return WeightUpdate(version=version, transport="shm", location=str(path), checksums=sums)


def publish_objects(model: PreTrainedModel, version: int, *, rank: int) -> WeightUpdate:
    """Put buckets into Ray's object store; each is ``{name: uint16 array of the bf16 bits}``.

    Numpy arrays are read without a copy on the other side; torch tensors would be pickled.
    """
    refs: list[object] = []
    sums: dict[str, float] = {}
    for bucket in collect_weights(model, rank=rank):
        sums |= checksums(bucket)
        if bucket:
            arrays = {name: tensor.view(torch.uint16).numpy() for name, tensor in bucket.items()}
            refs.append(ray.put(arrays))
    return WeightUpdate(
        version=version, transport="object_store", buckets=tuple(refs), checksums=sums
    )


def write_file(
    model: PreTrainedModel, path: Path, *, rank: int, has_tied_head: bool = True
) -> dict[str, float]:
    """Write all weights as one file (rank 0) and return their checksums; at most one bucket is in
    memory beside the model. Every rank must call it."""
    sums: dict[str, float] = {}
    buckets = collect_weights(model, rank=rank, has_tied_head=has_tied_head)
    if rank != 0:
        for _ in buckets:
            pass
        return sums
    shapes = {name: _whole_shape(p) for name, p in _named(model, has_tied_head=has_tied_head)}
    try:
        with StreamedSafetensors(path, shapes) as file:
            for bucket in buckets:
                sums |= checksums(bucket)
                while bucket:  # no tensor stays until the next bucket is made
                    name = next(iter(bucket))
                    file.add(name, bucket.pop(name))
    except Exception:
        for _ in buckets:  # the other ranks are in its gathers
            pass
        raise
    return sums


def checksums(weights: Bucket) -> dict[str, float]:
    """Sums of the tensors that no engine fuses with others: embeddings, head, norms."""
    return {
        name: float(tensor.sum(dtype=torch.float64))
        for name, tensor in weights.items()
        if "embed_tokens" in name or name == "lm_head.weight" or name.endswith("norm.weight")
    }


def _buckets(
    model: PreTrainedModel, *, has_tied_head: bool
) -> Iterator[list[tuple[str, torch.nn.Parameter]]]:
    bucket: list[tuple[str, torch.nn.Parameter]] = []
    size = 0
    for name, param in _named(model, has_tied_head=has_tied_head):
        elements = int(getattr(param, "ds_numel", param.numel()))
        if bucket and size + elements > BUCKET_ELEMENTS:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, param))
        size += elements
    if bucket:
        yield bucket


def _named(
    model: PreTrainedModel, *, has_tied_head: bool
) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Every parameter once, then the head again under its own name when it is tied."""
    yield from model.named_parameters()
    head: Any = model.get_output_embeddings()
    if has_tied_head and _is_tied(model):
        yield "lm_head.weight", head.weight


def _whole_shape(param: torch.nn.Parameter) -> tuple[int, ...]:
    """The parameter's shape, also where this rank holds a shard of it or nothing."""
    return tuple(getattr(param, "ds_shape", param.shape))


def _gathered(params: list[torch.nn.Parameter]) -> AbstractContextManager[object]:
    """Whole parameters inside the block under ZeRO stage 3; nothing to do at other stages."""
    if not any(hasattr(param, "ds_id") for param in params):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(params, modifier_rank=None)


def _is_tied(model: PreTrainedModel) -> bool:
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


def _copied(name: str, param: torch.nn.Parameter) -> Tensor:
    """A bf16 copy of its own, which outlives the gathered parameter."""
    if param.numel() == 0:
        raise WeightSyncError(
            f"got an empty tensor for {name}, wanted the whole parameter: it is still sharded"
        )
    return param.detach().to("cpu", torch.bfloat16, copy=True).contiguous()


def _remove_older(newest: Path) -> None:
    files = sorted(newest.parent.glob("policy-*.safetensors"), key=_version)
    unfinished = newest.parent.glob("policy-*.tmp")  # of a learner that was killed
    for path in (*files[:-KEPT_FILES], *unfinished):
        if path != newest:
            path.unlink(missing_ok=True)


def _version(path: Path) -> int:
    number = path.stem.removeprefix("policy-")
    return int(number) if number.isdigit() else -1
