"""A learner's checkpoint that cannot be read is refused by name, with what to do."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from actors.learner_state import FACTS, load_state
from core.errors import ConfigError

SAVED = {"world_size": 1, "zero_stage": 0, "step": 3}


def engine(folder: Path) -> Any:
    """An engine that reads one file, as DeepSpeed does."""

    def load_checkpoint(_folder: str, tag: str) -> tuple[str, object]:
        return tag, torch.load(folder / "model.pt", weights_only=False)

    return SimpleNamespace(load_checkpoint=load_checkpoint)


@pytest.mark.parametrize("name", ["model.pt", "random_rank_0.pt", FACTS])
@pytest.mark.parametrize("kept", [0, 20])
def test_a_cut_file_is_refused_with_what_to_do(tmp_path: Path, name: str, kept: int) -> None:
    for file in ("model.pt", "random_rank_0.pt"):
        torch.save({"weights": torch.zeros(100)}, tmp_path / file)
    (tmp_path / FACTS).write_text(json.dumps(SAVED))
    cut = tmp_path / name
    cut.write_bytes(cut.read_bytes()[:kept])
    with pytest.raises(ConfigError, match=r"cannot be read .* delete it to go on from the one"):
        load_state(engine(tmp_path), str(tmp_path), rank=0, facts=SAVED)
