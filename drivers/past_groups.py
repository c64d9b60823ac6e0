"""The groups of the last steps before a resume, read back from the run's own files.

A method that looks at more than one step (RARE at task level) would otherwise have less evidence
after a resume than without one. Responses and verdicts stand in ``rollouts/step_N.jsonl``, the
rubric as of a group's version in the store's history; tokens and log-probs are in no file and stay
empty. A step trains its own draws in draw order, so that a group's place in the file is its place
in the step. A group whose rubric or query is no longer known is left out, and said so.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from core.config_evolution import EvolutionConfig, RareEvolution, rubric_scope
from core.query import Query, rubric_id
from core.records import Draw, GradedGroup, GradedRollout, Rollout
from core.rows import Row, verdict_from_row
from core.rubric import Rubric
from drivers.jsonl_files import read_rows
from drivers.ports import Store
from drivers.run_files import RunFiles, step_files

log = logging.getLogger(__name__)


def num_past_steps(evolution: EvolutionConfig) -> int:
    """Return how many steps before the current one the method looks at."""
    if isinstance(evolution, RareEvolution) and evolution.scope == "task":
        return evolution.task.evidence_steps - 1
    return 0


async def past_groups(
    files: RunFiles,
    store: Store,
    queries: Mapping[str, Query],
    evolution: EvolutionConfig,
    last_step: int,
) -> list[GradedGroup]:
    """Return what ``Method.resume`` takes: the groups up to ``last_step``, oldest first."""
    first_step = last_step - num_past_steps(evolution) + 1
    scope = rubric_scope(evolution)
    known = _Versions(store)
    groups: list[GradedGroup] = []
    for step, path in step_files(files.rollouts):
        if not first_step <= step <= last_step:
            continue
        for position, rows in enumerate(_by_group(read_rows(path))):
            query, version = queries.get(rows[0]["query_id"]), rows[0]["rubric_version"]
            rubric = await known.rubric(rubric_id(query, scope), version) if query else None
            if query is None or rubric is None:
                log.warning(
                    "%s: query %s or version %s of its rubric is not known any more; its group is "
                    "no evidence",
                    path.name,
                    rows[0]["query_id"],
                    version,
                )
                continue
            groups.append(_group(rows, query, rubric, step, position))
    return groups


class _Versions:
    """The rubrics of the store's history, asked for once each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Mapping[int, Rubric]] = {}

    async def rubric(self, key: str, version: int) -> Rubric | None:
        """Return this version; None for one that was taken back."""
        if key not in self._known:
            history = await self._store.history(key)
            self._known[key] = {v.version: v.rubric for v in history}
        return self._known[key].get(version)


def _by_group(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each group together, in the file's order."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["query_id"], row["visit"]), []).append(row)
    return list(groups.values())


def _group(
    rows: Sequence[Row], query: Query, rubric: Rubric, step: int, position: int
) -> GradedGroup:
    return GradedGroup(
        draw=Draw(query_id=query.id, step=step, position=position, visit=rows[0]["visit"]),
        query=query,
        rubric=rubric,
        rollouts=tuple(_rollout(row) for row in rows),
        judge="",
    )


def _rollout(row: Row) -> GradedRollout:
    first, last = row["policy_version"]
    return GradedRollout(
        rollout=Rollout(
            query_id=row["query_id"],
            visit=row["visit"],
            index=row["index"],
            response=row["response"],
            finish_reason=row["finish_reason"],
            prompt_token_ids=(),
            token_ids=(),
            rollout_logprobs=(),
            policy_version_first=first,
            policy_version_last=last,
        ),
        verdicts={i: verdict_from_row(i, v) for i, v in row["verdicts"].items()},
        gold={i: verdict_from_row(i, v) for i, v in row["gold"].items()},
    )
