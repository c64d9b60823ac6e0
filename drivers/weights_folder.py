"""The folder of shared memory that a run's learner publishes its weights in.

It is made and removed by the driver alone. It gets another name before it is removed, so that a
learner that still writes (it outlives a killed driver by seconds) finds no folder and fails,
instead of putting a file into a folder that is half removed.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

KEPT = "kept"
"""The folder inside it for weights that later versions do not replace."""


def make_weights_folder(run: Path) -> Path:
    """Make a folder of this driver's own, in shared memory where there is one.

    What killed drivers of the same run left is removed; the caller holds the run's lock.
    """
    prefix = _prefix(run)
    remove_weights_folders(run)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_parent()))
    (folder / KEPT).mkdir()
    return folder


def remove_weights_folders(run: Path) -> None:
    """Remove every folder of published weights of this run; the caller holds the run's lock."""
    for left in _parent().glob(f"{_prefix(run)}*"):
        doomed = left if left.suffix == ".removed" else left.with_name(f"{left.name}.removed")
        try:
            left.rename(doomed)
        except OSError:
            continue  # another user's, or gone by now
        shutil.rmtree(doomed, ignore_errors=True)


def _parent() -> Path:
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else Path(tempfile.gettempdir())


def _prefix(run: Path) -> str:
    place = hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:8]
    return f"ratchet-{run.name}-{place}-"
