"""Renders CARE's evolution prompt from its template: the contract of appendix E.2 in our words.

Which steps are asked for follows the branches that are on and whether there is an anchor. Criteria
are shown as a JSON list of tagged texts, the form in which the writer has to give them back.
"""

from collections.abc import Sequence

from core.evolution.prompt_sections import keep_parts
from core.rubric import Criterion
from core.templates import fenced, fill, json_text
from core.writer_requests import ContrastRequest


def contrast_prompt(template: str, request: ContrastRequest) -> str:
    """Return the prompt of one contrast; all text from outside stands in fenced sections."""
    values = {
        "prompt": fenced(request.prompt, "task"),
        "satisfied": fenced(_tagged_list(request.satisfied), "satisfied_criteria"),
        "unsatisfied": fenced(_tagged_list(request.unsatisfied), "unsatisfied_criteria"),
        "response": fenced(request.response, "answer"),
    }
    if request.anchor is not None:
        values["anchor"] = fenced(request.anchor.response, "reference_answer")
    return fill(keep_parts(template, _parts(request)), values)


def _parts(request: ContrastRequest) -> set[str]:
    suffix = "anchor" if request.anchor is not None else "alone"
    parts = {"anchor"} if request.anchor is not None else set[str]()
    if request.is_adaptive:
        parts |= {"hack", f"hack_{suffix}"}
    if request.is_chase:
        parts |= {"gap", f"gap_{suffix}"}
    if request.is_adaptive and request.is_chase:
        parts.add("both")
    else:
        parts.add("hack_only" if request.is_adaptive else "gap_only")
    return parts


def _tagged_list(criteria: Sequence[Criterion]) -> str:
    return json_text([c.tagged for c in criteria], indent=1)
