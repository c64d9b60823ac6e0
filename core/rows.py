"""Records as the JSON objects that a run's files hold, and back.

One home for the shapes of ``rollouts/*.jsonl`` and ``events.jsonl`` and of the provenance that the
RubricStore keeps: whoever writes or reads one of them comes here. A row holds only what JSON can
say; the functions are pure, and the ones that read raise ValueError or KeyError on a row that is
not one of ours.
"""

import json
from collections.abc import Mapping
from typing import Any

from core.config_evolution import Scope
from core.query import shared_id
from core.records import EditEvent, Evidence, RubricEdit, ScoredGroup, ScoredRollout, Verdict
from core.rubric import Criterion, Rubric

Row = dict[str, Any]


def json_line(row: Mapping[str, Any]) -> bytes:
    r"""Return the row as one line of UTF-8 JSON, with its newline.

    A lone surrogate cannot be UTF-8; ``backslashreplace`` writes it as ``\udXXX``, which inside a
    JSON string is that character's own escape, so that reading gives the text back unchanged.
    """
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def criterion_row(criterion: Criterion) -> Row:
    """Return a criterion as in a query file."""
    return criterion.model_dump(mode="json", exclude_none=True)


def rubric_row(rubric: Rubric) -> Row:
    """Return a rubric version with its criteria and caps."""
    return rubric.model_dump(mode="json", exclude_none=True)


def rubric_from_row(row: Mapping[str, Any]) -> Rubric:
    """Read what ``rubric_row`` made."""
    return Rubric.model_validate(row)


def verdict_row(verdict: Verdict) -> Row:
    """Return a verdict; the criterion's id is the key it stands under."""
    return {
        "score": verdict.score,
        "max": verdict.max,
        "reason": verdict.reason,
        "failure": verdict.failure,
    }


def verdict_from_row(criterion_id: str, row: Mapping[str, Any]) -> Verdict:
    """Read what ``verdict_row`` made; ValueError when score and failure contradict each other."""
    score, failure, highest = row["score"], row["failure"], row["max"]
    if (score is None) == (failure is None) or (score is not None and not 0 <= score <= highest):
        raise ValueError(
            f"verdict on {criterion_id!r}: got score {score!r} of {highest!r} with failure "
            f"{failure!r}, wanted a score on the scale or a failure"
        )
    return Verdict(
        criterion_id=criterion_id,
        score=score,
        max=highest,
        reason=row["reason"],
        failure=failure,
    )


def edit_row(edit: RubricEdit) -> Row:
    """Return an edit without its place in the run (step, query, versions)."""
    return {
        "method": edit.method,
        "branch": edit.branch,
        "status": edit.status,
        "reason": edit.reason,
        "old": None if edit.old is None else criterion_row(edit.old),
        "new": None if edit.new is None else criterion_row(edit.new),
        "evidence": {
            "rollouts": list(edit.evidence.rollouts),
            "quotes": list(edit.evidence.quotes),
            "analysis": edit.evidence.analysis,
        },
    }


def event_row(event: EditEvent) -> Row:
    """Return one line of events.jsonl."""
    row = edit_row(event.edit)
    return {
        "step": event.origin.step,
        "query_id": event.origin.rubric_id,
        **{key: row[key] for key in ("method", "branch", "status", "reason")},
        "from_version": event.from_version,
        "to_version": event.to_version,
        **{key: row[key] for key in ("old", "new", "evidence")},
        "seconds": event.seconds,
    }


def edit_from_row(row: Mapping[str, Any]) -> RubricEdit:
    """Read what ``edit_row`` made (other keys, as events.jsonl has, are left alone)."""
    evidence = row["evidence"]
    return RubricEdit(
        method=row["method"],
        branch=row["branch"],
        status=row["status"],
        reason=row["reason"],
        old=None if row["old"] is None else Criterion.model_validate(row["old"]),
        new=None if row["new"] is None else Criterion.model_validate(row["new"]),
        evidence=Evidence(
            rollouts=tuple(evidence["rollouts"]),
            quotes=tuple(evidence["quotes"]),
            analysis=evidence["analysis"],
        ),
    )


def puts_in_veto(event: Mapping[str, Any]) -> bool:
    """Whether a line of events.jsonl is an accepted edit with a new [Resist] criterion."""
    new: Mapping[str, Any] | None = event["new"]
    return event["status"] == "accepted" and new is not None and new["kind"] == "resist"


def rollout_row(step: int, group: ScoredGroup, scored: ScoredRollout) -> Row:
    """Return one line of ``rollouts/step_N.jsonl``; ``step`` is the one that trained it.

    ``task`` is there for a query that has one: a rubric may be shared by the queries of a task.
    """
    graded = scored.graded
    rollout = graded.rollout
    return {
        "step": step,
        "query_id": rollout.query_id,
        "index": rollout.index,
        "visit": group.draw.visit,
        "response": rollout.response,
        "num_tokens": len(rollout.token_ids),
        "finish_reason": rollout.finish_reason,
        "policy_version": [rollout.policy_version_first, rollout.policy_version_last],
        "rubric_version": group.rubric.version,
        "verdicts": {i: verdict_row(v) for i, v in graded.verdicts.items()},
        "reward": scored.reward,
        "vetoed": scored.is_vetoed,
        "graded": graded.is_graded,
        "advantage": scored.advantage,
        "gold": {i: verdict_row(v) for i, v in graded.gold.items()},
        **({} if group.query.task is None else {"task": group.query.task}),
    }


def row_rubric_id(row: Mapping[str, Any], scope: Scope) -> str:
    """Return the id of the rubric that a rollout's row was graded under, as ``rubric_id`` makes it.

    A row without a task under a shared rubric names the query, whose id no such rubric has.
    """
    return shared_id(row["task"]) if scope == "task" and "task" in row else row["query_id"]


def gold_value(gold: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the gold verdicts' sum of scores over sum of maxima, from a rollout's row.

    None when there are none or one of them is a failure: a judge failure is never a zero.
    """
    if not gold or any(v["score"] is None for v in gold.values()):
        return None
    return sum(v["score"] for v in gold.values()) / sum(v["max"] for v in gold.values())
