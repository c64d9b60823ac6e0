"""``live.json`` of a run: how it stands now, for ``ratchet inspect`` and other programs.

Written every few seconds while the driver works, from its start to its end, and gone afterwards. It
is a view, never the record, and what keeps it from being written does not disturb the run.
"""

import asyncio
import json
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from drivers.live_metrics import Source
from drivers.whereabouts import Whereabouts

INTERVAL_S = 2.0
_KEYS = {"run", "host", "pid", "time", "steps", "figures", "num_under_way", "under_way"}
MAX_STAYS = 200
"""Lines of the table of whereabouts, the longest waits first."""


class LiveFile:
    """What goes into the file; ``sources`` grow as parts start."""

    def __init__(self, path: Path, run: str, steps: int, table: Whereabouts) -> None:
        self.path = path
        self.sources: list[Source] = []
        self._run = run
        self._steps = steps
        self._table = table

    def content(self) -> dict[str, Any]:
        """Return the object that is written."""
        now = self._table.clock()
        stays = self._table.stays()
        figures: dict[str, float] = {}
        for source in self.sources:
            figures |= source()
        return {
            "run": self._run,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "time": time.time(),
            "steps": self._steps,
            "quiet_s": now - self._table.last_change,
            "figures": {k: v if math.isfinite(v) else None for k, v in figures.items()},
            "num_under_way": len(stays),
            "under_way": [
                {
                    "stage": stay.stage,
                    "query_id": stay.query_id,
                    "detail": stay.detail,
                    "actor": stay.actor,
                    "seconds": now - stay.since,
                }
                for stay in stays[:MAX_STAYS]
            ],
        }

    def write(self) -> None:
        """Write the file whole, if the disk takes it."""
        part = self.path.with_name(f"{self.path.name}.tmp")
        try:
            part.write_text(json.dumps(self.content()), encoding="utf-8")
            part.replace(self.path)
        except OSError:
            part.unlink(missing_ok=True)

    def remove(self) -> None:
        """Take the file away: nothing is live any more."""
        self.path.unlink(missing_ok=True)


@asynccontextmanager
async def written(live: LiveFile, interval_s: float = INTERVAL_S) -> AsyncIterator[None]:
    """Write the file on a timer for as long as the block runs; remove it afterwards."""
    writing = asyncio.create_task(_write_for_ever(live.write, interval_s), name="live file")
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        live.remove()


async def _write_for_ever(write: Callable[[], None], interval_s: float) -> None:
    while True:
        write()
        await asyncio.sleep(interval_s)


def read_live(path: Path) -> Mapping[str, Any] | None:
    """Return what stands there; None where there is none, or it is no such file."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    is_whole = isinstance(content, dict) and content.keys() >= _KEYS
    return content if is_whole and isinstance(content["time"], int | float) else None
