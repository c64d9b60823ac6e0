"""Reads a run's files into what the analyses take (``core/analysis/evidence.py``).

Rubrics come from rubrics.sqlite, scores from rollouts/, edits from events.jsonl; responses are left
on disk. What a result is averaged within (type) and which queries depend on each other (cluster)
may stand in the queries' ``meta``; then the run's data file is read too.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tqdm import tqdm

from core.analysis.evidence import Group, Pair, ReplacementEvent, RunEvidence
from core.config import RunConfig
from core.config_evolution import RareConfig, RareEvolution, RatchetEvolution, Scope, rubric_scope
from core.errors import ConfigError
from core.rows import Row, edit_from_row, row_rubric_id, verdict_from_row
from core.rubric import Rubric
from drivers.jsonl_files import read_rows
from drivers.rubrics_rollouts import RunQueries
from drivers.rubrics_run import open_log
from drivers.run_files import RunFiles, step_files

_Place = tuple[str, int, int]
"""Query id, step, rubric version."""

_DIRECTIONS = ("negative", "positive")


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaKeys:
    """Which keys of a query's ``meta`` say its type and its cluster; empty for none."""

    type: str = ""
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class AnalysedRun:
    """A run under analysis: what is computed on, and where more can be read."""

    files: RunFiles
    config: RunConfig
    evidence: RunEvidence
    queries: RunQueries
    events: tuple[Row, ...]
    """Lines of events.jsonl."""
    rubrics: Mapping[tuple[str, int], Rubric]
    """By rubric id and version."""
    num_without_rubric: int
    """Draws left out, since the store does not have the version that graded them."""


def read_run(files: RunFiles, name: str, keys: MetaKeys) -> AnalysedRun:
    """Read a run; ConfigError when it is none, or its data has not the keys that were asked for."""
    config = files.read_config()
    queries = RunQueries(config)
    with open_log(files) as log:
        versions = [v for i in log.query_ids() for v in log.history(i)]
    rubrics = {(v.query_id, v.version): v.rubric for v in versions}
    scope = rubric_scope(config.evolution)
    labels = _Labels(name, queries, keys)
    groups: list[Group] = []
    num_draws = 0
    for rows in _steps(files):
        num_draws += len({(row["query_id"], row["visit"]) for row in rows})
        groups += _groups(name, rows, scope, rubrics, labels)
    lines = tuple(read_rows(files.events))
    found, num_unmatched = _events(lines, groups)
    rare = _rare_config(config)
    evidence = RunEvidence(
        name=name,
        method=config.evolution.method,
        groups=tuple(groups),
        events=found,
        initial={i: rubric for (i, version), rubric in rubrics.items() if version == 0},
        metrics=tuple(read_rows(files.metrics)),
        polarity="" if rare is None else rare.polarity,
        budget=None if rare is None else rare.budget,
        num_discarded=_num_discarded(lines),
        num_unmatched=num_unmatched,
    )
    return AnalysedRun(
        files=files,
        config=config,
        evidence=evidence,
        queries=queries,
        events=lines,
        rubrics=rubrics,
        num_without_rubric=num_draws - len(groups),
    )


def _steps(files: RunFiles) -> Iterator[list[Row]]:
    """Read the rollouts step by step, with a bar where it takes long."""
    total = len(step_files(files.rollouts))
    bar = tqdm(files.read_rollouts(), total=total, unit=" steps", delay=10.0, file=sys.stderr)
    for _, rows in bar:
        yield rows


def _rare_config(config: RunConfig) -> RareConfig | None:
    evolution = config.evolution
    if isinstance(evolution, RatchetEvolution):
        return evolution.rare
    if isinstance(evolution, RareEvolution) and evolution.scope == "query":
        return evolution.rare
    return None


