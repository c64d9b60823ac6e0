"""Reads a row's rubric, in whatever shape it comes, into criteria.

A list of texts, of objects, of (text, weight) pairs; one text; a block of lines with numbering and
importance notes (RLCF, WildChecklists); any of them as JSON text or under a ``criteria`` key.
Texts and signs of weights stay as they are; a missing weight is 1.
"""

import contextlib
import json
import math
import re
from typing import Any, cast

from pydantic import ValidationError

from core.clean_text import clean_text
from core.formats.rows import RowError
from core.rubric import MAX_SCALE, Criterion, CriterionKind
from core.validation import first_problem

RUBRIC_FIELDS = (
    "rubric", "rubrics", "checklist", "criteria", "requirements", "rubric_list", "rubric_items",
    "requirements_general", "decomposed_questions",
)  # fmt: skip
_WEIGHT_LISTS = ("weights", "weights_general", "rubric_weights")
_TEXT_KEYS = (
    "text", "description", "criterion", "criteria_description", "check", "requirement", "question",
    "rubric", "criteria", "content", "statement", "title", "name",
)  # fmt: skip
_WEIGHT_KEYS = ("weight", "points", "importance")
_INNER_KEYS = ("criteria", "rubrics", "rubric", "checklist", "items", "requirements")

_NUMBERING = re.compile(
    r"\s*(?:\(?\d{1,3}[.):\u3001]\s+|\(?\d{1,3}[)\u3001]|[-*\u2022\u25cf\u25e6\u2013]\s+)?"
    r"(?:\[[ xX]?\]\s+)?"
)
_IMPORTANCE = re.compile(
    r"\s*[(\[]\s*(?:importance|weight|points?|priority)\s*[:=]?\s*"
    r"(-?\d{1,12}(?:\.\d{1,12})?)\s*(?:/\s*\d{1,12}|%)?\s*[)\]]\s*$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\s*([+-]?[\d.]{1,40}(?:e[+-]?\d{1,4})?|[+-]?nan|[+-]?inf(?:inity)?)"
                     r"\s*(?:/\s*[\d.]{1,40}|%)?\s*", re.IGNORECASE)  # fmt: skip
_LEVEL = re.compile("(?<!\\d)(\\d{1,3})\\s*[=\uff1d]")
_TAG = re.compile(r"\[(llm|resist)\]\s+(?=\S)", re.IGNORECASE)


def criteria_of(row: dict[str, Any]) -> tuple[Criterion, ...]:
    """Return the row's criteria; raises RowError if there is none to train by."""
    field = next((f for f in RUBRIC_FIELDS if row.get(f) is not None), None)
    if field is None:
        raise RowError("no_rubrics", f"got no rubric, wanted one of {list(RUBRIC_FIELDS)}")
    entries = _entries(row[field])
    weights = next((row[w] for w in _WEIGHT_LISTS if isinstance(row.get(w), list)), None)
    if weights is not None and len(weights) == len(entries):
        entries = [_with_weight(e, w) for e, w in zip(entries, weights, strict=True)]
    made = [c for e in entries if (c := _criterion(e)) is not None]
    if not made:
        raise RowError("no_rubrics", "got no criterion with text, wanted at least one")
    if not any(c.weight > 0 for c in made):
        raise RowError("no_positive_weight", "got no positive weight, wanted at least one")
    return _with_unique_ids(made)


def _entries(value: Any, depth: int = 0) -> list[Any]:
    if depth > 3:
        raise RowError("bad_rubric", "got a rubric nested too deeply, wanted a list")
    if isinstance(value, str):
        decoded = _decoded(value)
        return checklist_lines(value) if decoded is None else _entries(decoded, depth + 1)
    if isinstance(value, list | tuple):
        return list(cast(list[Any], value))
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        inner = next((fields[k] for k in _INNER_KEYS if isinstance(fields.get(k), list)), None)
        if inner is not None:
            return list(cast(list[Any], inner))
        if any(isinstance(fields.get(k), str) for k in _TEXT_KEYS):
            return [fields]
        return [{"text": text, "weight": weight} for text, weight in fields.items()]
    raise RowError("bad_rubric", f"got the rubric {value!r:.60}, wanted a list of criteria")


