"""What a learner leaves on disk: checkpoints (weights, optimizer, random state) and HF folders.

A checkpoint belongs to its number of ranks and its ZeRO stage, since optimizer state is sharded by
both; another one is refused by name. Every rank keeps its random state in a file of its own. The
caller makes a folder appear whole (it writes into a temporary one and renames it).
"""

import copy
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from actors.chat_template import policy_tokenizer
from actors.weights import write_file
from core.config import PolicyConfig
from core.errors import ConfigError

TAG = "learner"
FACTS = "learner.json"

_DAMAGED = (RuntimeError, OSError, EOFError, pickle.UnpicklingError, LookupError, ValueError)
"""What reading a cut or foreign checkpoint file raises."""


def save_state(engine: Any, folder: str, *, rank: int, facts: dict[str, int]) -> None:
    """Write this rank's part; ``facts`` must be the same at ``load_state`` except for the step."""
    engine.save_checkpoint(folder, tag=TAG, save_latest=False)
    torch.save(_random_state(), Path(folder) / f"random_rank_{rank}.pt")
    if rank == 0:
        (Path(folder) / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def load_state(engine: Any, folder: str, *, rank: int, facts: dict[str, int]) -> int:
    """Read this rank's part and return the step it was saved after."""
    saved = read_facts(folder)
    for name in ("world_size", "zero_stage"):
        if saved[name] != facts[name]:
            key = "num_ranks" if name == "world_size" else name
            raise ConfigError(
                f"got learner.{key}={facts[name]} for the checkpoint {folder}, wanted "
                f"{saved[name]}, which wrote it: set learner.{key}={saved[name]} or start fresh"
            )
    try:
        path, _ = engine.load_checkpoint(folder, tag=TAG)
        if path is not None:
            _set_random_state(
                torch.load(Path(folder) / f"random_rank_{rank}.pt", weights_only=False)
            )
    except _DAMAGED as error:
        raise unreadable(folder, error) from error
    if path is None:
        raise ConfigError(f"got no learner state in {folder}, wanted a folder that save() wrote")
    return saved["step"]


def read_facts(folder: str) -> dict[str, int]:
    """Number of ranks, ZeRO stage and step of a checkpoint."""
    path = Path(folder) / FACTS
    if not path.is_file():
        raise ConfigError(f"got no {FACTS} in {folder}, wanted a folder that save() wrote")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise unreadable(folder, error) from error


def unreadable(folder: str, error: Exception) -> ConfigError:
    """Return the error that names a damaged checkpoint and the way on."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return ConfigError(
        f"got learner state in {folder} that cannot be read ({reason}), wanted what save() wrote: "
        "if the checkpoint's folder is damaged, delete it to go on from the one before it, or "
        "start over with fresh=true"
    )


def export_folder(model: PreTrainedModel, policy: PolicyConfig, folder: str, *, rank: int) -> None:
    """Write weights in bf16, config, generation config and tokenizer; every rank must call it."""
    if rank == 0:
        Path(folder).mkdir(parents=True, exist_ok=True)
    # A tied head is left out, as transformers does.
    write_file(model, Path(folder) / "model.safetensors", rank=rank, has_tied_head=False)
    if rank != 0:
        return
    config = copy.deepcopy(model.config)
    config.dtype = torch.bfloat16
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    tokenizer = policy_tokenizer(
        policy.model,
        trust_remote_code=policy.trust_remote_code,
        chat_template=policy.chat_template,
        needs_template=False,
    )
    tokenizer.save_pretrained(folder)


def _random_state() -> dict[str, Any]:
    state = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
