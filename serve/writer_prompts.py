"""The one table of what the rubric writer is asked: request type -> template and prompt function.

A new kind of request is one entry here (and one text in ``prompts/``). The prompt function takes
the template's text and the request and returns the prompt; it puts untrusted text through
``core/templates.py``. The digest of all templates named here is part of the writer's identity.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.evolution.care_prompt import contrast_prompt
from core.evolution.mpo_prompt import (
    meta_analysis_prompt,
    meta_merge_prompt,
    meta_refine_prompt,
)
from core.evolution.pool_prompt import merge_prompt, pair_prompt, pool_prompt
from core.evolution.rare_prompt import replacement_prompt
from core.evolution.rare_task_prompt import revision_prompt
from core.writer_requests import (
    ContrastRequest,
    MergeRequest,
    MetaAnalysisRequest,
    MetaMergeRequest,
    MetaRefineRequest,
    PairRequest,
    PoolRequest,
    ReplacementRequest,
    TaskRevisionRequest,
)


@dataclass(frozen=True, slots=True)
class WriterPrompt:
    """How one kind of request is put into words."""

    template: str
    """Name of the text in ``prompts/``, without its ending."""
    render: Callable[[str, Any], str]
    """(template's text, request) -> prompt."""


WRITER_PROMPTS: Mapping[type, WriterPrompt] = {
    ContrastRequest: WriterPrompt("care_evolve", contrast_prompt),
    ReplacementRequest: WriterPrompt("rare_replace", replacement_prompt),
    PoolRequest: WriterPrompt("rler_pool", pool_prompt),
    PairRequest: WriterPrompt("online_pair", pair_prompt),
    MergeRequest: WriterPrompt("online_merge", merge_prompt),
    TaskRevisionRequest: WriterPrompt("rare_task", revision_prompt),
    MetaAnalysisRequest: WriterPrompt("mpo_analyse", meta_analysis_prompt),
    MetaRefineRequest: WriterPrompt("mpo_refine", meta_refine_prompt),
    MetaMergeRequest: WriterPrompt("mpo_merge", meta_merge_prompt),
}


def writer_templates() -> tuple[str, ...]:
    """Return the names of all templates, each once, in the table's order."""
    return tuple(dict.fromkeys(p.template for p in WRITER_PROMPTS.values()))
