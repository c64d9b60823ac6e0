"""Checkpoints: learner, rubrics and stream position as one unit.

``checkpoints/step_00010/`` holds ``learner/``, ``store/`` and ``position.json``. It is written
under another name and renamed when it is whole, so a cut one is never loaded; a bounded number is
kept. A checkpoint belongs to its data: it is refused when the query file, the seed or the batch
shape changed, since the stream would not go on where it stopped.
"""

import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.config import RunConfig
from core.errors import ConfigError
from drivers.loop import Position
from drivers.ports import Learner, Store

log = logging.getLogger(__name__)

_POSITION_FILE = "position.json"
_PARTIAL = ".tmp"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What must be the same for a checkpoint to be continued."""

    data_fingerprint: str
    seed: int
    groups_per_step: int
    group_size: int


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    folder: Path
    position: Position
    identity: Identity
    wall_s: float
    """Seconds that all parts of the run took until here."""


class Checkpoints:
    """The ``checkpoints/`` folder of one run; implements the loop's ``Checkpointer``."""

    def __init__(
        self,
        folder: Path,
        learner: Learner,
        store: Store,
        identity: Identity,
        num_kept: int,
        wall_s: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._learner = learner
        self._store = store
        self._identity = identity
        self._num_kept = num_kept
        self._wall_s = wall_s

    async def save(self, position: Position) -> None:
        """Write a checkpoint at ``position`` and drop the oldest beyond the number kept."""
        started = time.monotonic()
        target = self._folder / f"step_{position.step:05d}"
        partial = target.with_name(target.name + _PARTIAL)
        for cut in self._folder.glob(f"step_*{_PARTIAL}"):  # of a driver that was killed
            shutil.rmtree(cut, ignore_errors=True)
        partial.mkdir(parents=True)
        await self._learner.save(str(partial / "learner"))
        await self._store.snapshot(str(partial / "store"), position.step)
        content = {
            "position": asdict(position),
            "identity": asdict(self._identity),
            "wall_s": self._wall_s(),
        }
        with open(partial / _POSITION_FILE, "w", encoding="utf-8") as f:
            json.dump(content, f, indent=1)
            f.flush()
            os.fsync(f.fileno())
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        for old in whole_checkpoints(self._folder)[: -self._num_kept]:
            shutil.rmtree(old, ignore_errors=True)
        log.info("checkpoint %s in %.1f s", target.name, time.monotonic() - started)


def whole_checkpoints(folder: Path) -> list[Path]:
    """Return the folders of all whole checkpoints, oldest first."""
    found = [p for p in folder.glob("step_*") if (p / _POSITION_FILE).is_file()]
    whole = [p for p in found if p.name.removeprefix("step_").isdigit()]
    return sorted(whole, key=lambda p: int(p.name.removeprefix("step_")))


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint, or None."""
    found = whole_checkpoints(folder)
    if not found:
        return None
    return read_checkpoint(
        found[-1],
        remedy=f"delete {found[-1]} to go on from the checkpoint before it, or start over with "
        "fresh=true",
    )


def read_checkpoint(folder: Path, *, remedy: str) -> Checkpoint:
    """Return the checkpoint in ``folder``; ConfigError that ends with ``remedy`` if it is none."""
    path = folder / _POSITION_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        position = _position(content["position"])
        wall_s = float(content["wall_s"])
        return Checkpoint(
            folder=folder,
            position=position,
            identity=Identity(**content["identity"]),
            wall_s=wall_s if math.isfinite(wall_s) else 0.0,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"got {path}, which cannot be read ({error!r}), wanted what this version writes: "
            f"{remedy}"
        ) from error


def _position(found: dict[str, Any]) -> Position:
    """Return a position of whole numbers; TypeError for any other."""
    position = Position(
        step=found["step"], next_draw=found["next_draw"], untrained=tuple(found["untrained"])
    )
    for number in (position.step, position.next_draw, *position.untrained):
        if type(number) is not int or number < 0:
            raise TypeError(f"{number!r:.40} is no number of a step or draw")
    return position


def identity_of(config: RunConfig, data_fingerprint: str) -> Identity:
    """Return what a checkpoint of this run belongs to."""
    return Identity(
        data_fingerprint=data_fingerprint,
        seed=config.seed,
        groups_per_step=config.loop.groups_per_step,
        group_size=config.sampling.group_size,
    )


def check_same_run(
    found: Identity,
    wanted: Identity,
    *,
    of: str = "the run's checkpoint",
    remedy: str = "give the config or data of the run back, choose another `name`, or start over "
    "with fresh=true",
) -> None:
    """Raise ConfigError when the checkpoint belongs to other data or another batch shape."""
    for name, value in asdict(found).items():
        now = getattr(wanted, name)
        if now != value:
            raise ConfigError(f"got {name}={now}, but {of} was made with {value}: {remedy}")
