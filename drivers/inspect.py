"""``ratchet inspect RUN``: how a run stands, for a terminal or as JSON, from its folder alone.

While the driver works, ``live.json`` has the queues, the workers, the judge and what is under way;
metrics and edits are there at any time.
"""

import argparse
import itertools
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from drivers.jsonl_files import read_rows
from drivers.live_file import read_live
from drivers.reading_command import exit_code
from drivers.rubrics_text import shown, table
from drivers.run_files import RunFiles

EXAMPLES = """examples:
  ratchet inspect runs/my_run                  (once)
  ratchet inspect runs/my_run --watch          (again every two seconds, until Ctrl-C)
  ratchet inspect runs/my_run --json           (for other programs)
"""

STALE_S = 15.0
"""A live file older than this belongs to a driver that is gone or stands still."""
_MAX_WAITS = 8
_MAX_EDITS = 5
_TEXT = 60

_FIGURES = {
    "reward": ("critic/rewards/mean", "gold/mean", "evolving_rubrics/veto_rate"),
    "queues": ("queue/drawn", "queue/graded", "queue/scored", "queue/edits"),
    "workers": ("rollout/running", "rollout/waiting", "rollout/restarts"),
    "policy age": tuple(
        f"training/off_policy/trajectory_staleness/{what}" for what in ("mean", "max")
    ),
    "judge": (
        *("judge/num_replicas", "judge/queue_depth", "judge/calls", "judge/retries"),
        *("judge/failed_rate", "judge/latency_s/p50", "judge/latency_s/p95", "judge/cost_usd"),
    ),
    "writer": (
        *("writer/num_replicas", "writer/queue_depth", "writer/calls"),
        *("writer/latency_s/p50", "writer/cost_usd"),
    ),
    "seconds": ("timing_s/step", "timing_s/trainer_idle", "timing_s/evolve_exposed"),
}
"""Rows of the view, and the metrics that each shows where the run has them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Show it; returns the exit code."""
    args = _parser().parse_args(arguments)
    return exit_code(lambda: _show(args), args.run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet inspect",
        description="How a run stands: stages, queues, policy age, judge, the last edits.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", help="the run's folder")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON object")
    how.add_argument(
        "--watch", type=float, nargs="?", const=2.0, metavar="SECONDS", help="show it again, again"
    )
    return parser


def _show(args: argparse.Namespace) -> int:
    files = RunFiles(args.run)
    if not (files.config.is_file() or files.live.is_file()):
        raise ConfigError(f"got {args.run}, wanted the folder of a run (with a config.yaml)")
    if args.json:
        sys.stdout.write(json.dumps(snapshot(files)) + "\n")
        return 0
    if args.watch is None:
        sys.stdout.write(view(snapshot(files)))
        return 0
    _watch(lambda: view(snapshot(files)), args.watch)
    return 0


def _watch(text: Callable[[], str], every_s: float) -> None:
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() else ""
    for _ in itertools.count():
        sys.stdout.write(clear + text())
        sys.stdout.flush()
        time.sleep(every_s)


def snapshot(files: RunFiles) -> dict[str, Any]:
    """Return how the run stands as one object (``--json``).

    ``state`` is live, stale (a live file that nobody writes any more) or ended; ``age_s`` the
    seconds since the live file was written.
    """
    live = read_live(files.live)
    last = _last(files.metrics, 1)
    age_s = max(0.0, time.time() - live["time"]) if live else None
    state = "ended" if age_s is None else "live" if age_s <= STALE_S else "stale"
    metrics = last[0] if last else {}
    return {
        "run": files.folder.name,
        "state": state,
        "age_s": age_s,
        "step": int(metrics.get("step", 0)),
        "policy_version": metrics.get("policy_version"),
        "metrics": metrics,
        "live": live,
        "edits": _last(files.events, _MAX_EDITS),
        "stalls": sorted(path.name for path in files.stalls.glob("stall_*.txt")),
    }


def _last(path: Path, number: int) -> list[Mapping[str, Any]]:
    return list(deque(read_rows(path), maxlen=number))


def view(found: Mapping[str, Any]) -> str:
    """Return the snapshot as text for a terminal."""
    live = found["live"] or {}
    figures = {**found["metrics"], **live.get("figures", {})}
    lines = [_head(found, live), ""]
    for name, keys in _FIGURES.items():
        values = [
            f"{_short(key)} {_number(figures[key])}" for key in keys if _is_number(figures, key)
        ]
        lines += [f"{name:11} {'   '.join(values)}"] if values else []
    lines += ["", *_waits(live), *_edits(found["edits"])]
    if found["stalls"]:
        lines.append(f"stood still {len(found['stalls'])} times: see stalls/{found['stalls'][-1]}")
    return "\n".join(lines).rstrip() + "\n"


def _head(found: Mapping[str, Any], live: Mapping[str, Any]) -> str:
    steps = f"/{live['steps']}" if "steps" in live else ""
    where = f"step {found['step']}{steps}, policy version {found['policy_version'] or 0}"
    match found["state"]:
        case "live":
            state = f"live, {found['age_s']:.0f} s ago"
        case "stale":
            state = (
                f"no sign of its driver (process {live['pid']} on {live['host']}) for "
                f"{found['age_s']:.0f} s"
            )
        case _:
            state = "not running"
    return f"{shown(found['run'])}: {where} ({state})"


def _waits(live: Mapping[str, Any]) -> list[str]:
    stays = live.get("under_way", ())
    if not stays:
        return []
    rows = [
        (
            f"{stay['seconds']:.1f} s",
            shown(stay["stage"]),
            shown(stay["actor"]),
            shown(f"{stay['query_id']} {stay['detail']}", _TEXT),
        )
        for stay in stays[:_MAX_WAITS]
    ]
    title = f"under way: {live['num_under_way']}, the longest first"
    return [title, *table(("for", "stage", "actor", "what"), rows), ""]


def _edits(edits: Sequence[Mapping[str, Any]]) -> list[str]:
    if not edits:
        return []
    rows = [
        (str(e["step"]), shown(e["query_id"], 24), e["branch"], e["status"], _change(e))
        for e in reversed(edits)
    ]
    return ["last edits", *table(("step", "query", "branch", "status", "change"), rows), ""]


def _change(edit: Mapping[str, Any]) -> str:
    if edit["status"] != "accepted":
        return shown(edit["reason"] or "", _TEXT)
    new = edit["new"] or edit["old"] or {}
    sign = "" if edit["new"] else "without: "
    return sign + shown(new.get("text", ""), _TEXT)


def _is_number(figures: Mapping[str, Any], key: str) -> bool:
    return isinstance(figures.get(key), int | float)


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.3g}"


def _short(key: str) -> str:
    parts = key.split("/")
    return parts[-1] if parts[-1] not in ("mean", "max", "p50", "p95") else " ".join(parts[-2:])


if __name__ == "__main__":
    raise SystemExit(main())
