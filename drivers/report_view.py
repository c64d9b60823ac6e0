"""What the report page shows of one run, as one JSON value.

Texts are as the run's files have them, cut where they are very long; the page puts them in as text
and never as markup. Prompt and anchor come from the run's query file, when it still lies where the
config says. A number for which there is no data is null.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from actors.rubric_log import RubricLog, RubricVersion
from core.config import RunConfig
from core.config_evolution import rubric_scope
from core.errors import ConfigError
from core.query import Query
from core.rows import Row, gold_value
from core.rubric import TAGS, Criterion
from drivers.jsonl_files import read_rows
from drivers.report_rubrics import RubricTexts
from drivers.report_scan import CriterionScores, Scan, scan_rollouts
from drivers.run_data import load_run_data
from drivers.run_files import RunFiles, step_files
from drivers.summary import StepNumbers, step_numbers, summary_of

MAX_CRITERIA = 60
"""Rows of the heat map: all [Resist] criteria first, then the ones with most scores."""
MAX_REFUSED = 200
MAX_CHARS = 6000
"""Of one response, prompt or anchor."""

_TIMES = (
    "step", "gen", "reward", "update_actor", "update_weights", "trainer_idle", "testing",
    "evolve_total", "evolve_exposed",
)  # fmt: skip
_TOTALS = {
    "usd": ("judge/cost_usd", "writer/cost_usd", "reference_judge/cost_usd"),
    "judge_calls": ("judge/calls",),
    "judge_tokens": ("judge/prompt_tokens", "judge/completion_tokens"),
    "writer_tokens": ("writer/prompt_tokens", "writer/completion_tokens"),
}
"""Running totals, each of which begins again when a run is resumed."""


def run_view(files: RunFiles) -> dict[str, Any]:
    """Return the view of a run; ConfigError when the folder is not one."""
    config = files.read_config()
    metrics, events = list(read_rows(files.metrics)), list(read_rows(files.events))
    if not files.rubrics.is_file():
        return _view(files, config, metrics, events, RubricTexts(None))
    with closing(RubricLog(files.rubrics, is_read_only=True)) as log:
        return _view(files, config, metrics, events, RubricTexts(log))


def _view(
    files: RunFiles,
    config: RunConfig,
    metrics: Sequence[Row],
    events: Sequence[Row],
    texts: RubricTexts,
) -> dict[str, Any]:
    shown = texts.shown(events)
    scope = rubric_scope(config.evolution)
    scan = scan_rollouts(files.read_rollouts(), texts, scope, events, set(shown))
    queries = _queries(config)
    numbers = summary_of(config, scan.steps, metrics, events, times={}, is_resumed=False)
    evals = [step_numbers(step, list(read_rows(path))) for step, path in step_files(files.eval)]
    return {
        "name": config.name,
        "method": config.evolution.method,
        "numbers": {name: value for name, value in numbers.items() if name != "resumed"},
        "curves": _curves(scan.steps, evals),
        "vetoes": sorted({e["step"] for e in events if _is_veto(e)}),
        "criteria": [_criterion_scores(c) for c in _ranked(scan.criteria.values())],
        "num_criteria": len(scan.criteria),
        "rubrics": [_rubric(i, texts, events, scan, queries) for i in shown],
        "refused": [_refused(e) for e in events if e["status"] != "accepted"][:MAX_REFUSED],
        "num_refused": sum(e["status"] != "accepted" for e in events),
        "times": {name: _column(metrics, f"timing_s/{name}") for name in _TIMES},
        "totals": {name: _running(metrics, keys) for name, keys in _TOTALS.items()},
        "failures": dict(sorted(scan.failures.items())),
        "has_data_file": queries is not None,
    }


def _queries(config: RunConfig) -> dict[str, Query] | None:
    try:
        data = load_run_data(config)
    except ConfigError:
        return None  # moved or changed since: the run's own files say all but prompts and anchors
    return {query.id: query for query in data.train}


def _is_veto(event: Row) -> bool:
    new = event["new"]
    return event["status"] == "accepted" and new is not None and new["kind"] == "resist"


def _curves(steps: Sequence[StepNumbers], evals: Sequence[StepNumbers]) -> dict[str, Any]:
    vetoed = [[s.step, s.num_vetoed / s.num_graded] for s in steps if s.num_graded]
    curves: dict[str, Any] = {"vetoed": vetoed}
    for name in ("reward", "gold"):
        curves[name] = [[s.step, v] for s in steps if (v := getattr(s, name)) is not None]
        held_out = [[s.step, v] for s in evals if (v := getattr(s, name)) is not None]
        curves[f"{name}_held_out"] = held_out
    return curves


def _ranked(criteria: Iterable[CriterionScores]) -> list[CriterionScores]:
    ranked = sorted(criteria, key=lambda c: (not c.criterion.is_resist, -c.num_scores))
    return ranked[:MAX_CRITERIA]


def _criterion_scores(scores: CriterionScores) -> dict[str, Any]:
    means = [[step, total / count] for step, (total, count) in sorted(scores.by_step.items())]
    return {
        "tag": TAGS[scores.criterion.kind],
        "text": scores.criterion.text,
        "cells": means,
        "scores": scores.num_scores,
        "vetoes": scores.num_vetoes,
        "failed": scores.num_failed,
    }


# ------------------------------------------------------------------ rubrics
def _rubric(
    rubric_id: str,
    texts: RubricTexts,
    events: Sequence[Row],
    scan: Scan,
    queries: Mapping[str, Query] | None,
) -> dict[str, Any]:
    accepted = [e for e in events if e["query_id"] == rubric_id and e["status"] == "accepted"]
    query = (queries or {}).get(rubric_id)
    anchor = query.anchor if query is not None else None
    rollouts = scan.rollouts.get(rubric_id, [])
    return {
        "id": rubric_id,
        "prompt": _cut(query.prompt_text) if query is not None else None,
        "anchor": None
        if anchor is None
        else {"model": anchor.model, "response": _cut(anchor.response)},
        "versions": [
            _version(v, [e for e in accepted if e["to_version"] == v.version])
            for v in texts.history(rubric_id)
        ],
        "rollouts": [_rollout(r, texts.criteria(rubric_id, r["rubric_version"])) for r in rollouts],
    }


def _version(version: RubricVersion, events: Sequence[Row]) -> dict[str, Any]:
    return {
        "version": version.version,
        "step": version.step,
        "writer": version.writer,
        "criteria": [_criterion(c) for c in version.rubric.criteria],
        "edits": [_edit(e) for e in events],
    }


def _criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        "id": criterion.id,
        "tag": TAGS[criterion.kind],
        "text": criterion.text,
        "max": criterion.max,
        "weight": criterion.weight,
    }


def _edit(event: Row) -> dict[str, Any]:
    old, new = event["old"], event["new"]
    return {
        "branch": event["branch"],
        "step": event["step"],
        "old": None if old is None else _tagged(old),
        "new": None if new is None else _tagged(new),
        "diff": _word_diff(old["text"], new["text"]) if old and new else None,
        "reason": event["reason"],
        "rollouts": event["evidence"]["rollouts"],
        "quotes": event["evidence"]["quotes"],
        "analysis": _cut(event["evidence"]["analysis"]),
        "seconds": event["seconds"],
    }


def _tagged(criterion: Row) -> str:
    return f"{TAGS[criterion['kind']]} {criterion['text']}"  # pyright: ignore[reportArgumentType]


def _word_diff(old: str, new: str) -> list[list[str]]:
    """Return runs of words, each with what became of it: same, out, in."""
    before, after = old.split(), new.split()
    runs: list[list[str]] = []
    for what, a0, a1, b0, b1 in difflib.SequenceMatcher(a=before, b=after).get_opcodes():
        if what == "equal":
            runs.append(["same", " ".join(before[a0:a1])])
            continue
        if a1 > a0:
            runs.append(["out", " ".join(before[a0:a1])])
        if b1 > b0:
            runs.append(["in", " ".join(after[b0:b1])])
    return runs


def _rollout(row: Row, criteria: Mapping[str, Criterion]) -> dict[str, Any]:
    return {
        "step": row["step"],
        "index": row["index"],
        "query": row["query_id"],
        "version": row["rubric_version"],
        "reward": row["reward"],
        "advantage": row["advantage"],
        "gold": gold_value(row["gold"]),
        "vetoed": row["vetoed"],
        "finish": row["finish_reason"],
        "response": _cut(row["response"]),
        "verdicts": [
            {"id": i, "text": criteria[i].tagged if i in criteria else i, **verdict}
            for i, verdict in row["verdicts"].items()
        ],
    }


def _refused(event: Row) -> dict[str, Any]:
    keys = ("step", "query_id", "branch", "status", "reason")
    return {key: event[key] for key in keys}


# ------------------------------------------------------------------ series
def _column(metrics: Sequence[Row], name: str) -> list[list[float]]:
    return [[row["step"], row[name]] for row in metrics if row.get(name) is not None]


def _running(metrics: Sequence[Row], names: Sequence[str]) -> list[list[float]]:
    """Return the sum of running totals by step, counted on over resumes."""
    points: list[list[float]] = []
    total, before = 0.0, dict.fromkeys(names, 0.0)
    for row in metrics:
        values = {name: row[name] for name in names if row.get(name) is not None}
        for name, value in values.items():
            total += value - before[name] if value >= before[name] else value
            before[name] = value
        if values:
            points.append([row["step"], total])
    return points


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + " […]"
