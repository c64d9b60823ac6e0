"""``python -m drivers.offline``: the papers' baselines that train without rollouts, by TRL.

SFT on anchors (CARE), SFT on query-script pairs (RARE), DPO on checklist preference pairs (RLCF);
``offline pairs`` makes the pairs. A run leaves what any run does: config.yaml, metrics.jsonl,
checkpoints, policy/ as a Hugging Face folder, summary.json. The same command goes on from the last
checkpoint, and on a finished run says so. Bad input ends with exit code 2 before anything is spent;
a signal ends it with a checkpoint and 128 plus the signal's number.
"""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from core.config_offline import OfflineConfig
from core.errors import ConfigError, RunStopped
from drivers.config_file import load_offline_config
from drivers.offline_data import OfflineData, load_offline_data
from drivers.offline_plan import missing, num_processes, plan_text, process_index
from drivers.offline_run import Start, begin, finish, is_finished
from drivers.run_files import RunFiles
from drivers.runs_root import runs_root

log = logging.getLogger("ratchet")

EXAMPLES = """examples:
  ratchet offline --config sft_anchor --dry-run
  ratchet offline --config sft_scripts data.train=scripts.jsonl policy.model=Qwen/Qwen3-4B-Instruct-2507
  ratchet offline --config dpo_rlcf name=dpo data.train=pairs.jsonl
  ratchet offline --config dpo_rlcf fresh=true             (start a run of that name over)
  ratchet offline pairs --help                             (make the preference pairs)

several GPUs, one process each (learner.batch_size is the sum over all of them):
  accelerate launch --num_processes 8 -m drivers.offline --config dpo_rlcf learner.deepspeed=zero3
several hosts: the same with --num_machines, --machine_rank and --main_process_ip, and a runs_dir
that all of them see.
"""  # noqa: E501


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, check, train; returns the exit code. ``pairs ...`` goes to ``offline_pairs``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["pairs"]:
        from drivers.offline_pairs import main as pairs_main

        return pairs_main(given[1:])
    args = _parser().parse_intermixed_args(given)  # overrides may stand anywhere
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    try:
        return _start(args)
    except ConfigError as error:
        sys.stderr.write(f"error: {_one_line(error)}\n")
        return 2
    except RunStopped as error:
        sys.stderr.write(f"stopped: {_one_line(error)}\n")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _one_line(error: BaseException) -> str:
    """A message is one line, whatever a file or another library put into it."""
    return " ".join(str(error).replace("\0", "\\0").split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet offline",
        description="Train a baseline without rollouts: SFT on anchors or scripts, DPO on pairs. "
        "The same command on an unfinished run goes on from its last checkpoint.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", required=True, help="YAML config, or the name of a shipped recipe"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would run and what is missing, and stop"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override a config key")
    return parser


def _start(args: argparse.Namespace) -> int:
    config = load_offline_config(args.config, args.overrides)
    if args.dry_run:
        sys.stdout.write(f"{plan_text(config)}\n")
        return 0
    data = load_offline_data(config)
    problems = missing(config)
    if problems:
        more = f" (and {len(problems) - 1} more: see --dry-run)" if problems[1:] else ""
        raise ConfigError(problems[0] + more)
    files = RunFiles(runs_root(config.runs_dir) / config.name)
    if is_finished(config, files, data):
        if process_index() == 0:
            sys.stdout.write(
                f"The run {config.name!r} is finished; its files are in {files.folder}\n"
                "Start over with fresh=true, or give the new run another name.\n"
            )
        return 0
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if process_index() != 0:
        return _train(config, data, files, None)
    with files.lock():
        return _train(config, data, files, begin(config, files, data))


def _train(config: OfflineConfig, data: OfflineData, files: RunFiles, start: Start | None) -> int:
    """Train and leave the policy; only the first process has a ``start`` and writes files."""
    from drivers.offline_training import train

    began = time.monotonic()
    if start is not None:
        _say_start(config, data, files, start)
    done = train(config, data, files, start, began)
    if done.signal is not None:
        log.info("stopped at step %d; the same command goes on from there", done.step)
        return 128 + done.signal
    if start is not None:
        numbers = {
            "wall_s": start.wall_s + time.monotonic() - began,
            "num_processes": num_processes(),
            "num_at_limit": done.num_at_limit,
            "num_without_room": done.num_without_room,
            "resumed": start.checkpoint is not None,
        }
        summary = finish(config, files, data, numbers)
        sys.stdout.write(_where_everything_is(files, summary))
    return 0


def _say_start(config: OfflineConfig, data: OfflineData, files: RunFiles, start: Start) -> None:
    log.info("run %s in %s", config.name, files.folder)
    for reason, number in sorted(data.skipped.items()):
        log.info("%d rows with %s are left out", number, reason)
    log.info(
        "%d rows to train on, %d held out, %d steps",
        len(data.train),
        len(data.val),
        config.num_steps(len(data.train)),
    )
    if start.checkpoint is not None:
        log.info("going on from step %d (%s)", start.step, Path(start.checkpoint).name)


def _where_everything_is(files: RunFiles, summary: dict[str, object]) -> str:
    def shown(name: str) -> str:
        value = summary[name]
        return f"{value:.3f}" if isinstance(value, float) else "none"

    return (
        f"Done: {summary['steps']} steps in {summary['wall_s']:.0f} s. Loss {shown('loss_first5')} "
        f"-> {shown('loss_last5')}, validation loss {shown('val_loss_first')} -> "
        f"{shown('val_loss_last')} (best {shown('val_loss_best')}).\n"
        f"  policy    {files.policy} (a Hugging Face folder)\n"
        f"  metrics   {files.metrics}, summary.json beside it\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
