"""The queries of a run and their initial rubrics, as the config wants them.

Training queries without an anchor are left out where the config says so; with a rubric per task the
task's file, or the rubric that all of its queries carry, becomes the rubric of each of them; the
universal criteria are appended to training rubrics (held-out queries keep theirs, so that ``val/*``
compares with a run without). Importable without torch, vLLM or Ray.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.config import RunConfig
from core.config_evolution import Scope, StaticEvolution, rubric_scope
from core.errors import ConfigError
from core.evolution.universal import with_universal
from core.query import Query, rubric_id
from core.rubric import Criterion, Rubric
from drivers.data_files import load_queries, load_rubric

_STAND_IN = Rubric(criteria=(Criterion(id="rubric", text="is given by data.task_rubrics"),))
"""Rubric of a row without one until its task's takes its place."""


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The queries of a run, checked."""

    train: tuple[Query, ...]
    eval: tuple[Query, ...]
    fingerprint: str
    """Tells on resume whether the run still draws from the same queries."""
    num_without_anchor: int = 0
    """Training queries left out under ``data.missing_anchor: skip``."""
    num_overlong: int = 0
    """Training queries left out under ``data.overlong_prompt: skip``."""
    rubrics: Mapping[str, Rubric] = field(default_factory=dict[str, Rubric])
    """Initial rubric of each rubric id (``core.query.rubric_id``) of the training queries."""


def load_run_data(config: RunConfig) -> RunData:
    """Return the queries of the run; raises ConfigError naming file, line and reason."""
    given = _task_rubrics(config, rubric_scope(config.evolution))
    stand_in = _STAND_IN if given else None
    train = load_queries(config.data.train, stand_in=stand_in, format=config.data.format)
    held_out = None
    if config.data.eval:
        held_out = load_queries(config.data.eval, stand_in=stand_in, format=config.data.format)
    used = _with_task_rubrics(_with_anchors(config, train.queries), given)
    _check_tasks(config, given, used)
    if isinstance(config.evolution, StaticEvolution) and config.evolution.universal:
        used = tuple(
            q.model_copy(update={"rubric": with_universal(q.rubric, f"query {q.id!r}")})
            for q in used
        )
    check_enough(config, len(used))
    data = RunData(
        train=train.queries,
        eval=_with_task_rubrics(held_out.queries, given) if held_out else (),
        fingerprint=train.fingerprint,
        num_without_anchor=len(train.queries) - len(used),
    )
    return with_queries(config, data, used)


def with_queries(config: RunConfig, data: RunData, kept: Sequence[Query]) -> RunData:
    """Return the data with these training queries and their rubrics only.

    What is left out changes which query is drawn when, so it is part of the fingerprint.
    """
    names = {q.id for q in kept}
    gone = [q.id for q in data.train if q.id not in names]
    fingerprint = data.fingerprint
    if gone:
        text = f"{fingerprint}\n{json.dumps(gone)}"
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
    rubrics = _rubrics(config, kept, rubric_scope(config.evolution))
    return replace(data, train=tuple(kept), fingerprint=fingerprint, rubrics=rubrics)


def check_enough(config: RunConfig, num_queries: int, left_out: str = "") -> None:
    """Raise ConfigError when the usable queries do not fill a step."""
    if num_queries == 0:
        raise ConfigError(
            f"{config.data.train}: got no usable query{left_out}, wanted at least one"
        )
    if num_queries < config.loop.groups_per_step:
        raise ConfigError(
            f"{config.data.train}: got {num_queries} usable queries{left_out} for "
            f"loop.groups_per_step={config.loop.groups_per_step}, wanted at least that many: "
            "lower groups_per_step or add queries"
        )


def _with_anchors(config: RunConfig, queries: tuple[Query, ...]) -> tuple[Query, ...]:
    if not config.needs_anchor:
        return queries
    absent = [q.id for q in queries if q.anchor is None]
    if absent and config.data.missing_anchor == "error":
        raise ConfigError(
            f"{config.data.train}: got query {absent[0]!r} without an anchor "
            f"({len(absent)} in all), wanted one for evolution.method="
            f"{config.evolution.method}: add anchors, set data.missing_anchor=skip, or "
            "evolution.care.anchor=false"
        )
    return tuple(q for q in queries if q.anchor is not None)


# ------------------------------------------------------------------ one rubric a task
def _task_rubrics(config: RunConfig, scope: Scope) -> dict[str, Rubric]:
    """Read ``data.task_rubrics``; empty for methods with a rubric a query."""
    if scope == "query":
        return {}
    return {task: load_rubric(path) for task, path in config.data.task_rubrics.items()}


def _with_task_rubrics(queries: Sequence[Query], given: Mapping[str, Rubric]) -> tuple[Query, ...]:
    """Return the queries with the given rubric of their task instead of their own.

    Where one task is given, it is that of every query that names none.
    """
    only = next(iter(given)) if len(given) == 1 else None
    return tuple(_with_task_rubric(q, q.task or only, given) for q in queries)


def _with_task_rubric(query: Query, task: str | None, given: Mapping[str, Rubric]) -> Query:
    if task is None or task not in given:
        if query.rubric == _STAND_IN:
            raise ConfigError(
                f"query {query.id[:80]!r}: got no rubric and the task {task!r:.60}, wanted a "
                f"rubric in the row, or a task of data.task_rubrics ({', '.join(given)[:200]})"
            )
        return query
    taken = sorted(set(given[task].ids) & {c.id for c in query.gold})
    if taken:
        raise ConfigError(
            f"query {query.id[:80]!r}: got the gold criterion {taken[0]!r}, which the rubric of "
            f"task {task!r} has too, wanted ids of their own: rename one of them"
        )
    return query.model_copy(update={"task": task, "rubric": given[task]})


def _check_tasks(config: RunConfig, given: Mapping[str, Rubric], queries: Sequence[Query]) -> None:
    tasks = sorted({q.task for q in queries if q.task is not None})
    unused = sorted(set(given) - set(tasks))
    if unused:
        raise ConfigError(
            f"{config.data.train}: got data.task_rubrics.{unused[0]}, but no query of that task, "
            f"wanted one of {', '.join(tasks[:8]) or 'no task at all'}: correct the key"
        )


def _rubrics(config: RunConfig, queries: Sequence[Query], scope: Scope) -> dict[str, Rubric]:
    """Return the initial rubric of each rubric id; ConfigError when a task has two."""
    first: dict[str, Query] = {}
    for query in queries:
        known = first.setdefault(rubric_id(query, scope), query)
        if known.rubric != query.rubric:
            raise ConfigError(
                f"{config.data.train}: got two rubrics for task {query.task!r}, of the queries "
                f"{known.id[:80]!r} and {query.id[:80]!r}, wanted one for evolution.method="
                f"{config.evolution.method} with a rubric a task: give it as "
                f"data.task_rubrics.{query.task}=FILE, or the same rubric to every row"
            )
    return {name: query.rubric for name, query in first.items()}
