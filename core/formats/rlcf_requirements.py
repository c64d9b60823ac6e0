"""RLCF's intermediate requirement files: what its checklist generation writes, before any pair.

``{"instruction", "raw_response", "requirements": [[text, weight 0..100]], "orig_row",
"orig_row_idx", "source_file"}``. ``raw_response`` is the checklist writer's reply and stays out.
"""

from typing import Any, cast

from core.formats.base import CHECKLIST, Fields, Format, as_list, query_of, rubric_of_entries
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query


def _claim(fields: Fields) -> str:
    pairs = as_list(fields.get("requirements"))
    is_rlcf = "instruction" in fields and bool(pairs) and all(map(_is_pair, pairs))
    return "instruction, and requirements as pairs of text and weight" if is_rlcf else ""


def _is_pair(value: Any) -> bool:
    if not isinstance(value, list) or len(cast(list[Any], value)) != 2:
        return False
    text, weight = cast(list[Any], value)
    return isinstance(text, str) and isinstance(weight, int | float)


def _read(fields: Fields) -> Query:
    messages = messages_of({"prompt": fields.get("instruction")})
    pairs = as_list(fields.get("requirements"))
    if not pairs:
        raise RowError("no_rubrics", "got no pairs in requirements, wanted at least one")
    rubric = rubric_of_entries(pairs)
    return query_of({k: v for k, v in fields.items() if k != "raw_response"}, messages, rubric)


FORMAT = Format(
    name="rlcf_requirements",
    source="RLCF's intermediate requirement files",
    normaliser="weight100",
    reward=CHECKLIST,
    claim=_claim,
    read=_read,
)
