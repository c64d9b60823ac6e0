"""A small offline run for unit tests: rows, a folder that looks like a model, the arguments."""

import json
from pathlib import Path
from typing import Any

from core.config_offline import OfflineConfig
from drivers.config_file import load_offline_config


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scripts(number: int) -> list[dict[str, Any]]:
    return [
        {"id": f"s{i}", "prompt": f"Scene {i}.", "response": f"S0{i}", "stem": f"video_{i // 2}"}
        for i in range(number)
    ]


def anchors(number: int) -> list[dict[str, Any]]:
    """Queries; every third one has no anchor."""
    return [
        {
            "id": f"q{i}",
            "messages": [{"role": "user", "content": f"Say {i}."}],
            "rubric": [{"id": "c", "text": "It says it."}],
            **({} if i % 3 == 2 else {"anchor": {"model": "m", "response": f"{i}"}}),
        }
        for i in range(number)
    ]


def write_model(folder: Path) -> Path:
    """Write the files of a model that are looked at before it is loaded."""
    folder.mkdir()
    (folder / "config.json").write_text('{"max_position_embeddings": 512}')
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    return folder


def small_command(folder: Path) -> list[str]:
    """Return the arguments of a run on 12 scripts of 6 videos."""
    data = write_rows(folder / "rows.jsonl", scripts(12))
    return [
        "--config",
        "sft_scripts",
        f"data.train={data}",
        f"policy.model={write_model(folder / 'model')}",
        "policy.max_model_len=64",
        f"runs_dir={folder / 'runs'}",
        "learner.batch_size=4",
        "learner.deepspeed=null",
        "data.val_frac=0.2",
    ]


def config_of(command: list[str], *more: str) -> OfflineConfig:
    return load_offline_config(command[1], [*command[2:], *more])
