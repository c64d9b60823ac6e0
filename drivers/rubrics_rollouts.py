"""What ``ratchet rubrics health`` reads of a run: verdicts by rubric, and single rollouts again.

Only verdicts are kept in memory; responses are read again for the few rollouts that a model is
shown, and the run's data file only for their prompts.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from actors.rubric_log import RubricVersion
from core.config import RunConfig
from core.config_evolution import rubric_scope
from core.errors import ConfigError
from core.evolution.health import VerdictGroup
from core.query import Query
from core.records import Verdict
from core.rows import Row, row_rubric_id, verdict_from_row
from drivers.jsonl_files import read_rows
from drivers.run_files import RunFiles, step_files

Histories = Mapping[str, Sequence[RubricVersion]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a graded rollout of a rubric stands."""

    rubric_id: str
    step: int
    query_id: str
    visit: int
    index: int
    version: int
    reward: float


@dataclass(kw_only=True)
class RunVerdicts:
    """The verdicts of a run, by rubric id."""

    groups: dict[str, list[VerdictGroup]] = field(
        default_factory=lambda: defaultdict(list[VerdictGroup])
    )
    graded: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list[Place]))
    """Rollouts that have a reward, in order of time."""
    last_step: int = 0


class RunQueries:
    """The training queries of a run by id, read from its data files when first asked for."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._queries: dict[str, Query] | None = None

    def query(self, query_id: str) -> Query:
        """Return a query; ConfigError when the data is not there, or is other data by now."""
        if self._queries is None:
            from drivers.run_data import load_run_data

            self._queries = {q.id: q for q in load_run_data(self._config).train}
        if query_id not in self._queries:
            raise ConfigError(
                f"{self._config.data.train}: got no query {query_id[:80]!r}, which the run has "
                "trained on, wanted the data that the run was started with"
            )
        return self._queries[query_id]


def read_verdicts(files: RunFiles, config: RunConfig, histories: Histories) -> RunVerdicts:
    """Read the verdicts of the run on these rubrics."""
    scope = rubric_scope(config.evolution)
    found = RunVerdicts()
    for step, rows in files.read_rollouts():
        found.last_step = max(found.last_step, step)
        groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for row in rows:
            groups[row["query_id"], row["visit"]].append(row)
        for members in groups.values():
            rubric_id = row_rubric_id(members[0], scope)
            if rubric_id in histories:
                _add(found, rubric_id, step, members)
    return found


def _add(found: RunVerdicts, rubric_id: str, step: int, rows: Sequence[Row]) -> None:
    version = rows[0]["rubric_version"]
    found.groups[rubric_id].append(
        VerdictGroup(step=step, version=version, rollouts=tuple(_verdicts(r) for r in rows))
    )
    found.graded[rubric_id] += [
        Place(
            rubric_id=rubric_id,
            step=step,
            query_id=row["query_id"],
            visit=row["visit"],
            index=row["index"],
            version=version,
            reward=row["reward"],
        )
        for row in rows
        if row["reward"] is not None
    ]


def _verdicts(row: Row) -> dict[str, Verdict]:
    return {i: verdict_from_row(i, v) for i, v in row["verdicts"].items()}


def read_places(files: RunFiles, places: Collection[Place]) -> dict[Place, Row]:
    """Return the whole rows of these rollouts."""
    wanted = {(p.step, p.query_id, p.visit, p.index): p for p in places}
    steps = {p.step for p in places}
    rows: dict[Place, Row] = {}
    for step, path in step_files(files.rollouts):
        for row in read_rows(path) if step in steps else ():
            place = wanted.get((step, row["query_id"], row["visit"], row["index"]))
            if place is not None:
                rows[place] = row
    return rows


def spread(places: Sequence[Place], count: int) -> list[Place]:
    """Return up to ``count`` of the rollouts, evenly over the run."""
    if count >= len(places):
        return list(places)
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]
