"""An offline run in its folder: whether it is finished, where it goes on, and what is left of it.

The files are those of any run (``drivers/run_files.py``), without rollouts, edits and rubrics.
``checkpoints/checkpoint-N/`` is the trainer's own folder; ``ratchet.json`` in it is written last,
so that a checkpoint without it is one that a kill cut short, and is never gone on from. A run goes
on only with the settings and the rows that it began with.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from core.config_offline import OfflineConfig
from core.errors import ConfigError
from core.rows import Row
from core.validation import first_problem
from drivers.config_file import dump_config
from drivers.jsonl_files import read_rows
from drivers.offline_data import OfflineData
from drivers.run_files import RunFiles, write_json
from drivers.summary import first_and_last, mean

_MARKER = "ratchet.json"
_FREE = ("fresh", "runs_dir", "trackers", "data.train", "data.eval", "loop.keep_checkpoints")
"""Keys that may change between two starts: the data's own fingerprint tells whether it is the
same."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a start of the run begins."""

    checkpoint: str | None = None
    """Folder to go on from; None begins at step 0."""
    step: int = 0
    wall_s: float = 0.0
    """Seconds that all earlier parts of the run took until the checkpoint."""


def is_finished(config: OfflineConfig, files: RunFiles, data: OfflineData) -> bool:
    """Whether a run of this name has ended; ConfigError when it was another one.

    Changes nothing, so that every process of a run may ask.
    """
    if config.fresh or not files.config.is_file():
        return False
    began = _recorded(files)
    if not files.summary.is_file():
        return False
    _check_same(config, began)
    try:
        recorded = json.loads(files.summary.read_bytes())["data_fingerprint"]
    except (ValueError, KeyError, TypeError):
        return False
    _check_data(recorded, data)
    return True


def begin(config: OfflineConfig, files: RunFiles, data: OfflineData) -> Start:
    """Take the files back to the newest whole checkpoint; the caller holds the lock."""
    if config.fresh:
        files.clear()
    began = _recorded(files) if files.config.is_file() else None
    start = _newest(files.checkpoints, data)
    if began is not None and start.checkpoint is not None:
        _check_same(config, began)
    shutil.rmtree(files.policy, ignore_errors=True)
    files.write_config(dump_config(config))
    files.truncate_after(start.step if start.checkpoint else -1)  # step 0 has a line of its own
    return start


def mark_whole(checkpoint: Path, step: int, wall_s: float, fingerprint: str) -> None:
    """Say that everything in the checkpoint is written."""
    write_json(
        checkpoint / _MARKER, {"step": step, "wall_s": wall_s, "data_fingerprint": fingerprint}
    )


def finish(
    config: OfflineConfig,
    files: RunFiles,
    data: OfflineData,
    numbers: Mapping[str, Any],
) -> dict[str, Any]:
    """Write summary.json, which marks the run as finished, and return it.

    ``numbers`` is what the files do not say (wall time, rows at the token limit, resumed).
    """
    summary = {
        "method": config.offline.method,
        **summary_of(list(read_rows(files.metrics))),
        "epochs": config.loop.epochs,
        "seed": config.seed,
        "num_train": len(data.train),
        "num_val": len(data.val),
        "skipped": dict(data.skipped),
        "data_fingerprint": data.fingerprint,
        **numbers,
    }
    write_json(files.summary, summary)
    return summary


def summary_of(rows: list[Row]) -> dict[str, Any]:
    """Return what metrics.jsonl adds up to; a number without data is None."""
    losses = [row["loss"] for row in rows if "loss" in row]
    first, last = first_and_last(losses)
    val = [(row["val/loss"], row["step"]) for row in rows if row.get("val/loss") is not None]
    best = min(val, default=(None, None))
    return {
        "steps": len(losses),
        "step_s_mean": mean(row.get("timing_s/step") for row in rows),
        "loss_first5": first,
        "loss_last5": last,
        "val_loss_first": val[0][0] if val else None,
        "val_loss_last": val[-1][0] if val else None,
        "val_loss_best": best[0],
        "val_loss_best_step": best[1],
    }


# ------------------------------------------------------------------ the same run
def _newest(folder: Path, data: OfflineData) -> Start:
    """Return the newest whole checkpoint, and remove the ones that were cut short."""
    found: list[tuple[int, Path, dict[str, Any]]] = []
    for path in folder.glob("checkpoint-*"):
        try:
            facts = json.loads((path / _MARKER).read_bytes())
            found.append((int(facts["step"]), path, facts))
        except (OSError, ValueError, KeyError, TypeError):
            shutil.rmtree(path, ignore_errors=True)
    if not found:
        return Start()
    step, path, facts = max(found, key=lambda item: item[0])
    _check_data(facts.get("data_fingerprint"), data)
    return Start(checkpoint=str(path), step=step, wall_s=float(facts["wall_s"]))


def _check_data(recorded: object, data: OfflineData) -> None:
    if recorded != data.fingerprint:
        raise ConfigError(
            "got other rows in data.train (or data.eval) than those that this run began with, "
            "wanted the same files: put them back, start over with fresh=true, or give the run "
            "another name"
        )


def _check_same(config: OfflineConfig, began: OfflineConfig) -> None:
    """Refuse to go on with a run that began with other settings."""
    was, now = _flat(began.model_dump(mode="json")), _flat(config.model_dump(mode="json"))
    changed = [k for k in {**was, **now} if k not in _FREE and was.get(k) != now.get(k)]
    if changed:
        key = changed[0]
        more = f" (and {len(changed) - 1} more keys)" if changed[1:] else ""
        raise ConfigError(
            f"got {key}={now.get(key)!r:.60} for a run that began with {was.get(key)!r:.60}{more}, "
            "wanted the same settings: start over with fresh=true, or give the run another name"
        )


def _recorded(files: RunFiles) -> OfflineConfig:
    try:
        return OfflineConfig.model_validate(yaml.safe_load(files.config.read_bytes()))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        is_ours = isinstance(error, ValidationError)
        what = first_problem(error) if is_ours else " ".join(str(error).split())[:200]
        raise ConfigError(
            f"got {files.folder}, which holds another kind of run ({what}), wanted a folder of "
            "its own: give the run another name, or start over with fresh=true"
        ) from None


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{above}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
