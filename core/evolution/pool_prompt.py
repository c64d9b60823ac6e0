"""Renders the prompts of RLER and of Online Rubrics: what their released code asks, in our words.

Criteria go in as JSON with their weights, responses as sections of their own that nothing in them
can close. Which response of a pair is the current policy's is not told.
"""

from collections.abc import Sequence

from core.evolution.prompt_sections import keep_parts
from core.rubric import Criterion
from core.templates import fenced, fill, json_text
from core.writer_requests import MergeRequest, PairRequest, PoolRequest


def pool_prompt(template: str, request: PoolRequest) -> str:
    """Return the prompt that asks for new criteria from all rollouts of a query."""
    responses = [
        fenced(response, f"response_{number}")
        for number, response in enumerate(request.responses, start=1)
    ]
    values = {
        "prompt": fenced(request.prompt, "task"),
        "initial": fenced(_criteria(request.initial), "criteria"),
        "active": fenced(_criteria(request.active), "added_criteria"),
        "responses": "\n\n".join(responses),
        "max_points": str(request.max_points),
        "max_new": str(request.max_new),
    }
    part = "negative" if request.is_negative_asked else "positive_only"
    return fill(keep_parts(template, {part}), values)


def pair_prompt(template: str, request: PairRequest) -> str:
    """Return the prompt that asks what sets two responses apart."""
    values = {
        "prompt": fenced(request.prompt, "task"),
        "existing": fenced(_criteria(request.existing), "criteria"),
        "response_a": fenced(request.response_a, "response_A"),
        "response_b": fenced(request.response_b, "response_B"),
    }
    return fill(template, values)


def merge_prompt(template: str, request: MergeRequest) -> str:
    """Return the prompt that unites the candidates of all pairs."""
    candidates = [{"criterion": c.text, "weight": _number(c.weight)} for c in request.candidates]
    values = {
        "prompt": fenced(request.prompt, "task"),
        "existing": fenced(_criteria(request.existing), "criteria"),
        "candidates": fenced(json_text(candidates, indent=1), "proposals"),
    }
    return fill(template, values)


def _criteria(criteria: Sequence[Criterion]) -> str:
    return json_text(
        [{"criterion": c.text, "weight": _number(c.weight)} for c in criteria], indent=1
    )


def _number(weight: float) -> float | int:
    return int(weight) if weight.is_integer() else weight
