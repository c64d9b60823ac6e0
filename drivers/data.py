"""``ratchet data``: what a data file holds, and any known format as our own.

``check`` tells format, queries, dropped rows with reasons, criteria, weights, anchors, tasks, what
the methods can make of them, and what to look at. ``convert`` writes the project's own JSONL, which
reads as the same queries again. ``formats`` lists the formats. Exit code 0, or 2 for bad input.
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
from core.formats.names import FORMAT_NAMES
from core.formats.native import native_row
from core.formats.registry import FORMATS
from core.formats.rows import Row
from core.formats.survey import survey
from core.rows import json_line
from core.rubric import Rubric
from drivers.data_files import LoadedQueries, load_queries, load_rubric
from drivers.data_text import check_text, formats_text, rubric_text
from drivers.jsonl_files import write_whole
from drivers.reading_command import exit_code
from drivers.rubrics_text import shown

_BAR_AFTER_S = 3.0
_EXAMPLES = """examples:
  ratchet data check data/train.jsonl                what a file holds
  ratchet data check data/rare --limit 200           a folder of parquet files, its first rows
  ratchet data check rows.jsonl --format chasing_tail --json
  ratchet data convert train.parquet train.jsonl     any known format as the project's own
  ratchet data convert rar.jsonl out.jsonl --format rar_explicit
  ratchet data formats                               the formats, and how each source counts
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = _parser().parse_args(arguments)
    logging.getLogger("drivers.data_files").setLevel(logging.ERROR)  # the command tells it itself
    return exit_code(lambda: _COMMANDS[args.command](args), getattr(args, "path", ""))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet data",
        description="Look at query files and convert them. A format is told by content.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="print what a file or folder holds")
    check.add_argument("path", metavar="PATH", help="JSONL, JSON, parquet, .gz, or a folder")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    convert = commands.add_parser("convert", help="write the project's own JSONL")
    convert.add_argument("path", metavar="PATH", help="JSONL, JSON, parquet, .gz, or a folder")
    convert.add_argument("out", metavar="OUT.jsonl", help="the file to write")
    convert.add_argument("--force", action="store_true", help="replace a file that is there")
    convert.add_argument(
        "--strict", action="store_true", help="write nothing when a row gives no query"
    )
    for command in (check, convert):
        command.add_argument(
            "--format", choices=FORMAT_NAMES, default="auto", help="what the rows are (auto)"
        )
        command.add_argument("--limit", type=_positive, metavar="N", help="the first N rows only")
    formats = commands.add_parser("formats", help="list the formats")
    formats.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, wanted a whole number from 1")
    return number


# ------------------------------------------------------------------ check
def _check(args: argparse.Namespace) -> int:
    try:
        loaded = _loaded(args, strict=False)
    except ConfigError:
        rubric = _rubric_in(args.path)
        if rubric is None:
            raise
        value = {"path": args.path, "holds": "rubric", "rubric": rubric.model_dump(mode="json")}
        _write_json(value) if args.json else _write(rubric_text(args.path, rubric))
        return 0
    found = survey(loaded.queries, loaded.dropped)
    methods, notes = fitness(loaded.queries, found), (*loaded.notes, *warnings(found))
    if args.json:
        _write_json(
            {
                "path": args.path,
                "holds": "queries",
                **_format_row(loaded),
                "num_rows": loaded.num_rows,
                **asdict(found),
                "methods": [asdict(one) for one in methods],
                "warnings": list(notes),
            }
        )
    else:
        _write(check_text(loaded, found, methods, notes))
    return 0


def _format_row(loaded: LoadedQueries) -> dict[str, object]:
    return {
        "format": loaded.format,
        "formats": dict(loaded.formats),
        "why": dict(loaded.why),
        "normaliser": loaded.normaliser,
        "reward": None if loaded.reward is None else dict(loaded.reward),
        "fingerprint": loaded.fingerprint,
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
        rows = {n: {k: getattr(f, k) for k in keys} for n, f in FORMATS.items()}
        _write_json(rows)
    else:
        _write(formats_text(FORMATS))
    return 0


_COMMANDS = {"check": _check, "convert": _convert, "formats": _formats}


def _loaded(args: argparse.Namespace, *, strict: bool) -> LoadedQueries:
    return load_queries(
        args.path, strict=strict, format=args.format, limit=args.limit, watch=_watched
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
