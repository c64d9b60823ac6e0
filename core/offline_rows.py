"""Rows of offline training: what a row gives to imitate or to prefer, and which rows are held out.

Pure: a row of a file in, a record out, ``RowError`` with its reason for a row that gives none. The
reasons of ``NOTHING_TO_LEARN`` are rows that are sound but have no target; every other one is a row
to correct. Rows of one source group (RARE's ``stem``, else equal prompts) stay on one side of the
validation split.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from core.clean_text import clean_text
from core.formats.prompts import messages_of
from core.formats.rows import RowError
from core.query import Message, Query

NOTHING_TO_LEARN = ("no_anchor", "no_response", "no_preference")
"""Why a sound row gives nothing to train on."""

_RESPONSE_FIELDS = ("response", "script", "completion", "answer", "output", "target")
_SCORES = ("chosen_score", "rejected_score")


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstration:
    """A prompt and the response to imitate."""

    id: str
    group: str
    """What the validation split keeps together."""
    prompt: tuple[Message, ...]
    response: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Preference:
    """A prompt and two responses, the better one first."""

    id: str
    group: str
    prompt: tuple[Message, ...]
    chosen: str
    rejected: str


Example = Demonstration | Preference
_E = TypeVar("_E", bound=Example)


def anchor_demonstration(query: Query) -> Demonstration:
    """Return a query's anchor as what to imitate; RowError ``no_anchor`` without one."""
    if query.anchor is None:
        raise RowError("no_anchor", f"query {query.id[:80]!r} has no anchor")
    return Demonstration(
        id=query.id,
        group=_group({"meta": query.meta}, query.messages),
        prompt=query.messages,
        response=query.anchor.response,
    )


def script_demonstration(value: Any, number: int) -> Demonstration:
    """Return the query-script pair of a row.

    ``{id?, messages, response}``, a row of RARE's layout (``prompt``, ``extra_info``) with the
    script in ``response`` or ``answer``, or a conversation that ends with the answer.
    """
    row = _object(value)
    prompt = messages_of(row)
    given = next((row[f] for f in _RESPONSE_FIELDS if row.get(f) not in (None, "", [])), None)
    if given is None:
        given = _last_answer(row)
    response = _answer(given, prompt, "response")
    return Demonstration(
        id=_id(row, number), group=_group(row, prompt), prompt=prompt, response=response
    )


def preference(value: Any, number: int) -> Preference:
    """Return the pair of a row: ``{prompt, chosen, rejected, chosen_score?, rejected_score?}``.

    Of the two responses each is a text, the assistant's turn, or the conversation that ends with
    it (WildChecklists). Scores that do not prefer the chosen one are ``no_preference``.
    """
    row = _object(value)
    prompt = messages_of(row)
    chosen, rejected = (_answer(row.get(k), prompt, k) for k in ("chosen", "rejected"))
    if chosen == rejected:
        raise RowError("no_preference", "got the same text as chosen and as rejected")
    better, worse = (_score(row, name) for name in _SCORES)
    if better is not None and worse is not None and better <= worse:
        raise RowError("no_preference", f"got chosen_score {better:g} and rejected_score {worse:g}")
    return Preference(
        id=_id(row, number),
        group=_group(row, prompt),
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
    )


def held_out(examples: Sequence[_E], frac: float, seed: int) -> tuple[list[_E], list[_E]]:
    """Return (training, validation) rows: whole groups, drawn by a hash of seed and group.

    At least one group is held out where ``frac`` is above 0; ValueError where that would leave
    none to train on.
    """
    groups = {e.group for e in examples}
    if frac == 0:
        return list(examples), []
    if len(groups) < 2:
        raise ValueError(
            f"got {len(groups)} group of rows to hold a share of {frac:g} out of, wanted at least 2"
        )
    number = min(max(1, round(frac * len(groups))), len(groups) - 1)
    drawn = set(sorted(groups, key=lambda g: _digest(f"{seed}\n{g}"))[:number])
    return (
        [e for e in examples if e.group not in drawn],
        [e for e in examples if e.group in drawn],
    )


# ------------------------------------------------------------------ parts of a row
def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RowError("not_object", f"got {value!r:.60}, wanted an object")
    return cast("dict[str, Any]", value)


def _id(row: dict[str, Any], number: int) -> str:
    own = next((row[f] for f in ("id", "query_id", "uid") if row.get(f) is not None), None)
    return f"row {number}" if own is None else clean_text(str(own))


def _group(row: dict[str, Any], prompt: Sequence[Message]) -> str:
    """Return RARE's ``stem``, wherever the row has it; else what tells the prompt apart."""
    for place in (row, _decoded(row.get("extra_info")), _decoded(row.get("meta"))):
        stem = place.get("stem")
        if isinstance(stem, str) and stem:
            return stem
    return _digest(json.dumps([[m.role, m.content] for m in prompt]))


def _decoded(value: Any) -> dict[str, Any]:
    """Return a nested object, which may stand there as JSON text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _last_answer(row: dict[str, Any]) -> Any:
    """Return the assistant's turn that ends the row's conversation, if one does."""
    turns: Any = row.get("messages")
    if not isinstance(turns, list) or not turns:
        return None
    last: Any = cast("list[Any]", turns)[-1]
    return [last] if _role(last) == "assistant" else None


def _answer(value: Any, prompt: Sequence[Message], name: str) -> str:
    """Return the response's text; RowError when there is none or it answers another prompt."""
    if isinstance(value, list) and value:
        turns = cast("list[Any]", value)
        if _role(turns[-1]) != "assistant":
            raise RowError(
                "bad_response",
                f"got {name} whose last turn is of the role {_role(turns[-1])!r:.40}, wanted the "
                "assistant's",
            )
        if len(turns) > 1 and _asked(turns) != _asked([m.model_dump() for m in prompt]):
            raise RowError("bad_response", f"got {name} that answers another prompt than the row's")
        value = cast("dict[str, Any]", turns[-1]).get("content")
    if value is None or (isinstance(value, str) and not value.strip()):
        raise RowError("no_response", f"got no {name}")
    if not isinstance(value, str):
        raise RowError("bad_response", f"got {name}={value!r:.60}, wanted text")
    return clean_text(value)


def _asked(turns: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the turns up to the answer; a system message is the prompt's own affair."""
    messages = messages_of({"messages": list(turns)})
    return [(m.role, m.content) for m in messages if m.role != "system"]


def _role(turn: Any) -> str:
    role: Any = cast("dict[str, Any]", turn).get("role") if isinstance(turn, dict) else None
    return role.lower() if isinstance(role, str) else ""


def _score(row: dict[str, Any], name: str) -> float | None:
    value: Any = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise RowError("bad_score", f"got {name}={value!r:.40}, wanted a number (or none)")
    return float(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
