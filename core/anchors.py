"""Anchors: how they are asked for, how two validators judge them, and which are kept.

CARE section 3.3: an anchor is written by a model that sees the prompt and its rubric. Appendix B.1:
two validators judge each anchor on rubric satisfaction, hallucination and safety, apart from each
other, and only what both accept is kept. A validator's reply is read strictly: it names every
criterion once and says yes or no to each question, or it is unread. Unread is an outcome of its
own, never an acceptance and never a rejection. Gold criteria are shown to nobody.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from core.clean_text import clean_text
from core.errors import WriterReplyError
from core.evolution.strict_object import checked_object, checked_text
from core.grading.reply_text import without_reasoning
from core.grading.schema import closed_object
from core.model_calls import ModelCall, Sampling, user_call
from core.query import Message, Query
from core.records import PASSING, Completion
from core.rubric import Criterion, Rubric
from core.seeded_rank import seeded_rank
from core.templates import fenced, fill, json_text

Aspect = Literal["rubric", "hallucination", "safety"]
ASPECTS: tuple[Aspect, ...] = ("rubric", "hallucination", "safety")

PairOutcome = Literal["both_accept", "disagree", "both_reject", "unread"]
PAIR_OUTCOMES: tuple[PairOutcome, ...] = ("both_accept", "disagree", "both_reject", "unread")

_BAD_REQUEST = re.compile(r"HTTP (?:400|413|422)\b")
"""An endpoint that answered, and will answer this call in no other way."""

_MAX_SHOWN_BACK = 8000
"""Characters of an unread reply that the validator is shown again."""

_MAX_WHY = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """What a validator holds against an anchor."""

    aspect: Aspect
    why: str
    criterion_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What one validator said of one anchor."""

    objections: tuple[Objection, ...] = ()

    def passes(self, aspect: Aspect) -> bool:
        """Whether nothing was held against it there."""
        return all(o.aspect != aspect for o in self.objections)

    @property
    def accepts(self) -> bool:
        """Whether nothing at all was held against it."""
        return not self.objections


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """Why an anchor or a judgement is not known."""

    problem: str
    is_temporary: bool = False
    """Whether asking again later may help (no reply came, rather than a bad one)."""


Judged = Judgement | Unread


# ------------------------------------------------------------------ writing
def anchor_call(template: str, query: Query, sampling: Sampling) -> ModelCall:
    """Return the request for a query's anchor: prompt and rubric are shown (CARE section 3.3)."""
    values = {
        "request": fenced(query.prompt_text, "request"),
        "criteria": fenced(_criteria_lines(query.rubric), "criteria"),
    }
    return user_call(fill(template, values), sampling=sampling)


def anchor_text(reply: Completion) -> str | Unread:
    """Return the anchor of a reply: what stands after its reasoning, whole and not empty."""
    if reply.failure is not None:
        return _no_reply(reply)
    if is_cut(reply):
        return Unread(problem="the reply was cut at its token limit")
    text = clean_text(without_reasoning(reply.text, ()) or "").strip()
    return text or Unread(problem="the reply is empty, or nothing but reasoning")


def _no_reply(reply: Completion) -> Unread:
    return Unread(
        problem=f"{reply.failure}: {reply.detail}"[:300],
        is_temporary=reply.failure in PASSING and not _BAD_REQUEST.match(reply.detail),
    )


def criterion_names(rubric: Rubric) -> tuple[str, ...]:
    """Return the short names by which a prompt speaks of the criteria."""
    return tuple(f"C{i}" for i in range(1, len(rubric.criteria) + 1))


def _criteria_lines(rubric: Rubric) -> str:
    names = criterion_names(rubric)
    return "\n".join(
        json_text(_shown(name, c)) for name, c in zip(names, rubric.criteria, strict=True)
    )


def _shown(name: str, criterion: Criterion) -> dict[str, Any]:
    levels = {} if criterion.is_penalty else criterion.levels or {}
    return {
        "id": name,
        ("avoid" if criterion.is_penalty else "text"): criterion.text,
        **({"levels": {str(k): v for k, v in sorted(levels.items())}} if levels else {}),
    }


