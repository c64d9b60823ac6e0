"""The run that ``ratchet rubrics`` works on: its folder, its rubric file, the rubric that is meant.

A run is given by its folder or by its name under the runs' folder; it may be finished, stopped, or
being written by a driver right now. What a person got wrong is a ConfigError of one sentence, with
the nearest names. The rubric file is opened by a process of its own beside the driver's: every
change is one transaction, so neither can lose the other's.
"""

import difflib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from actors.rubric_log import RubricLog, RubricVersion
from actors.rubric_schema import BUSY_TIMEOUT_S
from core.errors import ConfigError, RunStopped
from drivers.run_files import RunFiles
from drivers.runs_root import runs_root

_MAX_NAMES = 3


def find_run(name: str) -> RunFiles:
    """Return the files of the run in the folder ``name``, or of that name."""
    if "\0" in name:
        raise ConfigError(f"got {name!r}, wanted a run's folder or name")
    root = runs_root()
    # os.path says no to names that no folder can have; pathlib raises.
    for folder in (Path(os.path.expanduser(name)), root / name):
        if os.path.isfile(folder / "rubrics.sqlite"):
            return RunFiles(folder)
    if os.path.isdir(name):
        raise ConfigError(f"got {name} without rubrics.sqlite, wanted a run's folder")
    known = sorted(p.parent.name for p in root.glob("*/rubrics.sqlite"))
    raise ConfigError(
        f"got the run {name[:200]!r}, which is neither a run's folder nor a run in {root}, "
        "wanted one" + _nearest(Path(name).name, known)
    )


@contextmanager
def open_log(files: RunFiles, *, is_read_only: bool = True) -> Iterator[RubricLog]:
    """Open the run's rubric file; a file that stays locked ends the command with a sentence."""
    log = RubricLog(files.rubrics, is_read_only=is_read_only)
    try:
        yield log
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        raise RunStopped(
            f"got {files.rubrics} locked by another process for {BUSY_TIMEOUT_S:g} s, wanted a "
            "turn: nothing of this was done; try again"
        ) from error
    finally:
        log.close()


def rubric_named(log: RubricLog, name: str | None) -> str:
    """Return the id of the rubric that a person named; the only one needs no name."""
    ids = log.query_ids()
    if not ids:
        raise ConfigError("got a run without any rubric, wanted one that has begun")
    if name is None:
        if len(ids) == 1:
            return ids[0]
        raise ConfigError(
            f"got no --rubric, wanted one of the run's {len(ids)} rubrics, such as {ids[0]!r} "
            "(`ratchet rubrics history RUN` lists them)"
        )
    for found in (name, f"task:{name}"):
        if found in ids:
            return found
    raise ConfigError(
        f"got the rubric {name[:80]!r}, which the run does not have, wanted one of its {len(ids)}"
        + _nearest(name, ids)
    )


def version_named(history: Sequence[RubricVersion], version: int) -> RubricVersion:
    """Return a version of a rubric; ConfigError when it has none of that number."""
    for found in history:
        if found.version == version:
            return found
    last = history[-1].version
    raise ConfigError(
        f"got version {version} of rubric {history[-1].query_id[:80]!r}, wanted one of 0..{last}"
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    """Say which names are near, or what there is."""
    near = difflib.get_close_matches(name, known, n=_MAX_NAMES, cutoff=0.5)
    shown = near or list(known[:_MAX_NAMES])
    if not shown:
        return ""
    listed = ", ".join(repr(n) for n in shown)
    return f": did you mean {listed}?" if near else f", such as {listed}"
