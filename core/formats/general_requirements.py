"""WildChecklists with general requirements (BBang3/wildchecklists-with-general).

``{"prompt": [...], "requirements_general": [texts], "weights_general": [numbers], "data_source"}``.
A list of weights that is not as long as the list of requirements is refused: which weight belongs
to which item would be a guess.
"""

from core.formats.base import CHECKLIST, Fields, Format, as_list, query_of, rubric_of_entries
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Query


def _read(fields: Fields) -> Query:
    messages = messages_of(fields)
    texts = as_list(fields.get("requirements_general"))
    if not texts:
        raise RowError("no_rubrics", "got no list in requirements_general, wanted criteria")
    weights = as_list(fields.get("weights_general")) or [1.0] * len(texts)
    if len(weights) != len(texts):
        raise RowError(
            "bad_weight",
            f"got {len(weights)} weights_general for {len(texts)} requirements_general, wanted one "
            "weight each",
        )
    pairs = [{"text": t, "weight": w} for t, w in zip(texts, weights, strict=True)]
    return query_of(fields, messages, rubric_of_entries(pairs))


FORMAT = Format(
    name="general_requirements",
    source="WildChecklists with general requirements (BBang3)",
    normaliser="weight100",
    reward=CHECKLIST,
    claim=lambda row: "a column requirements_general" if row.get("requirements_general") else "",
    read=_read,
)