# ------------------------------------------------------------------ groups
class _Labels:
    """Types and clusters of a run's queries."""

    def __init__(self, run: str, queries: RunQueries, keys: MetaKeys) -> None:
        self._run = run
        self._queries = queries
        self._keys = keys

    def type(self, row: Row) -> str:
        if self._keys.type:
            return self._meta(row["query_id"], self._keys.type, "type")
        return str(row.get("task") or self._run)

    def cluster(self, row: Row) -> str:
        if self._keys.cluster:
            return self._meta(row["query_id"], self._keys.cluster, "cluster")
        return str(row["query_id"])

    def _meta(self, query_id: str, key: str, what: Literal["type", "cluster"]) -> str:
        meta = self._queries.query(query_id).meta
        value = meta.get(key)
        if not isinstance(value, str | int):
            known = ", ".join(sorted(meta)) or "no key at all"
            raise ConfigError(
                f"got --{what}-by {key}, which query {query_id[:80]!r} has not as text in its "
                f"meta, wanted one of its keys: {known[:200]}"
            )
        return str(value)


def _groups(
    run: str,
    rows: Sequence[Row],
    scope: Scope,
    rubrics: Mapping[tuple[str, int], Rubric],
    labels: _Labels,
) -> Iterable[Group]:
    """The draws of one step; a group whose rubric version is not in the store has no rubric to
    read its scores by, and is left out."""
    draws: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        draws.setdefault((row["query_id"], row["visit"]), []).append(row)
    for (query_id, visit), members in draws.items():
        first = members[0]
        rubric_id = row_rubric_id(first, scope)
        rubric = rubrics.get((rubric_id, first["rubric_version"]))
        if rubric is not None:
            yield Group(
                run=run,
                step=first["step"],
                query_id=query_id,
                visit=visit,
                rubric_id=rubric_id,
                rubric=rubric,
                scores=tuple(_scores(m) for m in sorted(members, key=_index)),
                type=labels.type(first),
                cluster=labels.cluster(first),
            )


def _index(row: Row) -> int:
    return row["index"]


def _scores(row: Row) -> dict[str, float | None]:
    return {i: verdict_from_row(i, v).score for i, v in row["verdicts"].items()}


# ------------------------------------------------------------------ replacement events
def _events(
    lines: Sequence[Row], groups: Sequence[Group]
) -> tuple[tuple[ReplacementEvent, ...], int]:
    """Return the accepted replacements with their groups, and how many have none."""
    by_place: dict[_Place, Group] = {
        (g.query_id, g.step, g.rubric.version): g for g in groups if g.rubric_id == g.query_id
    }
    edits: dict[_Place, list[Pair]] = {}
    for line in lines:
        pair = _pair(line)
        if pair is not None:
            edits.setdefault((line["query_id"], line["step"], line["to_version"]), []).append(pair)
    events: list[ReplacementEvent] = []
    for place, pairs in edits.items():
        group = by_place.get(place)
        if group is not None and all(group.shares(p.new) is not None for p in pairs):
            events.append(ReplacementEvent(group=group, pairs=tuple(pairs)))
    events.sort(key=lambda e: e.group.step)
    return tuple(events), len(edits) - len(events)


def _num_discarded(lines: Sequence[Row]) -> int:
    """Count the draws whose revision came to nothing; one that a person decides about is none."""
    ends = {"accepted": set[tuple[str, int]](), "lost": set[tuple[str, int]]()}
    for line in lines:
        if line["branch"] == "replacement" and line["status"] != "waiting":
            end = "accepted" if line["status"] == "accepted" else "lost"
            ends[end].add((line["query_id"], line["step"]))
    return len(ends["lost"] - ends["accepted"])


def _pair(line: Row) -> Pair | None:
    """Return an accepted replacement; None for any other line."""
    if line["branch"] != "replacement" or line["status"] != "accepted":
        return None
    edit = edit_from_row(line)
    if edit.old is None or edit.new is None:  # a retirement that came with it
        return None
    return Pair(
        old=edit.old,
        new=edit.new,
        polarity=edit.reason if edit.reason in _DIRECTIONS else "",
        reason=edit.evidence.analysis,
    )
