"""``ratchet anchors COMMAND``: reference answers for queries, validated by models and by people.

``build`` has a model write them from prompt and rubric, ``validate`` keeps those that two other
models accept, ``sheets`` and ``labels`` carry a sample to people and back. Model calls are kept in
the folder, so a command that was stopped goes on without paying twice. Exit code 0 when all is
done, 1 when calls were not answered and the same command can complete it, 2 for bad input.
"""

import argparse
from collections.abc import Callable, Sequence

from drivers.asking_command import ended
from drivers.extras import need_extra
from drivers.model_options import add_model_options
from drivers.reading_command import exit_code

_EXAMPLES = """examples:
  ratchet anchors build queries.jsonl --out anchors --writer gpt-4.1 --dry-run
  ratchet anchors build queries.jsonl --out anchors --writer gpt-4.1
  ratchet anchors validate anchors --validator-a gpt-5.4 --validator-b gemini-3-pro \\
      --validator-b-url https://generativelanguage.googleapis.com/v1beta/openai/ \\
      --validator-b-key-env GEMINI_API_KEY --held-out 300
  ratchet anchors sheets anchors --kind anchors --n 200 --raters 3 --out audit.csv
  ratchet anchors sheets runs/mine --kind adaptive --n 200 --out decisions.csv
  ratchet anchors labels audit.1.csv audit.2.csv audit.3.csv
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = _parser().parse_args(argv)
    return ended(lambda: _COMMANDS[args.command](args))


# ------------------------------------------------------------------ commands
def _build(args: argparse.Namespace) -> int:
    from drivers.anchors_build import build

    return build(args)


def _validate(args: argparse.Namespace) -> int:
    need_extra("eval")
    from drivers.anchors_validate import validate

    return validate(args)


def _sheets(args: argparse.Namespace) -> int:
    from drivers.anchors_sheets import sheets

    if args.kind == "adaptive":
        return exit_code(lambda: sheets(args), args.source)
    return sheets(args)


def _labels(args: argparse.Namespace) -> int:
    need_extra("eval")
    from drivers.anchors_sheets import labels

    return labels(args)


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "build": _build,
    "validate": _validate,
    "sheets": _sheets,
    "labels": _labels,
}


# ------------------------------------------------------------------ options
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet anchors",
        description="Write reference answers for queries, and have them validated.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_build(commands)
    _add_validate(commands)
    _add_sheets(commands)
    _add_labels(commands)
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, meaning: str
) -> argparse.ArgumentParser:
    wanted = (
        line for line in _EXAMPLES.split("\n  ratchet ") if line.startswith(f"anchors {name}")
    )
    return commands.add_parser(
        name,
        help=meaning,
        description=meaning,
        epilog="examples:\n" + "\n".join(f"  ratchet {line.rstrip()}" for line in wanted),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_build(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    build = _command(commands, "build", "have a model write an anchor for each query")
    build.add_argument("queries", metavar="QUERIES", help="a file of queries with rubrics")
    build.add_argument("--out", required=True, metavar="DIR", help="folder for what is made")
    build.add_argument(
        "--limit", type=_positive, metavar="N", help="only the first N queries, as a trial"
    )
    build.add_argument(
        "--replace", action="store_true", help="also where the file has an anchor already"
    )
    _add_dry_run(build)
    add_model_options(build, "writer", "that writes the anchors")


def _add_validate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    validate = _command(
        commands, "validate", "have two models judge each anchor; keep what both accept"
    )
    validate.add_argument("folder", metavar="DIR", help="a folder that `build` wrote")
    validate.add_argument(
        "--held-out",
        type=int,
        default=0,
        metavar="N",
        help="accepted queries to hold out of training (default: 0; CARE's test set has 300)",
    )
    _add_seed(validate, "of the choice of held-out queries")
    _add_dry_run(validate)
    add_model_options(validate, "validator-a", "that validates first")
    add_model_options(validate, "validator-b", "that validates apart from it")


def _add_sheets(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sheets = _command(commands, "sheets", "write sheets of a stratified sample for people to label")
    sheets.add_argument(
        "source", metavar="DIR|RUN", help="a validated folder (anchors), or a run (adaptive)"
    )
    sheets.add_argument(
        "--kind",
        required=True,
        choices=("anchors", "adaptive"),
        help="anchors of the training set, or decisions of the adaptive branch",
    )
    sheets.add_argument(
        "--n", type=_positive, default=200, metavar="N", help="cases (default: 200)"
    )
    sheets.add_argument(
        "--out", required=True, metavar="CSV", help="the sheet; its key goes beside"
    )
    sheets.add_argument(
        "--raters", type=_positive, default=1, metavar="N", help="one file for each (default: 1)"
    )
    sheets.add_argument(
        "--all",
        action="store_true",
        help="anchors: sample rejected ones too, by outcome, so that agreement on them is known",
    )
    _add_seed(sheets, "of the sample")


def _add_labels(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    labels = _command(commands, "labels", "tell what people's labels come to")
    labels.add_argument("sheets", nargs="+", metavar="CSV", help="filled-in sheets, one a rater")
    labels.add_argument("--key", metavar="JSON", help="their key (default: the one beside)")
    labels.add_argument("--out", metavar="JSON", help="also write the table to a file")
    labels.add_argument("--json", action="store_true", help="print JSON")


def _add_seed(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=f"{what} (default: 0)")


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what it would cost")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {number}, wanted at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
