"""``ratchet doctor``: whether this machine, and the cluster it belongs to, can run.

With ``--config`` also whether this run can: its data, models, keys, room, and where its processes
would go.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.config import RunConfig
from core.errors import ConfigError
from drivers import doctor_checks as checks
from drivers.config_file import load_config
from drivers.doctor_checks import Finding
from drivers.packaged_model import PREFIX, unpacked_folder
from drivers.preflight import missing
from drivers.run_data import load_run_data
from drivers.runs_root import runs_root

EXAMPLES = """examples:
  ratchet doctor
  ratchet doctor --config my_run.yaml loop.steps=10
  RAY_ADDRESS=10.0.0.1:6379 ratchet doctor --config care
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Look and say; 0 when nothing is missing, 1 when something is, 2 for a wrong config."""
    args = _parser().parse_intermixed_args(arguments)
    try:
        config = load_config(args.config, args.overrides) if args.config else None
        findings = _findings(config)
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    lines = [f"{f.level:8} {f.topic:12} {f.text}" for f in findings]
    number = sum(f.level == "problem" for f in findings)
    lines.append(f"\n{number} problem(s)" if number else "\nnothing is missing")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if number else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet doctor",
        description="Check packages, disk, shared memory, the cluster, and what a run needs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", help="a YAML config or a recipe's name: check this run too")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override a config key")
    return parser


def _findings(config: RunConfig | None) -> list[Finding]:
    root = runs_root(config.runs_dir if config else None)
    on_disk, in_memory = checks.needed_bytes(config, _policy_bytes(config)) if config else (0, 0)
    found = [
        *checks.versions(),
        checks.disk(root, on_disk),
        checks.shared_memory(in_memory),
        checks.upload(Path.cwd()),
    ]
    nodes = cluster_nodes()
    found.append(Finding(topic="cluster", level="ok", text=_nodes_text(nodes)))
    if config is not None:
        found += _run_findings(config)
        found.append(checks.placement(config, nodes))
    return found


def _policy_bytes(config: RunConfig) -> float:
    model = config.policy.model
    if not model.startswith(PREFIX):
        return checks.weights_bytes(model)
    unpacked = unpacked_folder()
    return checks.weights_bytes(str(unpacked)) if unpacked else 0.0


def _run_findings(config: RunConfig) -> list[Finding]:
    try:
        problems = missing(config, load_run_data(config))
    except ConfigError as error:
        problems = [str(error)]
    if not problems:
        return [Finding(topic="run", level="ok", text="data, models and keys are there")]
    return [Finding(topic="run", level="problem", text=text) for text in problems]


def cluster_nodes() -> list[Mapping[str, float]]:
    """Return each node's resources: of the cluster that RAY_ADDRESS names, else of this machine as
    a Ray that is started here would have them. ConfigError where no cluster answers."""
    if not os.environ.get("RAY_ADDRESS"):
        from drivers.placement import local_resources

        return [{**local_resources(), "CPU": float(os.cpu_count() or 1)}]
    import ray

    from drivers.ray_session import start_ray

    is_ours = not ray.is_initialized()
    if is_ours:
        start_ray()
    try:
        return [node["Resources"] for node in ray.nodes() if node["Alive"]]
    finally:
        if is_ours:
            ray.shutdown()


def _nodes_text(nodes: Sequence[Mapping[str, float]]) -> str:
    shares = [f"{n.get('CPU', 0):g} CPU {n.get('GPU', 0):g} GPU" for n in nodes[:8]]
    more = f", and {len(nodes) - 8} more" if len(nodes) > 8 else ""
    where = os.environ.get("RAY_ADDRESS") or "this machine (RAY_ADDRESS is not set)"
    return f"{where}: {'; '.join(shares)}{more}"


if __name__ == "__main__":
    raise SystemExit(main())
