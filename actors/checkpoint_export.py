"""Turns a learner's checkpoint into a Hugging Face folder, without the ranks that wrote it.

Runs on CPU in one process. DeepSpeed's own consolidation puts shards together (ZeRO 1 to 3); an
unsharded checkpoint holds the whole weights already.
"""

from pathlib import Path
from typing import Any

import torch

from actors.learner_state import TAG, export_folder, read_facts, unreadable
from core.config import PolicyConfig
from core.errors import ConfigError

_PREFIX = "model."
"""The policy's place inside the module that DeepSpeed wraps."""


def export_checkpoint(learner_folder: str, policy: PolicyConfig, folder: str) -> None:
    """Write weights in bf16, config and tokenizer of ``checkpoints/step_N/learner`` to ``folder``;
    ConfigError for a folder that no learner wrote or that is damaged."""
    from transformers import AutoModelForCausalLM

    facts = read_facts(learner_folder)
    try:
        weights = _weights(learner_folder, facts["zero_stage"])
    except (RuntimeError, OSError, EOFError, LookupError, ValueError) as error:
        raise unreadable(learner_folder, error) from error
    model = AutoModelForCausalLM.from_pretrained(
        policy.model, dtype=torch.float32, trust_remote_code=policy.trust_remote_code
    )
    own = {k.removeprefix(_PREFIX): v for k, v in weights.items() if k.startswith(_PREFIX)}
    found = model.load_state_dict(own, strict=False)
    tied = set(model.all_tied_weights_keys) if hasattr(model, "all_tied_weights_keys") else set()
    if found.unexpected_keys or set(found.missing_keys) - tied:
        lost = sorted(set(found.missing_keys) - tied)[:3]
        raise ConfigError(
            f"{learner_folder}: got weights that are not {policy.model}'s (missing {lost}, "
            f"unknown {found.unexpected_keys[:3]}), wanted a checkpoint of this policy"
        )
    export_folder(model, policy, folder, rank=0)


def _weights(folder: str, zero_stage: int) -> dict[str, Any]:
    if zero_stage == 0:
        path = Path(folder) / TAG / "mp_rank_00_model_states.pt"
        return torch.load(path, map_location="cpu", weights_only=False)["module"]
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    weights: Any = get_fp32_state_dict_from_zero_checkpoint(folder, tag=TAG)
    return weights
