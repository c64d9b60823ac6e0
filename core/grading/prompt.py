"""Renders what a judge is asked.

Criteria go in as JSON (an odd criterion text cannot break the list), the request and the responses
as fenced sections (``core/templates.py``). What is the same for all rollouts of a group (rules,
request, criteria) comes before the response, so that an engine can reuse its prefix cache.
In style ``ids`` the n-th criterion of a request is called ``c<n>``, whatever its own id is; in
style ``verbatim`` it is called by its text (CARE, figure 3). A penalty (negative weight) without
levels of its own is shown with levels that say how true it is.
"""

from collections.abc import Sequence
from typing import Literal

from core.records import JudgeRequest, RescoreRequest, Verdict
from core.rubric import Criterion, presence_levels
from core.templates import fenced, fill, json_text

Style = Literal["ids", "verbatim"]

_LONGEST_SHOWN_SCALE = 10


def short_ids(count: int) -> tuple[str, ...]:
    """Return ``c1 .. c<count>``: how a judge calls the criteria of one request, in order."""
    return tuple(f"c{n}" for n in range(1, count + 1))


def rollout_ids(count: int) -> tuple[str, ...]:
    """Return ``R0 .. R<count - 1>``: how a rescoring judge calls the responses, in order."""
    return tuple(f"R{n}" for n in range(count))


def asked_names(criteria: Sequence[Criterion], style: Style) -> tuple[str, ...]:
    """Return the keys that the judge's reply shall have, in the order of ``criteria``."""
    return short_ids(len(criteria)) if style == "ids" else tuple(c.text for c in criteria)


def judge_prompt(template: str, request: JudgeRequest, *, style: Style) -> str:
    """Return the prompt that grades one response by all criteria of ``request``."""
    values = {
        "prompt": fenced(request.prompt, "request"),
        "response": fenced(request.response, "response"),
    }
    if style == "ids":
        values["criteria"] = _criteria_lines(request.criteria)
        values["ids"] = ", ".join(short_ids(len(request.criteria)))
    else:
        values["criteria"] = json_text([c.text for c in request.criteria], indent=1)
        values["values"] = _string_values([c.max for c in request.criteria])
    return fill(template, values)


def repair_prompt(
    template: str, prompt: str, request: JudgeRequest, verdicts: Sequence[Verdict], *, style: Style
) -> str:
    """Return the prompt of the one more try: the task again, what was wrong, what is missing.

    ``prompt`` is what ``judge_prompt`` made of ``request``; ``verdicts`` are those read from the
    first reply, in the order of the request's criteria. The reply keeps the names of ``request``.
    """
    names = asked_names(request.criteria, style)
    failed = [(n, v) for n, v in zip(names, verdicts, strict=True) if v.failure is not None]
    error = "\n".join(f"- {json_text(n)}: {v.failure}. {v.reason}".rstrip(". ") for n, v in failed)
    missing = ", ".join(n if style == "ids" else json_text(n) for n, _ in failed)
    return fill(
        template, {"task": prompt, "error": fenced(error, "errors"), "missing": missing or "none"}
    )


def rescore_prompt(template: str, request: RescoreRequest) -> str:
    """Return the prompt that grades all responses of a group by some criteria in one call."""
    names = rollout_ids(len(request.responses))
    sections = [fenced(text, name) for name, text in zip(names, request.responses, strict=True)]
    return fill(
        template,
        {
            "prompt": fenced(request.prompt, "request"),
            "criteria": _criteria_lines(request.criteria),
            "responses": "\n\n".join(sections),
            "ids": ", ".join(short_ids(len(request.criteria))),
            "rollout_ids": ", ".join(names),
        },
    )


def _string_values(maxima: Sequence[int]) -> str:
    """Return which strings a verbatim reply may give, by criterion where they differ."""
    levels = [" or ".join(f'"{level}"' for level in range(top + 1)) for top in maxima]
    if len(set(levels)) == 1:
        return levels[0]
    return "in the order of the list " + "; ".join(levels)


def _criteria_lines(criteria: Sequence[Criterion]) -> str:
    lines: list[str] = []
    for name, c in zip(short_ids(len(criteria)), criteria, strict=True):
        line: dict[str, object] = {"id": name, "criterion": c.text, "max": c.max}
        levels = c.levels or (_penalty_levels(c.max) if c.is_penalty else None)
        if levels is not None:
            line["levels"] = {str(level): levels[level] for level in sorted(levels)}
        lines.append(json_text(line))
    return "\n".join(lines)


def _penalty_levels(maximum: int) -> dict[int, str]:
    """Return what a penalty's levels mean; of a long scale its ends say enough."""
    if maximum <= _LONGEST_SHOWN_SCALE:
        return presence_levels(maximum)
    low, high = presence_levels(1).values()
    return {0: low, maximum: high}
