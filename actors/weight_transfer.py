"""vLLM's side of weight sync: a transfer engine that reads safetensors files of this host.

Imported in vLLM's worker processes by ``worker_extension_cls``; the import registers the engine
under the name that the engine arguments use. A file holds the whole model or one bucket of it,
under Hugging Face names, in bf16. vLLM loads it layer by layer while requests are paused, not
aborted. Tied output heads are loaded too: on CPU vLLM keeps a packed copy of the head, which a
file without ``lm_head.weight`` would leave at its old values without an error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from actors.engine_guard import EngineGuard
from core.engine_args import WEIGHT_BACKEND

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


@dataclass
class HostFileInitInfo(WeightTransferInitInfo):
    """Nothing to agree on beforehand."""


@dataclass
class HostFileUpdateInfo(WeightTransferUpdateInfo):
    """One chunk of an update."""

    path: str
    """A safetensors file that this host can read."""


class HostFileTransferEngine(WeightTransferEngine[HostFileInitInfo, HostFileUpdateInfo]):
    """Loads safetensors files through vLLM's layer-wise reload."""

    init_info_cls = HostFileInitInfo
    update_info_cls = HostFileUpdateInfo

    def init_transfer_engine(self, init_info: HostFileInitInfo) -> None:
        """Do nothing: a file needs no rendezvous."""

    def start_weight_update(self) -> None:
        """Put the layers into the state in which they take checkpoint weights."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, str]) -> None:
        """Load one file; the base class synchronises an accelerator, which a CPU has not."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: HostFileUpdateInfo) -> None:
        """Load the tensors of the file into the model."""
        is_tied = bool(getattr(self.model_config.hf_config, "tie_word_embeddings", False))
        self.model.load_weights(read_tensors(update_info.path, is_tied=is_tied))  # type: ignore[operator]

    def finish_weight_update(self) -> None:
        """Process the loaded layers (packing for CPU, quantisation)."""
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing is held between updates."""


def read_tensors(path: str, *, is_tied: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the file's tensors, and the head of a tied model if the file leaves it out."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        for name in names:
            tensor = file.get_tensor(name)
            if tensor.numel() == 0:
                raise ValueError(f"got tensor {name} of size 0 in {path}, wanted its full weights")
            yield name, tensor
            if is_tied and name == EMBEDDING and HEAD not in names:
                yield HEAD, tensor


def file_sums(paths: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Sums of the named tensors as the files hold them (64-bit, so order hardly matters)."""
    sums: dict[str, float] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in set(names) & set(file.keys()):
                sums[name] = tensor_sum(file.get_tensor(name))
    return sums


def tensor_sum(tensor: torch.Tensor) -> float:
    """Sum in 64 bits, in slices so that no 64-bit copy of the tensor exists."""
    return sum(float(part.double().sum()) for part in tensor.flatten().split(1 << 20))


class WeightTransferExtension(EngineGuard):
    """What rollout workers can ask of vLLM's workers beyond its own calls."""

    def ratchet_model_sums(self, names: Sequence[str]) -> dict[str, float]:
        """Sums of the named tensors as the model holds them now.

        Left out: what vLLM fuses or packs (projections), and tensors that are split over ranks.
        """
        model = self.model_runner.model  # type: ignore[attr-defined]
        params = dict(model.named_parameters())
        rows = int(self.model_config.hf_config.vocab_size)  # type: ignore[attr-defined]
        if self.parallel_config.tensor_parallel_size > 1:  # type: ignore[attr-defined]
            params = {name: p for name, p in params.items() if p.ndim == 1}
        return {
            # Rows beyond the vocabulary are padding.
            name: tensor_sum(params[name].data[:rows] if name == EMBEDDING else params[name].data)
            for name in names
            if name in params and params[name].numel() > 0 and name != HEAD
        }

    def ratchet_head_error(self) -> float:
        """Largest difference between what the output head computes and what its weights say.

        A packed head that was left behind by an update shows here and nowhere else. Relative to
        the largest logit; 0 where the head has no weights of its own to compare with.
        """
        model = self.model_runner.model  # type: ignore[attr-defined]
        head = getattr(model, "lm_head", None)
        weight = getattr(head, "weight", None)
        if weight is None or weight.ndim != 2 or weight.numel() == 0:
            return 0.0
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(1, weight.shape[1], generator=generator).to(weight)
        computed = head.quant_method.apply(head, probe, bias=None).float()  # type: ignore[union-attr]
        wanted = torch.nn.functional.linear(probe.float(), weight.float())
        return float((computed - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))


def register() -> None:
    """Make the engine known to vLLM, once a process."""
    if WEIGHT_BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(WEIGHT_BACKEND, HostFileTransferEngine)


# vLLM offers no setup call in its processes, only the import of this module.
register()
