"""What an offline run would do, as text, and what is missing for it.

Importable without torch: this is what ``ratchet offline --dry-run`` prints.
"""

import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from core.config_offline import OfflineConfig
from core.errors import ConfigError
from core.offline_rows import Example
from drivers.config_file import dump_config
from drivers.offline_data import BYTES_A_TOKEN, OfflineData, example_bytes, load_offline_data
from drivers.packaged_model import PREFIX
from drivers.preflight import folder_problems, model_problems, template_problems, tracker_problems

DEEPSPEED_PRESETS = ("zero2", "zero3")
TRL = "trl==1.16.0"


def plan_text(config: OfflineConfig) -> str:
    """Return what ``--dry-run`` prints."""
    data, problems = _loaded(config)
    lines = ["# resolved config", dump_config(config), *_rows_text(config, data)]
    lines += ["", "# missing", *([*problems, *missing(config)] or ["nothing"])]
    return "\n".join(lines)


def missing(config: OfflineConfig) -> list[str]:
    """Return one sentence for each thing, the data apart, that the run needs and does not find."""
    policy = config.policy
    return [
        *folder_problems(config.runs_dir, config.name),
        *_library_problems(),
        *model_problems("policy", policy.model, policy.max_model_len),
        *template_problems(policy),
        *_no_template_problems(config),
        *tracker_problems(config.trackers),
        *_deepspeed_problems(config),
        *_process_problems(config),
    ]


def num_processes() -> int:
    """Processes that train together: what ``accelerate launch`` (or torchrun) says."""
    value = os.environ.get("WORLD_SIZE", "1")
    return int(value) if value.isdigit() and int(value) > 0 else 1


def process_index() -> int:
    """This process's number among them, from 0."""
    value = os.environ.get("RANK", "0")
    return int(value) if value.isdigit() else 0


# ------------------------------------------------------------------ the rows
def _loaded(config: OfflineConfig) -> tuple[OfflineData | None, list[str]]:
    try:
        return load_offline_data(config), []
    except ConfigError as error:
        files = [f for f in (config.data.train, config.data.eval) if f is not None]
        absent = [
            f"{name}: got no such file, wanted the run's data there; check the path in the config"
            for name in files
            if not os.path.exists(name)
        ]
        return None, absent or [str(error)]


def _rows_text(config: OfflineConfig, data: OfflineData | None) -> list[str]:
    if data is None:
        return ["# rows", "unknown: the data cannot be read"]
    skipped = [f"left out with {reason}: {n}" for reason, n in sorted(data.skipped.items())]
    kinds = {"training": data.train, "validation": data.val}
    return [
        "# rows",
        *(_kind_text(config, name, examples) for name, examples in kinds.items()),
        *skipped,
        f"steps: {config.num_steps(len(data.train))} "
        f"({config.loop.epochs} epochs of {config.learner.batch_size} rows a step)",
    ]


def _kind_text(config: OfflineConfig, name: str, examples: Sequence[Example]) -> str:
    if not examples:
        return f"{name}: none"
    tokens = [example_bytes(e) // BYTES_A_TOKEN for e in examples]
    limit = config.policy.max_model_len
    groups = len({e.group for e in examples})
    return (
        f"{name}: {len(examples)} rows of {groups} prompts or source groups, roughly "
        f"{sum(tokens):,} tokens, the longest {max(tokens):,} (cut at {limit:,} a response)"
    )


# ------------------------------------------------------------------ what is missing
def _library_problems() -> list[str]:
    if find_spec("trl") is not None and find_spec("datasets") is not None:
        return []
    return [
        "got no package 'trl', wanted it for offline training: run `pip install "
        f"'{TRL}'` (or install Ratchet with the extra `offline`)"
    ]


def _no_template_problems(config: OfflineConfig) -> list[str]:
    """Say when a model folder has no chat template; of a name only the hub knows."""
    policy = config.policy
    folder = Path(os.path.expanduser(policy.model))
    if policy.chat_template is not None or policy.model.startswith(PREFIX):
        return []
    tokenizer = folder / "tokenizer_config.json"
    if not os.path.isfile(tokenizer) or any(folder.glob("chat_template*")):
        return []
    try:
        settings = json.loads(tokenizer.read_text(encoding="utf-8"))
        has_template = bool(settings.get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return []  # loading it says what is wrong
    if has_template:
        return []
    return [
        f"got model {policy.model} without a chat template, wanted one: set policy.chat_template "
        "to a Jinja template or a file that holds one"
    ]


def _deepspeed_problems(config: OfflineConfig) -> list[str]:
    given = config.learner.deepspeed
    if given is None or given in DEEPSPEED_PRESETS:
        return []
    try:
        tree = json.loads(Path(given).expanduser().read_text(encoding="utf-8"))
        if isinstance(tree, dict):
            return []
        reason = "it holds no object"
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
    return [
        f"got learner.deepspeed={given:.200}, wanted {', '.join(DEEPSPEED_PRESETS)} or a file with "
        f"DeepSpeed's JSON ({reason})"
    ]


def _process_problems(config: OfflineConfig) -> list[str]:
    processes, learner = num_processes(), config.learner
    if learner.batch_size % (processes * learner.micro_batch_size) == 0:
        return []
    return [
        f"got learner.batch_size={learner.batch_size} for {processes} processes of "
        f"learner.micro_batch_size={learner.micro_batch_size}, wanted a multiple of their product: "
        "change one of the three"
    ]
