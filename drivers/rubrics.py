"""``ratchet rubrics COMMAND RUN``: look at a run's rubrics, take an edit back, decide about one.

``RUN`` is a run's folder or its name; it may be finished, stopped or running. ``history``,
``diff``, ``waiting`` and ``health`` only read; ``rollback``, ``approve`` and ``reject`` change the
rubric file by compare-and-set and write events.jsonl. ``build`` makes the initial rubrics of a
query file instead (``drivers/rubrics_build.py``). Exit code 0 when all that was asked for is done,
1 when something could not be, 2 for bad input.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from drivers.reading_command import exit_code
from drivers.rubrics_parser import parsed
from drivers.rubrics_run import find_run, open_log, rubric_named


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = parsed(arguments)
    if args.command == "build":
        return _build(args)
    return exit_code(lambda: _COMMANDS[args.command](args), args.run)


def _build(args: argparse.Namespace) -> int:
    from drivers.asking_command import ended
    from drivers.rubrics_build import build

    return ended(lambda: build(args))


def _write(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _write_json(value: Any) -> None:
    # ASCII: a lone surrogate, which a policy can write, stays the escape that it is in JSON.
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()


# ------------------------------------------------------------------ commands that read
def _history(args: argparse.Namespace) -> int:
    from drivers.rubrics_show import all_rubrics, all_rubrics_text, history_rows, history_text

    with open_log(find_run(args.run)) as log:
        if args.rubric is None:
            rows = all_rubrics(log)
            _write_json({"rubrics": rows}) if args.json else _write(all_rubrics_text(rows))
            return 0
        history = log.history(rubric_named(log, args.rubric))
    if args.json:
        _write_json({"rubric": history[0].query_id, "versions": history_rows(history)})
    else:
        _write(history_text(history))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from drivers.rubrics_show import difference, difference_row, difference_text

    with open_log(find_run(args.run)) as log:
        before, after = difference(log, args.rubric, args.from_version, args.to_version)
    if args.json:
        _write_json(difference_row(before, after))
    else:
        _write(difference_text(before, after))
    return 0


def _waiting(args: argparse.Namespace) -> int:
    from drivers.rubrics_show import waiting_rows, waiting_text

    with open_log(find_run(args.run)) as log:
        rubric_id = None if args.rubric is None else rubric_named(log, args.rubric)
        edits = [e for e in log.waiting(rubric_id) if args.all or e.status == "waiting"]
        _write_json(waiting_rows(edits)) if args.json else _write(waiting_text(log, edits))
    return 0


def _health(args: argparse.Namespace) -> int:
    from drivers.rubrics_health import health_command

    return health_command(args, _write, _write_json)


# ------------------------------------------------------------------ commands that change
def _rollback(args: argparse.Namespace) -> int:
    from drivers.rubrics_edit import roll_back

    files = find_run(args.run)
    with files.editing(), open_log(files, is_read_only=False) as log:
        done = roll_back(files, log, args.rubric, args.to, args.reason)
    _write(done.lines)
    return 0 if done.is_whole else 1


def _approve(args: argparse.Namespace) -> int:
    from drivers.rubrics_edit import approve

    files = find_run(args.run)
    with files.editing(), open_log(files, is_read_only=False) as log:
        done = approve(files, log, args.ids, args.reason, is_all=args.all)
    _write(done.lines)
    return 0 if done.is_whole else 1


def _reject(args: argparse.Namespace) -> int:
    from drivers.rubrics_edit import reject

    files = find_run(args.run)
    with files.editing(), open_log(files, is_read_only=False) as log:
        done = reject(files, log, args.ids, args.reason)
    _write(done.lines)
    return 0 if done.is_whole else 1


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "history": _history,
    "diff": _diff,
    "waiting": _waiting,
    "health": _health,
    "rollback": _rollback,
    "approve": _approve,
    "reject": _reject,
}


if __name__ == "__main__":
    raise SystemExit(main())
