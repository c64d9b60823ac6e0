"""Renders RARE's replacement prompt from its template: RARE's contract in our words.

One template serves the three directions; they differ in one part only. A refused try adds the
reason, so that the next one can do better.
"""

from collections.abc import Iterable, Mapping

from core.evolution.prompt_sections import keep_parts
from core.records import Verdict
from core.rubric import Criterion
from core.templates import fenced, fill, json_text
from core.writer_requests import ReplacementRequest


def replacement_prompt(template: str, request: ReplacementRequest) -> str:
    """Return the prompt of one try; all text from outside stands in fenced sections."""
    criteria = request.rubric.criteria
    saturated = [c for c in criteria if c.id in request.saturated_ids]
    retained = [c for c in criteria if c.id not in request.saturated_ids]
    values = {
        "num_updates": str(request.num_updates),
        "polarity": "negative or positive" if request.polarity == "mixed" else request.polarity,
        "prompt": fenced(request.prompt, "task"),
        "rubric": fenced(_as_json(map(_shown, criteria)), "rubric"),
        "saturated": fenced(_as_json(c.id for c in saturated), "saturated_ids"),
        "retained": fenced(_as_json(c.id for c in retained), "retained_ids"),
        "rollouts": _rollouts(request),
    }
    parts = {str(request.polarity)}
    if request.error:
        parts.add("error")
        values["error"] = fenced(request.error, "refusal")
    return fill(keep_parts(template, parts), values)


def _rollouts(request: ReplacementRequest) -> str:
    blocks: list[str] = []
    for i, (response, verdicts) in enumerate(zip(request.responses, request.verdicts, strict=True)):
        scores = _as_json(shown_score(verdicts[c.id]) for c in request.rubric.criteria)
        blocks.append(f"{fenced(response, f'R{i}')}\n{fenced(scores, f'R{i}_scores')}")
    return "\n\n".join(blocks)


def _shown(criterion: Criterion) -> Mapping[str, object]:
    levels = criterion.levels or {}
    penalty = {"penalty": "points are taken away where it is true"} if criterion.is_penalty else {}
    return {
        **penalty,
        "id": criterion.id,
        "check": criterion.text,
        "max_points": criterion.max,
        "scoring_rule": "; ".join(f"{i} = {levels[i]}" for i in sorted(levels, reverse=True)),
    }


def shown_score(verdict: Verdict) -> Mapping[str, object]:
    """Return what RARE's writer sees of a verdict."""
    return {
        "id": verdict.criterion_id,
        "score": verdict.score,
        "max": verdict.max,
        "reason": verdict.reason,
    }


def _as_json(items: Iterable[object]) -> str:
    return json_text(list(items), indent=1)
