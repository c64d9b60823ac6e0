"""The arguments of ``ratchet rubrics``."""

import argparse
import sys
from collections.abc import Sequence

from drivers.rubrics_build_options import EXAMPLES as BUILD_EXAMPLES
from drivers.rubrics_build_options import add_build_arguments

_EXAMPLES = """examples:
  ratchet rubrics history runs/mine                       all rubrics of a run
  ratchet rubrics history mine --rubric q7                the versions of one, with their edits
  ratchet rubrics diff mine --rubric q7 0 3               what changed from version 0 to 3
  ratchet rubrics rollback mine --rubric q7 --to 2 --reason "rewards flattery"
  ratchet rubrics waiting mine                            edits that wait for a person
  ratchet rubrics approve mine 4 5
  ratchet rubrics reject mine 6 --reason "too vague"
  ratchet rubrics health mine                             which criteria still do their work
  ratchet rubrics health mine --rubric q7 --resample 20 --label --model gpt-4.1-mini
  ratchet rubrics build prompts.jsonl --how direct --out built --writer gpt-4.1
"""

_THE_ONLY_ONE = "the only one, if the run has one"


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command's arguments; options may stand before, between and after the others."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser, commands = _parsers()
    if not given or given[0] not in commands.choices:
        return parser.parse_args(given)  # help, or the message about it
    args = commands.choices[given[0]].parse_intermixed_args(given[1:])
    args.command = given[0]
    return args


def _parsers() -> tuple[
    argparse.ArgumentParser, "argparse._SubParsersAction[argparse.ArgumentParser]"
]:
    parser = _formatted(
        argparse.ArgumentParser(
            prog="ratchet rubrics",
            description="Build the initial rubrics of a query file; look at a run's rubrics, take "
            "an edit back, decide about edits that wait. RUN is a run's folder or its name; the "
            "run may be going on meanwhile.",
        ),
        _EXAMPLES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_build(commands)
    _add_readers(commands)
    _add_health(commands)
    _add_editors(commands)
    return parser, commands


def _formatted(parser: argparse.ArgumentParser, examples: str) -> argparse.ArgumentParser:
    parser.epilog = examples
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    meaning: str,
    example: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=meaning, description=meaning)
    parser.add_argument("run", metavar="RUN", help="a run's folder, or its name under the runs")
    return _formatted(parser, f"examples:\n{example}")


def _add_build(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    meaning = (
        "Build the rubrics of queries that have none, or one shared rubric a task. Resumable: "
        "every reply is kept in DIR, and the same command asks only for what is missing."
    )
    build = commands.add_parser("build", help="build initial rubrics", description=meaning)
    add_build_arguments(_formatted(build, BUILD_EXAMPLES))


def _add_readers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    history = _command(
        commands,
        "history",
        "Show the versions of a rubric, or all rubrics of a run.",
        "  ratchet rubrics history runs/mine\n  ratchet rubrics history mine --rubric q7 --json\n",
    )
    diff = _command(
        commands,
        "diff",
        "Show what changed between two versions of a rubric, criterion by criterion.",
        "  ratchet rubrics diff mine --rubric q7          the last edit\n"
        "  ratchet rubrics diff mine --rubric q7 0 3\n",
    )
    diff.add_argument(
        "from_version", nargs="?", type=int, metavar="FROM", help="default: the one before the last"
    )
    diff.add_argument("to_version", nargs="?", type=int, metavar="TO", help="default: the last")
    waiting = _command(
        commands,
        "waiting",
        "Show the edits that wait for a person (evolution.approval=person).",
        "  ratchet rubrics waiting mine\n  ratchet rubrics waiting mine --all --json\n",
    )
    waiting.add_argument("--all", action="store_true", help="those decided about as well")
    for parser, without in ((history, "all"), (diff, _THE_ONLY_ONE), (waiting, "all")):
        _add_rubric(parser, without)
        _add_json(parser)


def _add_health(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    health = _command(
        commands,
        "health",
        "Show how well each criterion still does its work, from the run's rollouts: whether it "
        "tells rollouts apart, agrees with the rest, is always or never met, vetoes, fails.",
        "  ratchet rubrics health mine\n"
        "  ratchet rubrics health mine --rubric q7 --resample 20\n"
        "  ratchet rubrics health mine --label --model gpt-4.1-mini\n",
    )
    _add_rubric(health, "all")
    _add_json(health)
    health.add_argument("--all", action="store_true", help="every criterion, not the first 40")
    health.add_argument(
        "--resample",
        type=int,
        default=0,
        metavar="N",
        help="ask the run's judge again for N graded rollouts and show how often it disagrees "
        "with itself",
    )
    health.add_argument(
        "--label",
        action="store_true",
        help="ask a model which of eight failure modes each criterion has (RIFT), one call a "
        "rubric; kept in the run's health.json",
    )
    health.add_argument(
        "--model", default="", metavar="NAME", help="the model that labels (default: the writer's)"
    )
    health.add_argument("--base-url", metavar="URL", help="its OpenAI-compatible endpoint")
    health.add_argument(
        "--api-key-env", metavar="NAME", help="environment variable that holds its key"
    )


def _add_editors(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    rollback = _command(
        commands,
        "rollback",
        "Make the criteria of an older version current again. This adds a version; none is "
        "deleted. A live run grades by it from the query's next visit on.",
        '  ratchet rubrics rollback mine --rubric q7 --to 2 --reason "rewards flattery"\n',
    )
    _add_rubric(rollback, _THE_ONLY_ONE)
    rollback.add_argument("--to", required=True, type=int, metavar="VERSION")
    approve = _command(
        commands,
        "approve",
        "Commit edits that wait, each if its rubric is still at the version it was made from.",
        "  ratchet rubrics approve mine 4 5\n  ratchet rubrics approve mine --all\n",
    )
    approve.add_argument("--all", action="store_true", help="every edit that can be applied")
    reject = _command(
        commands,
        "reject",
        "Note that edits are not wanted; they stay in the file as provenance.",
        '  ratchet rubrics reject mine 6 --reason "too vague"\n',
    )
    for parser in (approve, reject):
        parser.add_argument("ids", nargs="*", type=int, metavar="ID", help="as `waiting` shows it")
    for parser in (rollback, approve, reject):
        parser.add_argument(
            "--reason", type=_plain, default="", metavar="TEXT", help="kept with the edit"
        )


def _plain(text: str) -> str:
    """Return a text that any file can hold: bytes that are none in the terminal's coding go."""
    return text.encode("utf-8", "replace").decode()


def _add_rubric(parser: argparse.ArgumentParser, without: str) -> None:
    what = "the rubric's id: its query's, or task:NAME for a shared one"
    parser.add_argument("--rubric", metavar="ID", help=f"{what}; default: {without}")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="write JSON for other tools")
