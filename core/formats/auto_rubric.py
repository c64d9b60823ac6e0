"""Auto-Rubric (agentscope-ai/Auto-Rubric): query-specific rubrics that were checked.

``{"input": [messages], "rubrics": [texts], "rubric_valid": "True" or "False", "domain"}``. A row
whose rubric did not pass the authors' check is left out with that reason.
"""

from core.formats.base import CHECKLIST, Fields, Format, as_list, query_of, rubric_of_entries
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query


def _claim(fields: Fields) -> str:
    has_columns = {"input", "rubrics", "rubric_valid"} <= set(fields)
    return "input, rubrics and rubric_valid" if has_columns else ""


def _read(fields: Fields) -> Query:
    valid = fields.get("rubric_valid")
    if str(valid).strip().lower() != "true":
        raise RowError("marked_invalid", f"got rubric_valid={valid!r:.20}, wanted a checked rubric")
    messages = messages_of({"messages": fields.get("input")})
    rubrics = as_list(fields.get("rubrics"))
    if not rubrics:
        raise RowError("no_rubrics", "got no list in rubrics, wanted at least one criterion")
    kept = {k: v for k, v in fields.items() if k != "rubric_valid"}
    return query_of(kept, messages, rubric_of_entries(rubrics))


FORMAT = Format(
    name="auto_rubric",
    source="Auto-Rubric (agentscope-ai/Auto-Rubric)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=_claim,
    read=_read,
)
