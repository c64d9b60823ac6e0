"""One shared rubric a task, summarised from the rubrics of its queries.

RARE's appendix A.1 summarises the query-specific rubrics into one shared six-criterion rubric for
each video type; the released ones have two points each. The paper does not say how thousands of
rubrics reach a model. Here they are summarised in batches, and the summaries again, until one is
left; every summary, on the way and at the end, has the same number of criteria with the same
maximum. Which rubrics share a batch depends on their queries' ids alone.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, cast

from core.errors import WriterReplyError
from core.evolution.prompt_sections import keep_parts
from core.evolution.rare_task_reply import scoring_rule
from core.evolution.strict_object import checked_object, json_object
from core.records import Completion
from core.rows import Row
from core.rubric import Criterion, Rubric
from core.rubric_building.contrast import check_distinct, criterion_of
from core.templates import fenced, fill, json_text

T = TypeVar("T")

_KEYS = frozenset({"id", "check", "scoring_rule", "max_points"})

INITIAL_TRIGGER = "task_level_init"
"""What the released files of initial shared rubrics say that they come from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryRequest:
    """What the writer is asked for one batch of rubrics."""

    task: str
    rubrics: tuple[Rubric, ...]
    num_criteria: int = 6
    max_points: int = 2


def in_batches(items: Sequence[T], size: int) -> list[tuple[T, ...]]:
    """Return the items in as few batches as ``size`` allows, of nearly equal sizes, in order."""
    count = -(-len(items) // size)
    bounds = [round(i * len(items) / count) for i in range(count + 1)] if count else []
    return [tuple(items[a:b]) for a, b in pairwise(bounds)]


def num_summaries(num_rubrics: int, size: int) -> int:
    """Return how many batches are summarised until one rubric is left; one at least."""
    total, left = 0, num_rubrics
    while True:
        left = -(-left // size)
        total += left
        if left <= 1:
            return total


def batch_order(query_id: str) -> str:
    """Return a sort key that spreads queries which stand together in a file over the batches."""
    return hashlib.sha256(query_id.encode("utf-8", "surrogatepass")).hexdigest()


def summary_prompt(template: str, request: SummaryRequest, error: str = "") -> str:
    """Return the prompt of one try; ``error`` is why the last one was refused."""
    levels = range(request.max_points, -1, -1)
    blocks = [
        fenced(json_text(_shown_list(rubric), indent=1), f"rubric{i}")
        for i, rubric in enumerate(request.rubrics, start=1)
    ]
    values = {
        "num_rubrics": str(len(blocks)),
        "task": fenced(request.task, "kind"),
        "rubrics": "\n\n".join(blocks),
        "num_criteria": str(request.num_criteria),
        "max_points": str(request.max_points),
        "example_rule": "; ".join(f"{level} = ..." for level in levels),
    }
    if error:
        values["error"] = fenced(error, "refusal")
    return fill(keep_parts(template, {"error"} if error else ()), values)


def read_summary(reply: Completion, request: SummaryRequest) -> Rubric:
    """Return the shared rubric; WriterReplyError says what is wrong with the reply."""
    fields = checked_object(
        json_object(reply.text, reply.finish_reason), frozenset({"criteria"}), "the reply"
    )
    entries = fields["criteria"]
    if not isinstance(entries, list) or len(cast("list[Any]", entries)) != request.num_criteria:
        raise WriterReplyError(f"criteria: wanted a list of exactly {request.num_criteria}")
    criteria = [
        _criterion(entry, f"criteria[{i}]", request)
        for i, entry in enumerate(cast("list[Any]", entries))
    ]
    check_distinct(criteria)
    return Rubric(criteria=tuple(criteria))


def task_rubric_row(task: str, rubric: Rubric, source: str) -> Row:
    """Return the rubric as the released files of initial shared rubrics hold one."""
    return {
        "task_id": task,
        "rubric_version": rubric.version,
        "generated_at_step": None,
        "generated_from_trigger": INITIAL_TRIGGER,
        "source_dataset": source,
        "criteria": [_shown(c) for c in rubric.criteria],
    }


def _criterion(value: Any, where: str, request: SummaryRequest) -> Criterion:
    entry = checked_object(value, _KEYS, where)
    criterion = criterion_of(entry, where, request.max_points)
    if criterion.max != request.max_points:
        raise WriterReplyError(
            f"{where}.max_points: got {criterion.max}, wanted {request.max_points}"
        )
    return criterion


def _shown_list(rubric: Rubric) -> list[Row]:
    """Return the criteria to summarise: a penalty, whose high score is bad, would mislead."""
    return [_shown(c) for c in rubric.criteria if not c.is_penalty]


def _shown(criterion: Criterion) -> Row:
    return {
        "id": criterion.id,
        "check": criterion.text,
        "scoring_rule": scoring_rule(criterion),
        "max_points": criterion.max,
    }
