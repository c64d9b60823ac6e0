"""``python -m drivers.train``: one run from its config to its report.

What a person got wrong ends with exit code 2 before anything is spent; a run that stops itself says
why and ends with 1; a signal ends it with a checkpoint and 128 plus the signal's number.
"""

import argparse
import asyncio
import errno
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from core.config import RunConfig
from core.config_evolution import rubric_scope
from core.errors import ConfigError, RolloutError, RunStopped, StaleVersionError, WeightSyncError
from drivers.branch import Branch, FrozenBranch, check_no_branch, find_branch
from drivers.config_file import load_config
from drivers.packaged_model import resolve_model
from drivers.plan import plan_text
from drivers.preflight import context_problems, missing
from drivers.prompt_lengths import fitted_data
from drivers.run_data import RunData, load_run_data
from drivers.run_folder import RunFolder
from drivers.runs_root import runs_root

log = logging.getLogger("ratchet")

_STOPPED = (RunStopped, RolloutError, StaleVersionError, WeightSyncError, TimeoutError)
"""What ends a run by itself; each message says who waited for whom, or what broke."""

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""A disk that takes no more: no fault of the program, and a person can do something."""

EXAMPLES = """examples:
  python -m drivers.train --config drivers/configs/quickstart.yaml
  python -m drivers.train --config drivers/configs/quickstart.yaml --dry-run
  python -m drivers.train --config my_run.yaml loop.steps=10 evolution.method=static name=baseline
  python -m drivers.train --config my_run.yaml fresh=true      (start a run of that name over)
  python -m drivers.train --config care --dry-run              (a shipped recipe by its name)
  python -m drivers.train --config my_run.yaml name=old loop.steps=42 \\
      --branch-from runs/my_run/checkpoints/step_00022 --rubric 0    (and name=new --rubric latest)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, check, train; returns the exit code."""
    args = _parser().parse_intermixed_args(arguments)  # overrides may stand anywhere
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    try:
        return _start(args)
    except ConfigError as error:
        sys.stderr.write(f"error: {_one_line(error)}\n")
        return 2
    except _STOPPED as error:
        sys.stderr.write(f"stopped: {_one_line(error)}\n")
        return 1
    except OSError as error:
        if error.errno not in _DISK:
            raise
        sys.stderr.write(
            f"stopped: got {error.strerror} ({error.filename or 'while writing'}), wanted room to "
            "write the run's files: make some, and the same command goes on from the last "
            "checkpoint\n"
        )
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _start(args: argparse.Namespace) -> int:
    """Check what was asked for, then show or do it."""
    config = given = load_config(args.config, args.overrides)
    branch = _branch(args, config)
    if branch is not None:
        config = branch.config
    if args.dry_run:
        more = "" if branch is None else f"\n# branch\n{branch.text}\n"
        done = 0 if branch is None else branch.start.position.step
        sys.stdout.write(f"{plan_text(config, data_config=given, done=done)}\n{more}")
        return 0
    data = load_run_data(given)  # a branch draws from the queries that its method drew from
    problems = missing(config, data)
    if problems:
        more = f" (and {len(problems) - 1} more: see --dry-run)" if problems[1:] else ""
        raise ConfigError(problems[0] + more)
    return _run(config, data, branch)


def _folder(config: RunConfig) -> RunFolder:
    return RunFolder(runs_root(config.runs_dir) / config.name)


def _branch(args: argparse.Namespace, config: RunConfig) -> Branch | None:
    """Return what ``--branch-from`` asks for."""
    if (args.branch_from is None) != (args.rubric is None):
        got, other = ("--rubric", "--branch-from") if args.rubric else ("--branch-from", "--rubric")
        raise ConfigError(
            f"got {got} alone, wanted {other} with it: a branch is a checkpoint and the version of "
            "the rubric that stays"
        )
    if args.branch_from is None:
        return None
    branch = find_branch(config, _folder(config).files, args.branch_from, args.rubric)
    if branch.config is not config:
        log.info(
            "a branch keeps its rubric: evolution.method=%s is static here, with scope=%s",
            config.evolution.method,
            rubric_scope(config.evolution),
        )
    return branch


def _one_line(error: BaseException) -> str:
    """A message is one line, whatever a file or another library put into it."""
    return " ".join(str(error).replace("\0", "\\0").split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet train",
        description="Train a policy with rubric rewards that evolve. The same command on an "
        "unfinished run goes on from its last checkpoint.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, help="YAML config (see drivers/configs/)")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would run and what is missing, and stop"
    )
    parser.add_argument(
        "--branch-from",
        metavar="CHECKPOINT",
        help="begin a new run at another run's checkpoint (its folder, or the run's for its newest "
        "one) with the rubric frozen; loop.steps counts on",
    )
    parser.add_argument(
        "--rubric",
        metavar="VERSION",
        help="the branch's rubric: a version number (of a rubric with fewer, its newest), "
        "`checkpoint` (as of the checkpoint) or `latest`",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override a config key")
    return parser


def _run(config: RunConfig, data: RunData, branch: Branch | None) -> int:
    started = time.monotonic()
    folder = _folder(config)
    if not config.fresh and folder.is_finished(config.loop.steps):
        sys.stdout.write(
            f"The run {config.name!r} is finished ({config.loop.steps} steps); its files are in "
            f"{folder.path}\nStart over with fresh=true, or give it more with loop.steps=N.\n"
        )
        return 0
    if branch is None and not config.fresh:
        check_no_branch(folder.files)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    model_folder = Path(os.path.expanduser(resolve_model(config.policy.model)))
    problems = context_problems(config, model_folder) if os.path.isdir(model_folder) else []
    if problems:
        raise ConfigError(problems[0])
    data = fitted_data(config, data, model_folder)
    _say_what_is_left_out(data)
    frozen = None if branch is None else branch.frozen(data)
    if frozen is not None:
        data = frozen.data
        log.info("branch %s", frozen.branch.text)
    with folder.locked():
        from drivers.placement import check_resources, local_resources
        from drivers.ray_session import start_ray

        if not os.environ.get("RAY_ADDRESS"):
            check_resources(config, local_resources())
        dashboard = start_ray()
        log.info("run %s in %s", config.name, folder.path)
        log.info("dashboard %s", dashboard or "off")
        code = asyncio.run(_train_until_signal(config, data, folder, started, frozen))
    if code == 0:
        sys.stdout.write(_where_everything_is(folder))
    return code


def _say_what_is_left_out(data: RunData) -> None:
    if data.num_without_anchor:
        log.info("%d training queries without an anchor are left out", data.num_without_anchor)
    if data.num_overlong:
        log.info("%d training queries over data.max_prompt_tokens are left out", data.num_overlong)


def _where_everything_is(folder: RunFolder) -> str:
    """Return the last lines of a finished run: what came out, and where it lies."""
    summary = json.loads(folder.files.summary.read_bytes())
    is_short = summary["steps"] <= 5  # both means are of all its steps

    def change(name: str) -> str:
        first, last = summary[f"{name}_first5"], summary[f"{name}_last5"]
        if first is None or last is None:
            return "none"
        return f"{last:.3f}" if is_short else f"{first:.3f} -> {last:.3f}"

    claims = (
        ""
        if summary["method"] != "static" and summary["steps"] >= 10
        else " (a gain and a veto are claimed of ten steps or more whose rubric evolves)"
    )
    means = "Mean of its steps" if is_short else "Mean of the first and the last five steps"
    return (
        f"Done: {summary['steps']} steps in {summary['wall_s']:.0f} s. {means}: "
        f"reward {change('reward')}, gold {change('gold')}.\n"
        f"  report    {folder.files.report}\n"
        f"  policy    {folder.policy} (a Hugging Face folder)\n"
        f"  rubrics   {folder.rubrics}, edits in events.jsonl, rollouts/, metrics.jsonl beside it\n"
        f"{_what_waits(folder)}"
        f"Check it from its files: {sys.executable} -m drivers.report {folder.path} --check"
        f"{claims}\n"
    )


def _what_waits(folder: RunFolder) -> str:
    """Return the line about edits that wait for a person, if any do."""
    from drivers.rubrics_run import open_log

    with open_log(folder.files) as rubrics:
        number = sum(e.status == "waiting" for e in rubrics.waiting())
    if not number:
        return ""
    return f"  {number} edits wait for a person: ratchet rubrics waiting {folder.path}\n"


async def _train_until_signal(
    config: RunConfig,
    data: RunData,
    folder: RunFolder,
    started: float,
    branch: FrozenBranch | None = None,
) -> int:
    """Train; the first signal asks for an end with a checkpoint, a second one cancels."""
    from drivers.run import Run

    run = Run(config, data, folder, started, branch)
    task = asyncio.create_task(run.train())
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) > 1 or not run.request_stop():
            log.info("ending the run's processes, without a checkpoint")
            task.cancel()
        else:
            log.info("stopping after this step, with a checkpoint; again to end at once")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        is_finished = await task
    except asyncio.CancelledError:
        if not received:  # an interrupt from before the handlers stood
            raise
        is_finished = False
    return 0 if is_finished or not received else 128 + received[0]


if __name__ == "__main__":
    raise SystemExit(main())
