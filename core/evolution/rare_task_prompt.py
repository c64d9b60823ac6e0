"""Renders RARE's task-level revision prompt from its template: RARE's contract in our words.

All text from outside stands in fenced sections; a case's feedback is JSON. A refused try adds the
reason, so that the next one can do better.
"""

from collections.abc import Mapping

from core.evolution.prompt_sections import keep_parts
from core.evolution.rare_prompt import shown_score
from core.evolution.rare_task_reply import TRIGGER, scoring_rule
from core.rubric import Criterion
from core.templates import fenced, fill, json_text
from core.writer_requests import TaskCase, TaskRevisionRequest


def revision_prompt(template: str, request: TaskRevisionRequest) -> str:
    """Return the prompt of one try."""
    values = {
        "task_id": json_text(request.task),
        "rubric_version": str(request.rubric.version + 1),
        "step": str(request.step),
        "trigger": TRIGGER,
        "num_criteria": str(len(request.rubric.criteria)),
        "num_cases": str(len(request.cases)),
        "rubric": fenced(_rubric(request), "rubric"),
        "cases": _cases(request),
    }
    parts: set[str] = set()
    limits = [_limit(c) for c in request.rubric.criteria if c.is_resist or c.is_penalty]
    if limits:
        parts.add("limits")
        values["limits"] = fenced(json_text(limits, indent=1), "limits")
    if request.error:
        parts.add("error")
        values["error"] = fenced(request.error, "refusal")
    return fill(keep_parts(template, parts), values)


def shown_evidence(request: TaskRevisionRequest) -> str:
    """Return what of the prompt depends on the run: what its size is measured by."""
    return f"{_rubric(request)}\n{_cases(request)}\n{request.error}"


def _rubric(request: TaskRevisionRequest) -> str:
    return json_text([_shown(c) for c in request.rubric.criteria], indent=1)


def _cases(request: TaskRevisionRequest) -> str:
    ids = request.rubric.ids
    blocks = [_case(i, case, ids) for i, case in enumerate(request.cases, start=1)]
    return "\n\n".join(blocks)


def _case(number: int, case: TaskCase, ids: tuple[str, ...]) -> str:
    feedback = {
        "reward": round(case.reward, 4),
        "group_mean": round(case.group_mean, 4),
        "scores": [shown_score(case.verdicts[i]) for i in ids if i in case.verdicts],
    }
    return "\n".join(
        (
            fenced(case.prompt, f"case{number}_task"),
            fenced(case.response, f"case{number}_answer"),
            fenced(json_text(feedback, indent=1), f"case{number}_feedback"),
        )
    )


def _shown(criterion: Criterion) -> Mapping[str, object]:
    return {
        "id": criterion.id,
        "check": criterion.text,
        "scoring_rule": scoring_rule(criterion),
        "max_points": criterion.max,
    }


def _limit(criterion: Criterion) -> Mapping[str, object]:
    why = "points are taken away where it is true" if criterion.is_penalty else "a hard limit"
    return {"id": criterion.id, "why": why}
