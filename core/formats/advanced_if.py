"""AdvancedIF (facebook/AdvancedIF): conversations with a list of rubric questions.

``conversation_history`` and ``prompt_metadata`` are JSON texts; the criteria are the list in
``prompt_metadata.rubrics`` (a list, or JSON text of one). Every item counts alike: the mean of the
items is its per-item score; the all-or-nothing score that it reports too is no normaliser.
"""

from core.formats.base import (
    CHECKLIST,
    Fields,
    Format,
    as_list,
    as_object,
    query_of,
    rubric_of_entries,
)
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query


def _claim(fields: Fields) -> str:
    has_columns = {"conversation_history", "prompt_metadata"} <= set(fields)
    return "conversation_history and prompt_metadata" if has_columns else ""


def _read(fields: Fields) -> Query:
    history = as_list(fields.get("conversation_history"))
    messages = messages_of({"messages": history or fields.get("conversation_history")})
    rubrics = as_list(as_object(fields.get("prompt_metadata")).get("rubrics"))
    if not rubrics:
        raise RowError("no_rubrics", "got no rubrics in prompt_metadata, wanted at least one")
    kept = {k: v for k, v in fields.items() if k not in ("conversation_history", "prompt_metadata")}
    return query_of(kept, messages, rubric_of_entries(rubrics))


FORMAT = Format(
    name="advanced_if",
    source="AdvancedIF (facebook/AdvancedIF)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=_claim,
    read=_read,
)
