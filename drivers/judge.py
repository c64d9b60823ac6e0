"""``ratchet judge``: look at judges and writers on a cluster, scale one while its run goes on.

The cluster is the one that RAY_ADDRESS names, else the one of this machine.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from core.errors import ConfigError, RunStopped

EXAMPLES = """examples:
  ratchet judge status                            (what serves judges and writers on the cluster)
  ratchet judge scale my_run 4                    (the run's judge to four replicas, now)
  ratchet judge scale my_run 2 --part writer
  RAY_ADDRESS=10.0.0.1:6379 ratchet judge status --json
"""

_PARTS = ("judge", "writer", "reference_judge")
_PREFIX = "ratchet-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and do it; returns the exit code."""
    args = _parser().parse_args(arguments)
    try:
        return asyncio.run(_scale(args) if args.command == "scale" else _status(args))
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except (RunStopped, TimeoutError) as error:
        sys.stderr.write(f"stopped: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet judge",
        description="Judges and rubric writers on Ray Serve: what runs, and how many replicas.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    status = commands.add_parser("status", help="what serves judges and writers on the cluster")
    status.add_argument("--json", action="store_true", help="as JSON, for other programs")
    scale = commands.add_parser("scale", help="change a running deployment's number of replicas")
    scale.add_argument("run", help="the run's name")
    scale.add_argument("replicas", type=_count, metavar="N", help="replicas, at least 1")
    scale.add_argument("--part", choices=_PARTS, default="judge", help="default: judge")
    scale.add_argument(
        "--timeout-s", type=float, default=600.0, help="longest wait for them (default: 600)"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number of at least 1")
    return int(text)


# ---------------------------------------------------------------------- commands
async def _status(args: argparse.Namespace) -> int:
    rows = await _deployments()
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    if not rows:
        sys.stdout.write("no judge or writer of a run is on the cluster\n")
        return 0
    head = {"application": "application", "deployment": "deployment", "status": "status"}
    lines = [_line(head, "replicas"), *(_line(row, _replicas_text(row)) for row in rows)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


async def _scale(args: argparse.Namespace) -> int:
    from drivers.serving import app_name, scale

    name = app_name(args.run, args.part)
    running = [row["application"] for row in await _deployments()]
    if name not in running:
        raise ConfigError(
            f"got no {args.part} of a run {args.run!r} on the cluster, wanted one that serves: "
            f"{', '.join(running) or 'no judge or writer'} is there (RAY_ADDRESS names the cluster)"
        )
    sys.stdout.write(f"scaling {name} to {args.replicas} replica(s) ...\n")
    sys.stdout.flush()
    await scale(args.run, args.part, args.replicas, timeout_s=args.timeout_s)
    sys.stdout.write(f"{name} runs {args.replicas} replica(s)\n")
    return 0


async def _deployments() -> list[dict[str, Any]]:
    """Return a row for each deployment of the runs' applications; joins the cluster first."""
    await asyncio.to_thread(_join)
    from ray import serve

    found = (await asyncio.to_thread(serve.status)).applications
    return [
        {
            "application": name,
            "deployment": deployment,
            "status": app.status.value,
            "replicas": {_text(state): n for state, n in info.replica_states.items()},
            "message": " ".join((app.message or info.message).split()),
        }
        for name, app in sorted(found.items())
        if name.startswith(_PREFIX)
        for deployment, info in app.deployments.items()
    ]


def _join() -> None:
    """Join a running cluster that has Serve; ConfigError where there is none."""
    import ray

    from drivers.ray_session import start_ray

    if not ray.is_initialized():
        os.environ.setdefault("RAY_ADDRESS", "auto")
        start_ray()
    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        raise ConfigError(
            "got a Ray cluster without Serve, wanted one on which a run (or `serve deploy`) has "
            "started a judge: start it first, or name the right cluster in RAY_ADDRESS"
        ) from None


def _text(state: Any) -> str:
    return str(getattr(state, "value", state))


def _replicas_text(row: dict[str, Any]) -> str:
    states = ", ".join(f"{n} {state.lower()}" for state, n in row["replicas"].items())
    return f"{states or 'none'}{'  ' + row['message'] if row['message'] else ''}"


def _line(row: dict[str, Any], replicas: str) -> str:
    return f"{row['application']:40} {row['deployment']:16} {row['status']:12} {replicas}".rstrip()


if __name__ == "__main__":
    raise SystemExit(main())