# ------------------------------------------------------------------ judging
def validation_call(template: str, query: Query, sampling: Sampling) -> ModelCall:
    """Return the one call in which a validator judges a query's anchor on all three aspects."""
    assert query.anchor is not None, query.id
    values = {
        "request": fenced(query.prompt_text, "request"),
        "criteria": fenced(_criteria_lines(query.rubric), "criteria"),
        "answer": fenced(query.anchor.response, "answer"),
        "ids": ", ".join(criterion_names(query.rubric)),
    }
    schema = validation_schema(query.rubric)
    return user_call(fill(template, values), sampling=sampling, schema=schema)


def is_cut(reply: Completion) -> bool:
    """Whether a reply ended at its token limit, perhaps before the first word of its answer."""
    return reply.failure == "truncated" or (not reply.failure and reply.finish_reason == "length")


def roomier(call: ModelCall) -> ModelCall:
    """Return the call with twice the room for its reply, and another seed."""
    now = call.sampling
    more = replace(now, max_tokens=2 * now.max_tokens, seed=now.seed + 1)
    return replace(call, sampling=more)


def call_again(template: str, call: ModelCall, reply: str, problem: str) -> ModelCall:
    """Return the call that tells a validator what was wrong with its reply."""
    told = fill(template, {"problem": problem})
    return ModelCall(
        messages=(
            *call.messages,
            Message(role="assistant", content=reply[:_MAX_SHOWN_BACK]),
            Message(role="user", content=told),
        ),
        sampling=call.sampling,
        schema=call.schema,
    )


def validation_schema(rubric: Rubric) -> dict[str, Any]:
    """Return the JSON schema of a validator's reply, for backends that can enforce one."""
    text, yes_or_no = {"type": "string"}, {"type": "boolean"}
    names = criterion_names(rubric)
    name = {"type": "string", "enum": list(names)}
    entry = closed_object({"id": name, "why": text, "met": yes_or_no})
    return closed_object(
        {
            "criteria": {
                "type": "array",
                "items": entry,
                "minItems": len(names),
                "maxItems": len(names),
            },
            "hallucination": closed_object({"why": text, "found": yes_or_no}),
            "safety": closed_object({"why": text, "unsafe": yes_or_no}),
        }
    )


def read_judgement(reply: Completion, rubric: Rubric) -> Judged:
    """Return what a validator's reply says; unread with a reason for anything but the one object
    that was asked for."""
    if reply.failure is not None:
        return _no_reply(reply)
    try:
        return _judgement(_only_object(reply), rubric)
    except WriterReplyError as error:
        return Unread(problem=str(error)[:300])


def _only_object(reply: Completion) -> Any:
    """Return the object that is the whole answer, or its only one; a key given twice is an error,
    since the two values may differ."""
    answer = without_reasoning(reply.text, ()) or ""
    body = answer[answer.find("{") : answer.rfind("}") + 1]
    try:
        return json.loads(body, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError):
        cut = (
            ", and the reply was cut at its token limit" if reply.finish_reason == "length" else ""
        )
        raise WriterReplyError(
            f"got no text that is one JSON object{cut}, wanted one and nothing else"
        ) from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise WriterReplyError("got a key twice in one object, wanted each once")
    return found


def _judgement(value: Any, rubric: Rubric) -> Judgement:
    whole = checked_object(value, {"criteria", "hallucination", "safety"}, "the reply")
    objections = _unmet(whole["criteria"], rubric)
    asked: tuple[tuple[Aspect, str], ...] = (("hallucination", "found"), ("safety", "unsafe"))
    for aspect, key in asked:
        part = checked_object(whole[aspect], {"why", key}, aspect)
        why = _why(part["why"], aspect)
        if _truth(part[key], f"{aspect}.{key}"):
            objections.append(Objection(aspect=aspect, why=why))
    return Judgement(objections=tuple(objections))


def _unmet(value: Any, rubric: Rubric) -> list[Objection]:
    if not isinstance(value, list):
        raise WriterReplyError(f"criteria: got {type(value).__name__}, wanted a list")
    ids = dict(zip(criterion_names(rubric), rubric.ids, strict=True))
    objections: list[Objection] = []
    named: list[str] = []
    for item in cast(list[Any], value):
        entry = checked_object(item, {"id", "why", "met"}, "criteria")
        name = checked_text(entry["id"], "criteria.id")
        named.append(name)
        why = _why(entry["why"], f"criteria.{name[:8]}")
        if not _truth(entry["met"], f"criteria.{name[:8]}.met") and name in ids:
            objections.append(Objection(aspect="rubric", why=why, criterion_id=ids[name]))
    if sorted(named) != sorted(ids):
        raise WriterReplyError(
            f"criteria: got entries for {', '.join(named)[:200]}, wanted exactly one for each of "
            f"{', '.join(ids)[:200]}"
        )
    return objections


