"""RubricARM's rows: a prompt with a rubric and a preference pair.

``{"question_id", "prompt", "rubric", "chosen", "rejected"}``; the rubric is a text of lines
(with OpenRubrics' tags or without) or a list. Every line counts alike. The pair's answers go to
``meta``.
"""

from core.formats.base import CHECKLIST, Fields, Format, query_of, rubric_from
from core.formats.checklists import criteria_of
from core.formats.open_rubrics import tagged_query
from core.formats.prompts import messages_of
from core.formats.wildchecklists import pair_meta
from core.query import Query

_COLUMNS = {"question_id", "prompt", "rubric", "chosen", "rejected"}


def _read(fields: Fields) -> Query:
    if isinstance(fields.get("rubric"), str):
        return tagged_query(fields, fields.get("prompt"), pair_meta(fields))
    messages = messages_of({"prompt": fields.get("prompt")})
    rubric = rubric_from(criteria_of({"rubric": fields.get("rubric")}))
    return query_of(fields, messages, rubric, meta=pair_meta(fields))


FORMAT = Format(
    name="rubric_arm",
    source="RubricARM (question_id, prompt, rubric, chosen, rejected)",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=lambda row: "the columns of RubricARM" if set(row) >= _COLUMNS else "",
    read=_read,
)
