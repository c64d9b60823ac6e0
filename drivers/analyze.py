"""``ratchet analyze RUN…``: the papers' analyses, from a run's files and with models.

Analyses of files need nothing else; those with models run when their models are named. Results go
to analysis.json and as tables to the terminal; what cannot be given is said by name with the
reason. Exit code 0 when every analysis that was asked for by name is there for some run (or none
was named), 1 when one is not, 2 for bad input.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from core.analysis.evidence import NotInFiles
from core.errors import ConfigError
from core.rows import Row
from drivers.analyze_files import FILE_ANALYSES, computed
from drivers.analyze_models import Roles
from drivers.analyze_parser import ROLES, analyze_parser
from drivers.analyze_read import AnalysedRun, MetaKeys, read_run
from drivers.analyze_text import result_text
from drivers.extras import need_extra
from drivers.jsonl_files import read_rows
from drivers.model_options import model_config
from drivers.reading_command import exit_code
from drivers.rubrics_run import find_run
from drivers.run_files import write_json

_ALL = "all runs"
_FOLLOWBENCH = "followbench"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAnalysis:
    """An analysis that asks models about one run."""

    name: str
    title: str
    source: str
    roles: tuple[str, ...]
    of: Callable[[AnalysedRun, Roles, Path, argparse.Namespace], Row]


def _categories(run: AnalysedRun, roles: Roles, folder: Path, args: argparse.Namespace) -> Row:
    from drivers.analyze_categories import revision_categories

    return revision_categories(run, roles, folder, args.limit)


def _fresh(run: AnalysedRun, roles: Roles, folder: Path, args: argparse.Namespace) -> Row:
    from drivers.analyze_fresh import FreshDraws, fresh_rollouts

    draws = FreshDraws(num_rollouts=args.rollouts, max_events=args.limit)
    return fresh_rollouts(run, roles, folder, draws)


def _audit(run: AnalysedRun, roles: Roles, folder: Path, args: argparse.Namespace) -> Row:
    from drivers.analyze_audit import audit

    return audit(run, roles, folder, args.limit)


MODEL_ANALYSES = (
    ModelAnalysis(
        name="categories",
        title="what replacements are about",
        source="RARE 5.3, figure 4b",
        roles=("judge",),
        of=_categories,
    ),
    ModelAnalysis(
        name="fresh",
        title="newly sampled rollouts under old and new criteria",
        source="RARE appendix C",
        roles=("policy-before", "policy-after", "judge"),
        of=_fresh,
    ),
    ModelAnalysis(
        name="audit",
        title="audit of CARE's edits by two judges",
        source="CARE appendix B",
        roles=("judge-a", "judge-b"),
        of=_audit,
    ),
)

NAMES = (*(a.name for a in (*FILE_ANALYSES, *MODEL_ANALYSES)), _FOLLOWBENCH)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = analyze_parser(", ".join(NAMES)).parse_args(argv)
    return exit_code(lambda: _analyze(args), " ".join(args.runs))


def _analyze(args: argparse.Namespace) -> int:
    need_extra("eval")
    asked = _asked(args.what)
    wanted = asked or NAMES
    roles = _roles(args)
    _check(args, asked, roles)
    names = _names(args.runs)
    keys = MetaKeys(type=args.type_by, cluster=args.cluster_by)
    runs = [read_run(find_run(given), name, keys) for given, name in names.items()]
    out = _out(args.out, runs)
    results = _file_results(runs, wanted)
    results |= _model_results(runs, wanted, roles, out, args)
    if _FOLLOWBENCH in wanted:
        results[_FOLLOWBENCH] = _followbench(args.outcomes)
    written = {"runs": [_about(run) for run in runs], "analyses": results}
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "analysis.json", written)
    _show(written, out, is_json=args.json)
    return 1 if any(_is_missing(results[name]) for name in asked) else 0


# ------------------------------------------------------------------ what was asked for
def _asked(what: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(n.strip() for n in what.split(",") if n.strip()))
    unknown = [n for n in names if n not in NAMES]
    if unknown:
        raise ConfigError(f"got --what {unknown[0]!r:.60}, wanted one of: {', '.join(NAMES)}")
    return names


def _roles(args: argparse.Namespace) -> Roles:
    given = [role for role in ROLES if getattr(args, role.replace("-", "_"))]
    return {role: model_config(args, role) for role in given}


def _check(args: argparse.Namespace, asked: Sequence[str], roles: Roles) -> None:
    """Refuse before anything is read or spent."""
    for name in ("limit", "rollouts"):
        if getattr(args, name) < 0:
            raise ConfigError(f"got --{name} {getattr(args, name)}, wanted 0 or more")
    for analysis in MODEL_ANALYSES:
        absent = [role for role in analysis.roles if role not in roles]
        if analysis.name in asked and absent:
            raise ConfigError(
                f"got --what {analysis.name} without --{absent[0]}, wanted the NAME of a model for "
                f"each of: {', '.join(f'--{role}' for role in analysis.roles)}"
            )
    if _FOLLOWBENCH in asked and not args.outcomes:
        raise ConfigError(
            "got --what followbench without --outcomes, wanted the outcomes.jsonl that `ratchet "
            "evaluate` wrote"
        )


def _names(runs: Sequence[str]) -> dict[str, str]:
    """Return how each run is called in the results: its folder's name where that tells it apart."""
    given = list(dict.fromkeys(runs))
    short = [Path(r).resolve().name or r for r in given]
    return {r: (s if short.count(s) == 1 else r) for r, s in zip(given, short, strict=True)}


