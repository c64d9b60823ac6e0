"""One shared rubric for each task of a query file, summarised from its queries' rubrics.

The rubrics of a task are summarised in batches and the summaries again until one is left
(``core/rubric_building/task_summary.py``). It becomes the rubric of all queries of the task, and
stands in ``rubrics/`` in the form of RARE's release, for ``data.task_rubrics``.
"""

import argparse
import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from core.config_served import ServedModelConfig
from core.evolution.rare_task import num_tokens
from core.model_calls import Sampling
from core.query import Query
from core.rubric import Rubric
from core.rubric_building.task_summary import (
    SummaryRequest,
    batch_order,
    in_batches,
    num_summaries,
    read_summary,
    summary_prompt,
    task_rubric_row,
)
from drivers.asking import say, side_by_side
from drivers.asking_command import PlannedCalls, open_askers, spent, told, told_spent
from drivers.jsonl_files import write_whole
from drivers.rubrics_build_writing import Drop, Writer, Writing, writer_sampling
from drivers.rubrics_built import Built, split, with_rubric
from serve.prompts import load_prompt

_SAMPLING = Sampling(temperature=0.2, max_tokens=8192)
"""As RARE's writer is asked during training; of initial rubrics the paper says nothing."""


def build_tasks(
    args: argparse.Namespace, queries: Sequence[Query], writer: ServedModelConfig
) -> Built | None:
    """Return the queries with the rubric of their task; None for a dry run."""
    rubrics = _rubrics(args, queries)
    told([_plan(args, rubrics, writer)])
    if args.dry_run:
        return None
    shared = asyncio.run(_build(args, rubrics, writer))
    for task, rubric in shared.items():
        if isinstance(rubric, Rubric):
            path = args.out / "rubrics" / _file_name(task)
            row = task_rubric_row(task, rubric, Path(args.run).name)
            text = json.dumps(row, ensure_ascii=False, indent=2) + "\n"
            write_whole(path, text.encode("utf-8", "replace"))
            say(f"the rubric of {task!r}: {path}")
    return split(queries, [_shared(args, q, shared, writer.model) for q in queries])


def _rubrics(args: argparse.Namespace, queries: Sequence[Query]) -> dict[str, list[Rubric]]:
    """Return the rubrics to summarise, by task, in the order in which they share batches."""
    by_task: dict[str, list[Query]] = {}
    for query in queries:
        task = query.task or args.task
        if task is not None:
            by_task.setdefault(task, []).append(query)
    most = args.most or None
    return {
        task: [q.rubric for q in sorted(found, key=lambda q: batch_order(q.id))[:most]]
        for task, found in by_task.items()
    }


async def _build(
    args: argparse.Namespace, rubrics: Mapping[str, Sequence[Rubric]], config: ServedModelConfig
) -> dict[str, Rubric | Drop]:
    template = load_prompt("build_task")
    async with AsyncExitStack() as stack:
        askers = await open_askers(stack, [("writer", config)], args.out)
        writer = Writer(askers["writer"], writer_sampling(config, _SAMPLING), args.tries)

        async def summary(asked: tuple[str, SummaryRequest]) -> Rubric | Drop:
            key, request = asked
            writing = Writing(
                prompt=lambda error: summary_prompt(template, request, error),
                read=lambda reply: read_summary(reply, request),
            )
            return await writer.write(key, writing)

        async def shared(task: str) -> Rubric | Drop:
            left, level = tuple(rubrics[task]), 0
            while True:
                asked = [
                    (f"{task}/level{level}/{i}", _request(args, task, batch))
                    for i, batch in enumerate(in_batches(left, args.batch))
                ]
                made = await side_by_side(
                    asked, summary, unit="summaries", shown=lambda: spent(askers)
                )
                left = tuple(m for m in made if isinstance(m, Rubric))
                if len(left) < len(made):
                    return next(m for m in made if isinstance(m, Drop))
                if len(left) == 1:
                    return left[0]
                level += 1

        made = {task: await shared(task) for task in rubrics}
        if made:
            told_spent(askers)
        return made


def _request(args: argparse.Namespace, task: str, batch: tuple[Rubric, ...]) -> SummaryRequest:
    return SummaryRequest(
        task=task, rubrics=batch, num_criteria=args.criteria, max_points=args.max_points
    )


def _shared(
    args: argparse.Namespace, query: Query, shared: Mapping[str, Rubric | Drop], writer: str
) -> Query | Drop:
    task = query.task or args.task
    if task is None:
        return Drop(reason="no_task", detail="the row names no task, and --task was not given")
    rubric = shared[task]
    if isinstance(rubric, Drop):
        return Drop(
            reason="no_rubric",
            detail=f"the rubric of task {task!r}: {rubric.reason}: {rubric.detail}",
            is_passing=rubric.is_passing,
        )
    return with_rubric(query.model_copy(update={"task": task}), rubric, "task", writer)


def _plan(
    args: argparse.Namespace, rubrics: Mapping[str, Sequence[Rubric]], config: ServedModelConfig
) -> PlannedCalls:
    calls = sum(num_summaries(len(found), args.batch) for found in rubrics.values())
    length = writer_sampling(config, _SAMPLING).max_tokens
    shown = sum(num_tokens(r.model_dump_json()) for found in rubrics.values() for r in found)
    return PlannedCalls(
        does="shared rubrics",
        config=config,
        calls=calls,
        prompt_tokens=shown + calls * (length + num_tokens(load_prompt("build_task"))),
        completion_tokens=calls * length,
        tries=args.tries,
    )


def _file_name(task: str) -> str:
    """Return a file name that no other task has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", task).strip("._")[:60]
    if plain == task:
        return f"{plain}.json"
    digest = hashlib.sha256(task.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain or 'task'}_{digest}.json"
