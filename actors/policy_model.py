"""The policy as a module whose forward pass is "log-probs of the response tokens of a packed row".

``PolicyModel`` wraps a Hugging Face causal model: body on the packed row, head in chunks only where
response tokens are predicted. Weights are fp32; bf16 is an autocast inside ``forward``, so that
DeepSpeed, which owns the module, sees fp32 parameters and gradients.
Models whose logits are changed after the head, or whose attention is windowed, are refused.
"""

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from actors.packed_attention import PACKED_ATTENTION, compute_dtype, register
from core.errors import ConfigError
from core.logprobs import chunked_logprobs
from core.packing import PackedRow

if TYPE_CHECKING:  # the model alone needs torch and transformers and nothing else
    from core.config import LearnerConfig, PolicyConfig

NEUTRAL_LOGITS = {"final_logit_softcapping": None, "logit_scale": 1.0, "logits_scaling": 1.0}
"""Config fields that change logits after the head, with the value at which they do nothing."""


class ChunkedHead(nn.Module):
    """The output head over chunks, as one module call whatever the number of chunks.

    ZeRO stage 3 gathers a module's own parameters around its call, on all ranks together. Ranks
    have different numbers of response tokens: a call for each chunk would make them gather
    different numbers of times and wait for each other for ever.
    """

    def __init__(self, head: nn.Module, *, temperature: float, chunk: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = cast(Any, head).weight
        self.bias: nn.Parameter | None = getattr(head, "bias", None)
        self.temperature = temperature
        self.chunk = chunk

    def forward(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probs [T] with gradient and entropies [T] without."""
        dtype = compute_dtype(self.weight)
        weight = self.weight.to(dtype)  # once for all chunks
        bias = None if self.bias is None else self.bias.to(dtype)
        result = chunked_logprobs(
            states,
            targets,
            lambda chunk: nn.functional.linear(chunk, weight, bias),
            temperature=self.temperature,
            chunk=self.chunk,
        )
        return result.logprobs, result.entropy


class PolicyModel(nn.Module):
    """A causal language model that answers with log-probs of response tokens."""

    def __init__(
        self, model: PreTrainedModel, *, temperature: float, chunk: int, use_bf16: bool
    ) -> None:
        super().__init__()
        self.model = model
        head: Any = model.get_output_embeddings()
        self.head = ChunkedHead(head, temperature=temperature, chunk=chunk)
        self.use_bf16 = use_bf16

    def forward(self, row: PackedRow) -> tuple[Tensor, Tensor]:
        """Log-probs [T] of ``row.targets`` with gradient, and entropies [T] without."""
        device = row.input_ids.device.type
        # Nothing uses a weight's bf16 copy twice in a pass, so none is kept until its end.
        with torch.autocast(
            device, dtype=torch.bfloat16, enabled=self.use_bf16, cache_enabled=False
        ):
            return self.head(self.states(row), row.targets)

    def states(self, row: PackedRow) -> Tensor:
        """The last hidden states [T, D] that predict ``row.targets``."""
        states = self.model.get_decoder()(
            input_ids=row.input_ids.unsqueeze(0),
            position_ids=row.position_ids.unsqueeze(0),
            use_cache=False,
            packed_sources=row.sources,
            packed_slots=row.slots,
            packed_shape=row.shape,
        ).last_hidden_state[0]
        return states.index_select(0, row.predicts)


def load_policy(
    policy: "PolicyConfig", learner: "LearnerConfig", temperature: float
) -> PolicyModel:
    """Read the policy in fp32, ready to train."""
    policy_model = _load(policy, learner, temperature, torch.float32)
    if learner.gradient_checkpointing:
        policy_model.model.gradient_checkpointing_enable()
    return policy_model.train()


def load_reference(
    policy: "PolicyConfig", learner: "LearnerConfig", temperature: float
) -> PolicyModel | None:
    """The frozen reference policy of the KL term in bf16; None when the coefficient is 0."""
    if learner.kl_coef == 0:
        return None
    dtype = torch.bfloat16 if learner.bf16 else torch.float32
    return _load(policy, learner, temperature, dtype).eval().requires_grad_(False)


def _load(
    policy: "PolicyConfig", learner: "LearnerConfig", temperature: float, dtype: torch.dtype
) -> PolicyModel:
    register()
    model = AutoModelForCausalLM.from_pretrained(
        policy.model,
        dtype=dtype,
        attn_implementation=PACKED_ATTENTION,
        trust_remote_code=policy.trust_remote_code,
    )
    for name, neutral in NEUTRAL_LOGITS.items():
        value = getattr(model.config, name, neutral)
        if value != neutral:
            raise ConfigError(
                f"got policy.model={policy.model!r} with {name}={value}, wanted a model whose "
                "logits come straight from its head: choose another model"
            )
    return PolicyModel(
        model, temperature=temperature, chunk=learner.logprob_chunk, use_bf16=learner.bf16
    )
