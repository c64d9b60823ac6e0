"""The arguments of ``ratchet data``."""

import argparse
from collections.abc import Sequence

from core.formats.names import FORMAT_NAMES

_CHECK = """  ratchet data check data/train.jsonl                what a file holds
  ratchet data check data/rare --limit 200           a folder of parquet files, its first rows
  ratchet data check rows.jsonl --format chasing_tail --json
"""
_CONVERT = """  ratchet data convert train.parquet out.jsonl       any known format as our own
  ratchet data convert rar.jsonl out.jsonl --format rar_explicit
  ratchet data convert queries.jsonl out.jsonl --rubric 2d_animation_r0.json
"""
_FORMATS = "  ratchet data formats                               the formats, and how each counts\n"


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command's arguments."""
    parser = _formatted(
        argparse.ArgumentParser(
            prog="ratchet data",
            description="Look at query files and convert them. A format is told by content.",
        ),
        _CHECK + _CONVERT + _FORMATS,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="print what a file or folder holds")
    _add_source(_formatted(check, _CHECK))
    check.add_argument("--json", action="store_true", help="print one JSON object")
    convert = commands.add_parser("convert", help="write the project's own JSONL")
    _add_source(_formatted(convert, _CONVERT))
    convert.add_argument("out", metavar="OUT.jsonl", help="the file to write")
    convert.add_argument("--force", action="store_true", help="replace a file that is there")
    convert.add_argument(
        "--strict", action="store_true", help="write nothing when a row gives no query"
    )
    formats = commands.add_parser("formats", help="list the formats")
    _formatted(formats, _FORMATS).add_argument(
        "--json", action="store_true", help="print one JSON object"
    )
    return parser.parse_args(arguments)


def _formatted(parser: argparse.ArgumentParser, examples: str) -> argparse.ArgumentParser:
    parser.epilog = f"examples:\n{examples}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="JSONL, JSON, parquet, .gz, or a folder")
    parser.add_argument(
        "--format",
        choices=FORMAT_NAMES,
        default="auto",
        metavar="FORMAT",
        help="what the rows are, as `ratchet data formats` lists them (auto: by content)",
    )
    parser.add_argument("--limit", type=_positive, metavar="N", help="the first N rows only")
    parser.add_argument(
        "--rubric", metavar="FILE", help="the rubric of rows that have none of their own"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, wanted a whole number from 1")
    return number
