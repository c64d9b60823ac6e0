"""``ratchet evaluate compare``: two policies, each evaluated once or with several seeds.

Tasks are paired by id: of each side the mean over its folders, then the mean difference with its
paired bootstrap interval, resampled within the benchmark's groups. Tasks weigh equally there, which
some headlines do not (macro means, questions of InfoBench). Each headline is told as mean and
deviation over its folders. Of Arena-Hard, all folders also go into one style-controlled fit, since
that score depends on which models are in it.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.benchmarks.task_values import stratum, task_value
from core.errors import ConfigError
from core.rows import Row
from drivers.evaluate_result import IDENTITY, SCORES, read_outcomes, scores_table
from drivers.extras import need_extra
from drivers.reading_command import exit_code
from drivers.run_files import write_json

_EXAMPLES = """examples:
  ratchet evaluate compare evals/care/policy --against evals/static/policy
  ratchet evaluate compare evals/care_s0 evals/care_s1 --against evals/static_s0 evals/static_s1
"""
_SAME = ("benchmark", "options", "data", "judge")
"""What all folders must agree on: else the scores are of different things."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="ratchet evaluate compare",
        description="Compare evaluations of the same tasks by the same judge.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", type=Path, nargs="+", help="folders of one policy's evaluations")
    parser.add_argument(
        "--against", type=Path, nargs="+", required=True, help="folders of the other policy's"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON too")
    args = parser.parse_args(argv)
    return exit_code(lambda: _compare(args), "an evaluation's folder")


def _compare(args: argparse.Namespace) -> int:
    need_extra("eval")
    folders = [*args.a, *args.against]
    benchmark = _benchmark_of(folders)
    result = compared(benchmark, args.a, args.against)
    if args.out is not None:
        write_json(args.out, result)
    sys.stdout.write(scores_table(f"{benchmark}: a against b", result) + "\n")
    return 0


def compared(benchmark: str, a: Sequence[Path], b: Sequence[Path]) -> dict[str, Any]:
    """Return both sides' headlines, the paired difference a - b, and the joint fit if there is
    one; ConfigError for folders without a common task."""
    from core.statistics import over_seeds, paired_difference

    groups: dict[str, str] = {}
    values_a, values_b = _values(benchmark, a, groups), _values(benchmark, b, groups)
    result: dict[str, Any] = {}
    for name, side in (("a", a), ("b", b)):
        headlines = [_headline(folder) for folder in side]
        result[name] = asdict(over_seeds(headlines))
    try:
        difference = paired_difference(values_a, values_b, strata=groups)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    result["difference"] = asdict(difference)
    if benchmark == "arena_hard":
        result["style_controlled"] = _joint([*a, *b])
    return result


def _benchmark_of(folders: Sequence[Path]) -> str:
    identities = [_read(folder / IDENTITY) for folder in folders]
    for folder, identity in zip(folders, identities, strict=True):
        for key in _SAME:
            if identity.get(key) != identities[0].get(key):
                raise ConfigError(
                    f"got {folder} with another {key} than {folders[0]}, wanted evaluations of the "
                    "same data by the same judge"
                )
    return identities[0]["benchmark"]


def _values(benchmark: str, folders: Sequence[Path], groups: dict[str, str]) -> dict[str, float]:
    """Return each task's mean over the folders in which it has a value; fills its group."""
    found: dict[str, list[float]] = {}
    for folder in folders:
        for outcome in read_outcomes(folder):
            value = task_value(benchmark, outcome)
            if value is not None:
                found.setdefault(outcome["id"], []).append(float(value))
                groups[outcome["id"]] = stratum(benchmark, outcome)
    return {task: sum(values) / len(values) for task, values in found.items()}


def _headline(folder: Path) -> float:
    main = _read(folder / SCORES).get("main")
    if not main or main.get("value") is None:
        raise ConfigError(f"{folder}: got no score, wanted a finished evaluation")
    return float(main["value"])


def _joint(folders: Sequence[Path]) -> Mapping[str, Any]:
    from core.benchmarks.arena_style import style_controlled

    by_category: dict[str, dict[str, list[Row]]] = {}
    for folder in folders:
        for outcome in read_outcomes(folder):
            by_model = by_category.setdefault(outcome["category"], {})
            by_model.setdefault(str(folder), []).append(outcome)
    return {
        category: {model: asdict(s) for model, s in style_controlled(rows).scores.items()}
        for category, rows in by_category.items()
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: got no readable file ({error}), wanted an evaluation's folder"
        ) from error
