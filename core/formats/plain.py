"""Rows of any other shape: a prompt and criteria under the usual column names.

What data sets with rubrics look like in the wild, InfoBench's rows and anchors of CARE among them:
a prompt (text, messages, either as JSON text), a list, block or JSON text of criteria, and maybe an
anchor. Nothing is repaired by guessing: a row without a prompt to answer or a rubric to train by is
refused with its reason. Every criterion is binary with the weight that stands beside it.
"""

from core.formats.base import CHECKLIST, Fields, Format, query_of, rubric_from
from core.formats.checklists import criteria_of
from core.formats.prompts import messages_of
from core.query import Query


def plain_query(fields: Fields) -> Query:
    """Return the query of a row with prompt and criteria."""
    return query_of(fields, messages_of(fields), rubric_from(criteria_of(fields)))


FORMAT = Format(
    name="plain",
    source="rows with a prompt and criteria under the usual column names",
    normaliser="pos_sum",
    reward=CHECKLIST,
    claim=lambda fields: "",  # what no other format claims
    read=plain_query,
)
