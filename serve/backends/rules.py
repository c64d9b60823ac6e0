"""The embedded judge and writer: rules in code, no model, no key.

It decides what code can decide and says ``undecidable`` of the rest; its writer finds the hack
patterns that code can see. Pure and deterministic: the same request gives the same answer, and the
version in ``RULES_MODEL`` changes whenever an answer may.
"""

import time

from core.records import Completion, Verdict
from core.rubric import Criterion
from core.rules.replacements import write_replacements
from core.rules.verifiers import decide, is_decidable
from core.rules.writer import write_contrast
from core.writer_requests import ContrastRequest, ReplacementRequest, WriterRequest

RULES_MODEL = "rules-1"


class RulesBackend:
    """Verdicts and edits by code."""

    def can_decide(self, criterion: Criterion) -> bool:
        """Whether code decides this criterion."""
        return is_decidable(criterion)

    def decide(self, criterion: Criterion, response: str, prompt: str) -> Verdict:
        """Return the verdict, or the failure ``undecidable``."""
        return decide(criterion, response, prompt)

    def write(self, request: WriterRequest) -> Completion:
        """Return a raw reply, in the format that a model's reply has.

        Other requests than contrasts and replacements are ``undecidable``.
        """
        started = time.monotonic()
        if isinstance(request, ContrastRequest):
            text = write_contrast(request)
        elif isinstance(request, ReplacementRequest):
            text = write_replacements(request)
        else:
            return _undecidable(type(request).__name__)
        return Completion(
            text=text,
            finish_reason="stop",
            model=RULES_MODEL,
            seconds=time.monotonic() - started,
        )


def _undecidable(kind: str) -> Completion:
    return Completion(
        text="",
        finish_reason="",
        model=RULES_MODEL,
        failure="undecidable",
        detail=f"got a {kind} for writer.backend=rules, which writes contrasts and replacements "
        "only, wanted a writer of backend openai or vllm",
    )