def _decoded(text: str) -> Any:
    """Return the list or object that ``text`` is as JSON; None if it is plain text."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast(Any, decoded) if isinstance(decoded, list | dict) else None


def checklist_lines(block: str) -> list[dict[str, Any]]:
    """Return one entry a line, without numbering; the importance note is its weight.

    A line that ends with a colon has its points on the lines below: they belong to it up to the
    line with the importance note.
    """
    entries: list[dict[str, Any]] = []
    stem: list[str] = []
    for line in block.replace("\r", "").split("\n"):
        text, weight = split_importance(line if stem else _NUMBERING.sub("", line, count=1))
        if not text and weight is None:
            continue
        if weight is None and (stem or text.endswith(":")):
            stem.append(text)
            continue
        noted = {} if weight is None else {"weight": weight}
        entries.append({"text": "\n".join(t for t in (*stem, text) if t)} | noted)
        stem = []
    return entries + [{"text": text} for text in stem]


def split_importance(line: str) -> tuple[str, str | None]:
    """Return a line without the importance note at its end, and the note's number."""
    text = line.strip()
    note = _IMPORTANCE.search(text)
    return (text, None) if note is None else (text[: note.start()].strip(), note[1])


def _with_weight(entry: Any, weight: Any) -> Any:
    if isinstance(entry, dict):
        return {"weight": weight, **cast(dict[str, Any], entry)}
    return {"text": entry, "weight": weight}


def _criterion(entry: Any) -> Criterion | None:
    """Return the criterion of one entry; None if it has no text."""
    fields = _fields(entry)
    text = next((fields[k] for k in _TEXT_KEYS if fields.get(k) is not None), None)
    if text is None:
        return None
    if not isinstance(text, str):
        raise RowError("bad_rubric", f"got the criterion text {text!r:.60}, wanted a text")
    text = clean_text(text)
    if not text.strip():
        return None
    weight = _weight(next((fields[k] for k in _WEIGHT_KEYS if fields.get(k) is not None), 1.0))
    tag = _TAG.match(text)
    kind: CriterionKind = "resist" if tag is not None and tag[1].lower() == "resist" else "llm"
    top, levels = _levels(fields) if kind == "llm" else (1, None)
    try:
        return Criterion(
            id=_own_id(fields),
            text=text if tag is None else text[tag.end() :],
            kind=kind,
            max=top,
            weight=weight,
            levels=levels,
        )
    except ValidationError as error:
        reason = first_problem(error)
        raise RowError("bad_rubric", f"criterion {text[:60]!r}: {reason}") from error


def _fields(entry: Any) -> dict[str, Any]:
    """Return the entry as an object; a text and a (text, weight) pair are short forms of one."""
    if isinstance(entry, str) or entry is None:
        return {"text": entry}
    if isinstance(entry, list | tuple):
        pair = cast(list[Any], entry)
        if len(pair) == 2:
            return {"text": pair[0], "weight": pair[1]}
    if isinstance(entry, dict):
        return cast(dict[str, Any], entry)
    raise RowError("bad_rubric", f"got the criterion {entry!r:.60}, wanted a text")


def _weight(value: Any) -> float:
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        with contextlib.suppress(ValueError):
            value = float(match[1]) if match is not None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowError("bad_weight", f"got the weight {value!r:.60}, wanted a number")
    try:
        weight = float(value)
    except OverflowError:
        weight = math.inf
    if not math.isfinite(weight):
        raise RowError("nonfinite_weight", f"got the weight {weight}, wanted a finite number")
    return weight


def _levels(fields: dict[str, Any]) -> tuple[int, dict[int, str] | None]:
    """Return max and level texts of a RARE criterion (``max_points``, ``scoring_rule``)."""
    top, rule = fields.get("max_points"), fields.get("scoring_rule")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        return 1, None
    return top, level_texts(rule, top)


def level_texts(rule: Any, top: int) -> dict[int, str] | None:
    """Return the level texts of a scoring rule (``2 = ...; 1 = ...; 0 = ...``).

    None when the rule does not define each level 0..``top``, or another one too.
    """
    if not isinstance(rule, str) or top > MAX_SCALE:  # the criterion refuses such a scale
        return None
    starts = list(_LEVEL.finditer(rule))
    if not starts:
        return None
    ends = [*(m.start() for m in starts[1:]), len(rule)]
    levels = {
        int(m[1]): clean_text(rule[m.end() : end]).strip(" \n;,\uff1b\uff0c")
        for m, end in zip(starts, ends, strict=True)
    }
    return levels if sorted(levels) == list(range(top + 1)) else None


def _own_id(fields: dict[str, Any]) -> str:
    own = fields.get("id")
    return clean_text(own).strip() or "?" if isinstance(own, str) else "?"


def _with_unique_ids(criteria: list[Criterion]) -> tuple[Criterion, ...]:
    """Keep ids that are given and unique; name the others c1, c2, ... by their place."""
    taken: set[str] = set()
    kept: list[Criterion] = []
    given = {c.id for c in criteria}
    for place, criterion in enumerate(criteria, start=1):
        name = criterion.id
        if name == "?" or name in taken:
            name = f"c{place}"
            while name in taken or name in given:
                name += "x"
        taken.add(name)
        kept.append(criterion.model_copy(update={"id": name}))
    return tuple(kept)
