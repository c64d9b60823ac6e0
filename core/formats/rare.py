"""RARE's release (EurekaTian/RARE): parquet rows in verl's layout, and its queries alone.

A row has ``prompt`` (chat messages), ``query_id``, ``extra_info`` with ``criteria`` (the query's
rubric, as JSON text or an object), ``stem_uid`` and more; the rubric's ``reward_aggregation`` may
carry caps. A criterion's scale is its ``max_points``; its level texts are read out of
``scoring_rule`` where that defines each level, and else the rule stays part of the text. The task
(medium) is told by the stem. ``rare_queries`` are rows ``{"query", "query_id", "domain"}`` without
a rubric, as in the release's case list: their task's rubric is given in ``data.task_rubrics``.
"""

from typing import Any

from core.formats.base import Fields, Format, as_object, query_of, rubric_from
from core.formats.checklists import RUBRIC_FIELDS, criteria_of
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.formats.rubric_files import read_rubric
from core.query import Query
from core.rubric import Rubric

_TASKS = {"2d": "2d_animation", "3d": "3d_stopmotion", "live": "live_action"}
"""Task ids of the released rubrics, by the medium that a stem or a domain names."""
_META = ("query", "stem", "stem_uid", "query_idx")


def nested_rubric(fields: Fields) -> Fields:
    """Return the object with the rubric in ``extra_info.criteria``; empty where there is none."""
    return as_object(as_object(fields.get("extra_info")).get("criteria"))


def task_of(medium: Any) -> str | None:
    """Return the released task id of a medium; None for one that was not released."""
    if not isinstance(medium, str):
        return None
    name = medium.strip().lower()
    return name if name in _TASKS.values() else _TASKS.get(name)


def _rubric(fields: Fields) -> Rubric:
    nested = nested_rubric(fields)
    if not nested:  # a rubric that the task gave the row
        return rubric_from(criteria_of(fields))
    try:
        return read_rubric(nested, needs_levels=False)
    except RowError as error:
        reason = "bad_rubric" if error.reason == "invalid" else error.reason
        raise RowError(reason, error.detail) from error


def _claim(fields: Fields) -> str:
    if nested_rubric(fields):
        return "a rubric in extra_info.criteria"
    return "a stem_uid in extra_info" if as_object(fields.get("extra_info")).get("stem_uid") else ""


def _read(fields: Fields) -> Query:
    messages = messages_of(fields)
    extra = as_object(fields.get("extra_info"))
    medium, found, _ = str(extra.get("stem") or extra.get("stem_uid") or "").partition("_video_")
    meta = {key: extra[key] for key in _META if isinstance(extra.get(key), str | int)}
    task = task_of(medium) if found else None
    return query_of(fields, messages, _rubric(fields), task=task, meta=meta)


def _claim_query(fields: Fields) -> str:
    is_case = {"query", "query_id", "domain"} <= set(fields) and task_of(fields["domain"])
    own = set(fields) & set(RUBRIC_FIELDS) - {"rubric"}
    return "query, query_id and a domain of RARE's, without a rubric" if is_case and not own else ""


def _read_query(fields: Fields) -> Query:
    messages = messages_of({"prompt": fields.get("query")})
    if fields.get("rubric") is None:
        raise RowError(
            "no_rubrics",
            "got a query without a rubric, wanted its task's: name the file in "
            f"data.task_rubrics.{task_of(fields.get('domain')) or 'TASK'}",
        )
    task = task_of(fields.get("domain"))
    return query_of(fields, messages, rubric_from(criteria_of(fields)), task=task)


FORMAT = Format(
    name="rare",
    source="RARE's released rows (rubric in extra_info.criteria)",
    normaliser="max_points",
    reward={"weights": "none", "normaliser": "pos_sum"},
    claim=_claim,
    read=_read,
)

QUERIES = Format(
    name="rare_queries",
    source="RARE's queries alone; the rubric is their task's",
    normaliser="max_points",
    reward={"weights": "none", "normaliser": "pos_sum"},
    claim=_claim_query,
    read=_read_query,
)
