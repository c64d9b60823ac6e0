"""``ratchet data``: what a data file holds, and any known format as our own.

``check`` tells format, queries, dropped rows with reasons, criteria, weights, anchors, tasks, what
the methods can make of them, and what to look at; of prompts without rubrics and of rubric files it
says that they are. ``convert`` writes the project's own JSONL, which reads as the same queries
again. ``formats`` lists the formats. Exit code 0, or 2 for bad input.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from core.errors import ConfigError
from core.formats.fitness import fitness, warnings
from core.formats.native import native_row
from core.formats.registry import FORMATS
from core.formats.rows import Row
from core.formats.survey import survey
from core.rows import json_line
from core.rubric import Criterion, Rubric
from drivers.data_files import LoadedQueries, load_queries, load_rubric
from drivers.data_parser import parsed
from drivers.data_text import check_text, formats_text, prompts_text, rubric_text
from drivers.jsonl_files import write_whole
from drivers.reading_command import exit_code
from drivers.rubrics_text import shown

_BAR_AFTER_S = 3.0
_NO_RUBRIC = Rubric(criteria=(Criterion(id="rubric", text="is still to be written"),))
"""Stands where prompts are looked at that have no rubric yet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = parsed(arguments)
    logging.getLogger("drivers.data_files").setLevel(logging.ERROR)  # the command tells it itself
    return exit_code(lambda: _COMMANDS[args.command](args), getattr(args, "path", ""))


# ------------------------------------------------------------------ check
def _check(args: argparse.Namespace) -> int:
    try:
        loaded = _loaded(args)
    except ConfigError:
        return _check_other(args)
    found = survey(loaded.queries, loaded.dropped)
    methods, notes = fitness(loaded.queries, found), (*loaded.notes, *warnings(found))
    if args.json:
        more = {"methods": [asdict(one) for one in methods], "warnings": list(notes)}
        _write_json({**_head_row(loaded, "queries"), **asdict(found), **more})
    else:
        _write(check_text(loaded, found, methods, notes))
    return 0


def _check_other(args: argparse.Namespace) -> int:
    """Tell what a file without queries holds; raises its own error where that is nothing known."""
    rubric = _rubric_in(args.path)
    if rubric is not None:
        row = {"path": args.path, "holds": "rubric", "rubric": rubric.model_dump(mode="json")}
        _write_json(row) if args.json else _write(rubric_text(args.path, rubric))
        return 0
    try:
        loaded = _loaded(args, stand_in=_NO_RUBRIC)
    except ConfigError:
        _loaded(args)  # says what is wrong with the file as it is
        raise
    found = survey(loaded.queries, loaded.dropped)
    if args.json:
        keys = ("num_queries", "dropped", "prompts", "anchors", "tasks", "without_task")
        row = {key: value for key, value in asdict(found).items() if key in keys}
        _write_json({**_head_row(loaded, "prompts"), **row})
    else:
        _write(prompts_text(loaded, found))
    return 0


def _head_row(loaded: LoadedQueries, holds: str) -> dict[str, object]:
    return {
        "path": loaded.path,
        "holds": holds,
        "format": loaded.format,
        "formats": dict(loaded.formats),
        "why": dict(loaded.why),
        "normaliser": loaded.normaliser,
        "reward": None if loaded.reward is None else dict(loaded.reward),
        "fingerprint": loaded.fingerprint,
        "num_rows": loaded.num_rows,
    }


def _rubric_in(path: str) -> Rubric | None:
    try:
        return load_rubric(path)
    except ConfigError:
        return None


# ------------------------------------------------------------------ convert
def _convert(args: argparse.Namespace) -> int:
    out = Path(args.out)
    if out.is_dir() or (out.exists() and not args.force):
        raise ConfigError(f"got {args.out}, which is there, wanted a new file: or give --force")
    loaded = _loaded(args, strict=args.strict)
    try:
        write_whole(out, b"".join(json_line(native_row(q)) for q in loaded.queries))
    except OSError as error:
        raise ConfigError(f"{args.out}: cannot be written ({error.strerror})") from error
    kept = f"{len(loaded.queries)} queries of {loaded.num_rows} rows ({loaded.format})"
    _write([f"wrote {shown(args.out)}: {kept}"])
    for one in survey(loaded.queries, loaded.dropped).dropped:
        sys.stderr.write(f"left out {one.count} rows: {one.reason} ({shown(one.examples[0])})\n")
    for note in loaded.notes:
        sys.stderr.write(f"note: {shown(note)}\n")
    return 0


def _formats(args: argparse.Namespace) -> int:
    if args.json:
        keys = ("source", "normaliser", "reward")
        _write_json({n: {k: getattr(f, k) for k in keys} for n, f in FORMATS.items()})
    else:
        _write(formats_text(FORMATS))
    return 0


_COMMANDS = {"check": _check, "convert": _convert, "formats": _formats}


# ------------------------------------------------------------------ both
def _loaded(
    args: argparse.Namespace, *, strict: bool = False, stand_in: Rubric | None = None
) -> LoadedQueries:
    if args.rubric is not None:
        stand_in = load_rubric(args.rubric)
    return load_queries(
        args.path,
        strict=strict,
        stand_in=stand_in,
        format=args.format,
        limit=args.limit,
        watch=_watched,
    )


def _watched(rows: Sequence[Row]) -> Iterable[Row]:
    return tqdm(rows, unit=" rows", delay=_BAR_AFTER_S, file=sys.stderr)


def _write(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
