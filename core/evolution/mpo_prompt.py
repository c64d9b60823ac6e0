"""Renders the meta judge's three prompts: analyse one sample, refine after it, merge all.

All text from outside, the meta judge's own earlier replies included, stands in fenced sections.
"""

from collections.abc import Mapping

from core.evolution.mpo_reply import fitting_refinements
from core.rubric import Rubric
from core.templates import fenced, fill, json_text
from core.writer_requests import (
    MetaAnalysisRequest,
    MetaMergeRequest,
    MetaRefineRequest,
    ScoredSample,
)


def meta_analysis_prompt(template: str, request: MetaAnalysisRequest) -> str:
    """Return the prompt that asks what rubric and scores got wrong on one sample."""
    return fill(template, _sample(request.rubric, request.sample))


def meta_refine_prompt(template: str, request: MetaRefineRequest) -> str:
    """Return the prompt that asks for the criteria which the analysis calls for."""
    values = {
        **_sample(request.rubric, request.sample),
        "analysis": fenced(request.analysis, "analysis"),
        "max_points": str(request.max_points),
        "max_criteria": str(request.max_criteria),
    }
    return fill(template, values)


def meta_merge_prompt(template: str, request: MetaMergeRequest) -> str:
    """Return the prompt that asks for one set without overlap."""
    values = {
        "rubric": fenced(_rubric(request.rubric), "rubric"),
        "refinements": fenced(fitting_refinements(request.refinements), "refinements"),
        "max_points": str(request.max_points),
        "max_criteria": str(request.max_criteria),
    }
    return fill(template, values)


def _sample(rubric: Rubric, sample: ScoredSample) -> Mapping[str, str]:
    scores = [
        {"id": v.criterion_id, "score": v.score, "max": v.max, "reason": v.reason}
        for i in rubric.ids
        if (v := sample.verdicts.get(i)) is not None
    ]
    shown = {"reward": round(sample.reward, 4), "scores": scores}
    return {
        "rubric": fenced(_rubric(rubric), "rubric"),
        "prompt": fenced(sample.prompt, "task"),
        "response": fenced(sample.response, "answer"),
        "scores": fenced(json_text(shown, indent=1), "scores"),
    }


def _rubric(rubric: Rubric) -> str:
    items: list[Mapping[str, object]] = []
    for c in rubric.criteria:
        levels = c.levels or {}
        item: dict[str, object] = {"id": c.id, "criterion": c.text, "max": c.max}
        if c.is_penalty:
            item["stays"] = "a penalty: points are taken away where it is true"
        elif c.is_resist:
            item["stays"] = "a hard limit: an answer that fails it has no reward"
        if levels:
            item["levels"] = {str(level): levels[level] for level in sorted(levels)}
        items.append(item)
    return json_text(items, indent=1)
