"""What a data format is, and what the readers of all formats share.

A format knows its rows by what they hold (``claim``) and makes a query of one (``read``); its
normaliser is the one of ``core/normalisers.py`` that gives its source's own numbers. Readers are
pure and raise ``RowError``; ids, repeats and order are ``core/formats/reading.py``'s part.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from core.clean_text import clean_text, clean_value
from core.formats.checklists import RUBRIC_FIELDS, criteria_of
from core.formats.prompts import PROMPT_FIELDS
from core.formats.rows import RowError
from core.query import Anchor, Message, Query
from core.rubric import Cap, Criterion, Rubric
from core.validation import first_problem

Fields = dict[str, Any]

ID_FIELDS = (
    "id", "uid", "query_id", "qid", "prompt_id", "example_id", "question_id", "sample_id", "index",
    "idx",
)  # fmt: skip
_ANCHOR_FIELDS = ("anchor", "reference_answer", "golden_response", "reference_response")
_USED = {*ID_FIELDS, *_ANCHOR_FIELDS, *PROMPT_FIELDS, *RUBRIC_FIELDS, "task", "gold", "meta"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One data format."""

    name: str
    source: str
    """Whose rows these are, in one clause."""
    normaliser: str
    """The name in ``core.normalisers.NORMALISERS`` that reproduces the source."""
    reward: Mapping[str, str]
    """The settings of the config's ``reward`` section that do the same on what was read."""
    claim: Callable[[Fields], str]
    """Return what tells that a row is of this format; empty when nothing does."""
    read: Callable[[Fields], Query]
    """Return the row's query; raises RowError. Its id is the row's own, or ``new``."""


CHECKLIST: Mapping[str, str] = {"weights": "checklist", "normaliser": "pos_sum"}
"""Reward settings of formats that weigh by their weights over the sum of the positive ones."""


def query_of(
    fields: Fields,
    messages: Sequence[Message],
    rubric: Rubric,
    *,
    anchor: Anchor | None = None,
    task: str | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Query:
    """Return the query of a row; anchor, task and further columns come from it where not given."""
    try:
        return Query(
            id=own_id(fields) or "new",
            messages=tuple(messages),
            rubric=rubric,
            anchor=anchor or anchor_of(fields),
            task=_text(fields.get("task")) or task,
            meta=meta_of(fields) | clean_value(dict(meta or {})),
        )
    except ValidationError as error:
        raise RowError("invalid", first_problem(error)) from error


def rubric_from(criteria: Iterable[Criterion], caps: Iterable[Cap] = ()) -> Rubric:
    """Return the rubric; raises RowError where it cannot be one."""
    try:
        return Rubric(criteria=tuple(criteria), caps=tuple(caps))
    except ValidationError as error:
        raise RowError("bad_rubric", first_problem(error)) from error


def rubric_of_entries(entries: Sequence[Any]) -> Rubric:
    """Return the rubric of a list of texts, objects or pairs (``core/formats/checklists.py``)."""
    return rubric_from(criteria_of({"rubric": list(entries)}))


def own_id(value: Any) -> str | None:
    """Return the row's id as text; None if it has none that can be one."""
    fields = as_object(value)
    own: Any = next((fields[f] for f in ID_FIELDS if fields.get(f) is not None), None)
    if isinstance(own, float) and own.is_integer():
        own = int(own)
    if isinstance(own, bool) or not isinstance(own, str | int | float):
        return None
    if isinstance(own, float) and not math.isfinite(own):
        return None
    return clean_text(str(own)).strip() or None


def anchor_of(fields: Fields) -> Anchor | None:
    """Return the row's reference answer: a text, or an object (also as JSON) with ``response``."""
    value: Any = next((fields[f] for f in _ANCHOR_FIELDS if fields.get(f)), None)
    inner = as_object(value)
    response = _text(inner.get("response"))
    if response is not None:
        return Anchor(model=_text(inner.get("model")) or "unknown", response=response)
    text = _text(value)
    return None if text is None else Anchor(model="reference", response=text)


def meta_of(fields: Fields) -> dict[str, Any]:
    """Return the columns that are neither prompt nor rubric, if they are plain values."""
    own: Any = fields.get("meta")
    meta: dict[str, Any] = dict(cast(dict[str, Any], own)) if isinstance(own, dict) else {}
    for key, value in fields.items():
        is_plain = isinstance(value, str | bool | int | float)
        is_broken = isinstance(value, float) and not math.isfinite(value)
        if key not in _USED and is_plain and not is_broken:
            meta[key] = value
    return clean_value(meta)


# ------------------------------------------------------------------ values of any shape
def as_object(value: Any) -> Fields:
    """Return an object, or the one that a text is as JSON; empty for anything else."""
    value = _decoded(value, "{")
    return cast(Fields, value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list, or the one that a text is as JSON; empty for anything else."""
    value = _decoded(value, "[")
    return cast(list[Any], value) if isinstance(value, list) else []


def objects_with(value: Any, *keys: str) -> list[Fields]:
    """Return the entries of a list in which each is an object with ``keys``; empty otherwise."""
    entries = as_list(value)
    found = [cast(Fields, e) for e in entries if isinstance(e, dict) and set(keys) <= set(e)]  # pyright: ignore[reportUnknownArgumentType]
    return found if len(found) == len(entries) else []


def _decoded(value: Any, first: str) -> Any:
    if not isinstance(value, str) or value.lstrip()[:1] != first:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str | None:
    return clean_text(value) if isinstance(value, str) and value.strip() else None