def _out(out: Path | None, runs: Sequence[AnalysedRun]) -> Path:
    first = runs[0].files.folder
    return out or (first / "analysis" if len(runs) == 1 else first.parent / "analysis")


def _about(run: AnalysedRun) -> Row:
    evidence = run.evidence
    return {
        "name": evidence.name,
        "folder": str(run.files.folder),
        "method": evidence.method,
        "polarity": evidence.polarity or None,
        "seed": run.config.seed,
        "groups": len(evidence.groups),
        "groups_without_rubric": run.num_without_rubric,
    }


# ------------------------------------------------------------------ computing
def _file_results(runs: Sequence[AnalysedRun], wanted: Sequence[str]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    chosen = [a for a in FILE_ANALYSES if a.name in wanted]
    for analysis in tqdm(chosen, unit=" analyses", delay=10.0, file=sys.stderr):
        found = {r.evidence.name: computed(analysis.of, [r.evidence]) for r in runs}
        if analysis.across is not None and len(runs) > 1:
            found[_ALL] = computed(analysis.across, [r.evidence for r in runs])
        results[analysis.name] = found
    return results


def _model_results(
    runs: Sequence[AnalysedRun],
    wanted: Sequence[str],
    roles: Roles,
    out: Path,
    args: argparse.Namespace,
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for analysis in MODEL_ANALYSES:
        if analysis.name not in wanted:
            continue
        absent = [f"--{role}" for role in analysis.roles if role not in roles]
        for run in runs:
            folder = out if len(runs) == 1 else out / run.files.folder.name
            found: Row = {"missing": f"it asks models: give {', '.join(absent)}"}
            if not absent:
                try:
                    found = analysis.of(run, roles, folder, args)
                except NotInFiles as reason:
                    found = {"missing": str(reason)}
            results.setdefault(analysis.name, {})[run.evidence.name] = found
    return results


def _followbench(files: Sequence[Path]) -> dict[str, Row]:
    if not files:
        return {_ALL: {"missing": "it is of an evaluation: give --outcomes FILE"}}
    from core.benchmarks.followbench_scores import hsr_by_type

    results: dict[str, Row] = {}
    for given in files:
        path = given / "outcomes.jsonl" if given.is_dir() else given
        if not path.is_file():
            raise ConfigError(f"got no file {path}, wanted outcomes.jsonl of an evaluation")
        rows = list(read_rows(path))
        if not rows or not all({"type", "level", "hard"} <= row.keys() for row in rows):
            raise ConfigError(f"{path}: got other outcomes, wanted those of FollowBench")
        results[str(given)] = hsr_by_type(rows)
    return results


def _is_missing(found: Mapping[str, Row]) -> bool:
    return all(set(result) == {"missing"} for result in found.values())


# ------------------------------------------------------------------ showing
def _show(written: Mapping[str, Any], out: Path, *, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(json.dumps(written, indent=2) + "\n")
        return
    titles = {a.name: (a.title, a.source) for a in (*FILE_ANALYSES, *MODEL_ANALYSES)}
    titles[_FOLLOWBENCH] = ("HSR by constraint type", "CARE table 2")
    lines: list[str] = []
    for name, results in written["analyses"].items():
        title, source = titles[name]
        lines += result_text(f"{name}: {title}", source, results)
    sys.stdout.write("\n".join([*lines, "", f"written to {out / 'analysis.json'}"]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
