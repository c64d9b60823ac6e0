"""Lets the shared grader of odd files (``check.py``) call the project's own readers and loader."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.evolution.final_set import read_final_set
from core.grading.reply import read_scores
from core.grading.reply_parts import asked_by_text
from core.grading.values import Scale
from drivers.data_files import load_queries


def parse(
    raw_output: str, rubrics: Sequence[str], scale: Any, finish_reason: str
) -> list[float | None]:
    """Return the score of each rubric, None where it is unscored."""
    scales = scale if isinstance(scale, list) else [scale] * len(rubrics)
    asked = asked_by_text(rubrics, [_scale(s) for s in scales])
    return [r.score for r in read_scores(raw_output, asked, finish_reason)]


def _scale(scale: Mapping[str, Any]) -> Scale:
    return Scale(float(scale["min"]), float(scale["max"]), bool(scale["integer"]))


def evolve(
    raw_output: str, current: Sequence[str], limits: Mapping[str, int], finish_reason: str
) -> tuple[bool, list[str]]:
    """Return whether the reply's set is adopted, and the set then in force."""
    final_set = read_final_set(
        raw_output,
        current,
        max_items=limits["max_rubrics"],
        max_chars=limits["max_chars"],
        finish_reason=finish_reason,
    )
    return final_set.is_accepted, list(final_set.items)


def load(path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the records of a query file and the rows that were left out."""
    loaded = load_queries(path, strict=False)
    records = [
        {
            "id": query.id,
            "messages": [{"role": m.role, "content": m.content} for m in query.messages],
            "rubrics": [{"text": c.text, "weight": c.weight} for c in query.rubric.criteria],
        }
        for query in loaded.queries
    ]
    return records, [{"row": d.row, "reason": d.reason} for d in loaded.dropped]