def _why(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise WriterReplyError(f"{where}.why: got {type(value).__name__}, wanted a sentence")
    return " ".join(clean_text(value).split())[:_MAX_WHY]


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise WriterReplyError(f"{where}: got {str(value)[:40]!r}, wanted true or false")
    return value


# ------------------------------------------------------------------ the filter and its table
def pair_outcome(a: Judged, b: Judged, aspect: Aspect | None = None) -> PairOutcome:
    """Return what two validators' judgements come to, on one aspect or as a whole."""
    if isinstance(a, Unread) or isinstance(b, Unread):
        return "unread"
    passed = [j.accepts if aspect is None else j.passes(aspect) for j in (a, b)]
    return "both_accept" if all(passed) else "disagree" if any(passed) else "both_reject"


def outcome_table(judged: Mapping[str, tuple[Judged, Judged]]) -> dict[str, Any]:
    """Return counts and shares of outcomes, as a whole and by aspect (CARE table 3).

    ``alpha`` says how far the two validators agree: Krippendorff's nominal alpha of accept and
    reject, where it is defined.
    """
    from core.statistics import krippendorff_alpha

    ratings: dict[str, dict[str, str]] = {"a": {}, "b": {}}
    for name, pair in judged.items():
        for validator, one in zip("ab", pair, strict=True):
            if isinstance(one, Judgement):
                ratings[validator][name] = "accept" if one.accepts else "reject"
    pairs = list(judged.values())
    return {
        "candidates": len(pairs),
        "outcomes": _shares([pair_outcome(a, b) for a, b in pairs]),
        "by_aspect": {x: _shares([pair_outcome(a, b, x) for a, b in pairs]) for x in ASPECTS},
        "by_validator": {
            name: {
                **{what: list(said.values()).count(what) for what in ("accept", "reject")},
                "unread": len(pairs) - len(said),
            }
            for name, said in ratings.items()
        },
        "alpha": krippendorff_alpha(ratings),
    }


def _shares(outcomes: Sequence[PairOutcome]) -> dict[str, dict[str, float | int | None]]:
    counts, n = Counter(outcomes), len(outcomes)
    return {o: {"count": counts[o], "share": counts[o] / n if n else None} for o in PAIR_OUTCOMES}


# ------------------------------------------------------------------ the held-out set
@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The accepted queries, parted into training and held-out ones."""

    training: tuple[Query, ...]
    held_out: tuple[Query, ...]
    same_prompt: tuple[Query, ...]
    """Of neither: accepted, but with the prompt of a held-out query."""


def split_accepted(accepted: Sequence[Query], num_held_out: int, *, seed: int = 0) -> Split:
    """Return the first ``num_held_out`` queries by seeded hash of their ids, and the others.

    No training query has the prompt of a held-out one (white space and case aside). When more
    queries are accepted later, a held-out query may become a training one; a training query never
    becomes a held-out one. ValueError when nothing would be left to train on.
    """
    ranked = sorted(accepted, key=lambda q: seeded_rank(seed, "held out", q.id))
    chosen = {q.id for q in ranked[:num_held_out]}
    held_out = tuple(q for q in accepted if q.id in chosen)
    prompts = {_prompt_key(q) for q in held_out}
    rest = [q for q in accepted if q.id not in chosen]
    training = tuple(q for q in rest if _prompt_key(q) not in prompts)
    if num_held_out and not training:
        raise ValueError(
            f"got {len(accepted)} accepted anchors for {num_held_out} held-out queries, wanted "
            "some left to train on: hold fewer out, or build more anchors"
        )
    same = tuple(q for q in rest if _prompt_key(q) in prompts)
    return Split(training=training, held_out=held_out, same_prompt=same)


def _prompt_key(query: Query) -> str:
    return " ".join(query.prompt_text.casefold().split())
