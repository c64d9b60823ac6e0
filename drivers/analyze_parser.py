"""The arguments of ``ratchet analyze``."""

import argparse
from pathlib import Path

from drivers.model_options import add_model_options

_EXAMPLES = """examples:
  ratchet analyze runs/mine                               all that the run's files give
  ratchet analyze mine other --what times,calls           two runs side by side
  ratchet analyze mine --what reopening --cluster-by stem --json
  ratchet analyze care --what audit --judge-a gemini-3-pro --judge-a-url URL --judge-b gpt-5.4
  ratchet analyze rare --what categories --judge gpt-4.1-mini --limit 200
  ratchet analyze rare --what fresh --policy-before models/step66 --policy-before-backend vllm \\
      --policy-after runs/rare/policy --policy-after-backend vllm --judge gpt-4.1-mini \\
      --judge-set max_tokens=8192
  ratchet analyze mine --outcomes evals/followbench/outcomes.jsonl
"""

ROLES = ("policy-before", "policy-after", "judge", "judge-a", "judge-b")
_DOES = {
    "policy-before": "that answers as the earlier checkpoint (fresh)",
    "policy-after": "that answers as the later checkpoint (fresh)",
    "judge": "that judges fresh rollouts and classifies replacements (fresh, categories)",
    "judge-a": "that audits first (audit)",
    "judge-b": "that audits second (audit)",
}


def analyze_parser(names: str) -> argparse.ArgumentParser:
    """Return the parser; ``names`` lists the analyses."""
    parser = argparse.ArgumentParser(
        prog="ratchet analyze",
        description="Compute the papers' analyses from the files of one run or several: what\n"
        "replacements reopened, what saturates again, budget, group size, directions, calls and\n"
        "times; and with models, an audit of edits, revision categories, and fresh rollouts under\n"
        "old and new criteria. What the files cannot give is said, with the reason.",
        epilog=f"analyses: {names}\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_inputs(parser)
    _add_limits(parser)
    for role in ROLES:
        add_model_options(parser, role, _DOES[role])
    return parser


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or its name")
    parser.add_argument(
        "--what", default="", metavar="NAME,…", help="these analyses only (default: all)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where analysis.json and the models' replies go (default: RUN/analysis; for several "
        "runs the folder `analysis` beside the first)",
    )
    parser.add_argument("--json", action="store_true", help="write JSON instead of tables")
    parser.add_argument(
        "--type-by",
        default="",
        metavar="KEY",
        help="key of a query's meta that says what results are averaged within (default: its task)",
    )
    parser.add_argument(
        "--cluster-by",
        default="",
        metavar="KEY",
        help="key of a query's meta that says which queries belong together in intervals, such as "
        "stem (default: each query alone)",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=int,
        default=0,
        metavar="N",
        help="ask models about N cases of a run at most, evenly over it (default: all)",
    )
    parser.add_argument(
        "--rollouts",
        type=int,
        default=0,
        metavar="N",
        help="fresh rollouts a query and checkpoint (default: the run's group size)",
    )
    parser.add_argument(
        "--outcomes",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="outcomes.jsonl (or the folder) of a FollowBench evaluation: HSR by constraint type "
        "(may be given again)",
    )
