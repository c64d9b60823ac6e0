"""Says what a run waits for when it stands still, and writes down the stacks.

A run stands still when nothing in its table of whereabouts changes for ``loop.stall_after_s``
seconds: no rollout, verdict, edit or update begins or ends. The watchdog only tells; each wait has
a limit of its own that ends it. It tells again each time as many seconds have gone by.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from drivers.stacks import all_stacks
from drivers.whereabouts import Whereabouts

log = logging.getLogger("ratchet")

MAX_LINES = 12
"""Lines of the table in a log message; the file has all."""
_LOOKS = 10
"""Times the table is looked at within the limit."""


@asynccontextmanager
async def stall_watchdog(
    table: Whereabouts,
    limit_s: float,
    folder: Path,
    stacks: Callable[[], str] = all_stacks,
) -> AsyncIterator[None]:
    """Watch for as long as the block runs; ``folder`` gets a file a stall. 0 seconds is off."""
    if limit_s == 0:
        yield
        return
    watching = asyncio.create_task(_watch(table, limit_s, folder, stacks), name="stall watchdog")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(
    table: Whereabouts, limit_s: float, folder: Path, stacks: Callable[[], str]
) -> None:
    told_at = table.last_change
    while True:
        await asyncio.sleep(limit_s / _LOOKS)
        now = table.clock()
        if now - max(told_at, table.last_change) < limit_s:
            continue
        told_at = now
        try:
            await _tell(table, now, folder, stacks)
        except Exception:  # a full disk must not end a run that only stands still
            log.warning("the stacks of the stalled run could not be written", exc_info=True)


async def _tell(table: Whereabouts, now: float, folder: Path, stacks: Callable[[], str]) -> None:
    quiet_s = now - table.last_change
    lines = [stay.text(now) for stay in table.stays()] or ["nothing is under way"]
    more = [f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    path = folder / f"stall_{len(list(folder.glob('stall_*.txt'))) + 1:03}.txt"
    log.warning(
        "no progress for %.0f s; what is under way, the longest first (all of it, and stacks, in "
        "%s):\n%s",
        quiet_s,
        path,
        "\n".join([*lines[:MAX_LINES], *more]),
    )
    tasks = _task_stacks()
    found = await asyncio.to_thread(stacks)
    folder.mkdir(parents=True, exist_ok=True)
    head = f"no progress for {quiet_s:.0f} s"
    text = "\n".join([head, "", *lines, "", "# tasks of the driver", tasks, "", found])
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def _task_stacks() -> str:
    """Where each asyncio task of the driver stands, a line a frame."""
    texts: list[str] = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        frames = [
            f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            for frame in task.get_stack()
        ]
        texts += [task.get_name(), *frames]
    return "\n".join(texts)
