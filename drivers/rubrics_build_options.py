"""The arguments of ``ratchet rubrics build``, and what each way of building takes of them.

An option that the chosen way has no use for is refused instead of being passed over. One that is
not given has the way's own value: RARE's (appendix A.1 and A.2) for ``contrast`` and ``task``,
RLCF's released ones for ``checklist`` and ``direct``, and ours where neither says one (tries, the
longest candidate, rubrics in a batch, the highest maximum).
"""

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.errors import ConfigError
from core.rubric import Criterion
from core.validation import first_problem
from drivers.model_options import add_model_options

EXAMPLES = """examples:
  ratchet rubrics build prompts.jsonl --how contrast --out built \\
      --policy Qwen/Qwen3-4B-Instruct-2507 --policy-url http://127.0.0.1:8000/v1 --writer gpt-5.4
  ratchet rubrics build prompts.jsonl --how checklist --out lists --policy small --also medium \\
      --policy-url http://127.0.0.1:8000/v1 --writer large --writer-url http://127.0.0.1:8001/v1
  ratchet rubrics build prompts.jsonl --how direct --out lists --writer gpt-4.1
  ratchet rubrics build built/queries.jsonl --how task --task scripts --out shared --writer gpt-5.4
  ratchet rubrics build prompts.jsonl --how contrast --out built --writer gpt-5.4 \\
      --responses runs/mine/rollouts/step_00001.jsonl --dry-run         what it would cost
"""

WAYS = ("contrast", "checklist", "task", "direct")

_SAMPLED: dict[str, Any] = {"responses": None, "also": [], "seed": 0}

_TAKEN: dict[str, dict[str, Any]] = {
    "contrast": {
        **_SAMPLED,
        "rollouts": 8,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_response_tokens": 8192,
        "min_criteria": 3,
        "max_criteria": 8,
        "max_points": 2,
        "density": None,
        "no_density": False,
    },
    "checklist": {
        **_SAMPLED,
        "rollouts": 4,
        "temperature": 0.6,
        "top_p": 0.9,
        "max_response_tokens": 2048,
        "universal": "one",
        "no_expert": False,
    },
    "direct": {"universal": "one"},
    "task": {"task": None, "criteria": 6, "max_points": 2, "batch": 20, "most": 0},
}
"""By way: the options that it takes, with their values where they are not given."""

_ASKED = ("rollouts", "also", "seed", "temperature", "top_p", "max_response_tokens")
"""Options of responses that a policy is asked for."""

_AT_LEAST = {
    "rollouts": 1, "max_response_tokens": 1, "min_criteria": 1, "max_criteria": 1, "max_points": 1,
    "criteria": 1, "batch": 2, "most": 0, "tries": 1, "limit": 1, "seed": 0,
}  # fmt: skip


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all arguments of the command."""
    parser.add_argument("run", metavar="PROMPTS", help="a query file; for `task` one with rubrics")
    parser.add_argument(
        "--how",
        required=True,
        choices=WAYS,
        help="contrast: criteria with levels from what sets rollouts of the policy apart (RARE); "
        "checklist: weighted yes/no questions from candidate responses (RLCF); direct: the same "
        "from the prompt alone; task: one shared rubric a task, summarised from its queries'",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N queries")
    parser.add_argument("--tries", type=int, default=5, help="of the writer (default: 5)")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be asked and what it costs; ask none"
    )
    _add_sampling(parser)
    _add_ways(parser)
    add_model_options(parser, "policy", "whose responses are compared")
    add_model_options(parser, "writer", "that writes the rubrics")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the responses (contrast, checklist)")
    group.add_argument("--rollouts", type=int, metavar="N", help="a query (8; checklist 4)")
    group.add_argument(
        "--also",
        action="append",
        metavar="NAME",
        help="a further model at --policy's endpoint; the models answer in turn (may be given "
        "again)",
    )
    group.add_argument(
        "--responses",
        type=Path,
        metavar="FILE",
        help='take them from a JSONL file of {"id", "response"} instead; a run\'s rollouts are one',
    )
    group.add_argument("--temperature", type=float, help="(1.0; checklist 0.6)")
    group.add_argument("--top-p", type=float, help="(1.0; checklist 0.9)")
    group.add_argument("--max-response-tokens", type=int, metavar="N", help="(8192; 2048)")
    group.add_argument("--seed", type=int, help="of the first response; the others count up (0)")


def _add_ways(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the rubrics")
    group.add_argument("--min-criteria", type=int, metavar="N", help="contrast (3)")
    group.add_argument("--max-criteria", type=int, metavar="N", help="contrast (8)")
    group.add_argument(
        "--max-points", type=int, metavar="N", help="contrast: highest maximum; task: each one (2)"
    )
    group.add_argument(
        "--density",
        type=Path,
        metavar="FILE",
        help="contrast: the fixed check that every rubric has, as a JSON criterion in our format, "
        "in place of ours on content density",
    )
    group.add_argument(
        "--no-density", action="store_true", default=None, help="contrast: without a fixed check"
    )
    group.add_argument(
        "--universal",
        choices=("one", "two", "none"),
        help="checklist, direct: the universal demands as one item (default), as two, or not",
    )
    group.add_argument(
        "--no-expert", action="store_true", default=None, help="checklist: do not show the anchor"
    )
    group.add_argument("--task", metavar="NAME", help="task: of the queries that name none")
    group.add_argument("--criteria", type=int, metavar="N", help="task: how many (6)")
    group.add_argument("--batch", type=int, metavar="N", help="task: rubrics shown at a time (20)")
    group.add_argument("--most", type=int, metavar="N", help="task: rubrics used (0: all)")


def settle(args: argparse.Namespace) -> None:
    """Give every option of the chosen way its value; ConfigError for options that do not fit."""
    _check_source(args)
    taken = _TAKEN[args.how]
    for name in {name for way in _TAKEN.values() for name in way}:
        given = getattr(args, name)
        if name not in taken and given is not None:
            ways = " or ".join(way for way in WAYS if name in _TAKEN[way])
            raise ConfigError(f"got {_flag(name)} with --how {args.how}, wanted it with {ways}")
        if given is None:
            setattr(args, name, taken.get(name))
    for name, low in _AT_LEAST.items():
        value = getattr(args, name)
        if value is not None and value < low:
            raise ConfigError(f"got {_flag(name)} {value}, wanted at least {low}")
    _check_contrast(args)


def _check_source(args: argparse.Namespace) -> None:
    """Options of a policy are for a policy that is asked."""
    if args.policy and args.how in ("direct", "task"):
        raise ConfigError(f"got --policy with --how {args.how}, which asks none: leave it out")
    if args.responses is None:
        return
    for name in ("policy", *_ASKED):
        if getattr(args, name) not in (None, ""):
            raise ConfigError(
                f"got {_flag(name)} with --responses, wanted one of them: the responses of the "
                "file are taken as they are"
            )


def _check_contrast(args: argparse.Namespace) -> None:
    if args.how != "contrast":
        return
    if args.min_criteria > args.max_criteria:
        raise ConfigError(
            f"got --min-criteria {args.min_criteria} over --max-criteria {args.max_criteria}, "
            "wanted it to be at most as many"
        )
    if args.responses is None and args.rollouts < 2:
        raise ConfigError("got --rollouts 1, wanted at least 2: there is nothing to compare")
    if args.density is not None and args.no_density:
        raise ConfigError("got --density and --no-density, wanted one of them")
    if args.max_criteria == 1 and not args.no_density:
        raise ConfigError("got --max-criteria 1, wanted room for one beside the fixed check")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def fixed_check(path: Path) -> Criterion:
    """Return the criterion of ``--density``; ConfigError when the file holds none."""
    try:
        return Criterion.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{path}: got no readable file ({error.strerror}), wanted a criterion (JSON)"
        ) from error
    except ValidationError as error:
        raise ConfigError(
            f"{path}: {first_problem(error)}; wanted one criterion such as "
            '{"id": "content_density", "text": "...", "max": 2, "levels": {"0": "...", ...}}'
        ) from error
