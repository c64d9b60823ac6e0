"""A query's checklist of weighted yes/no questions, after RLCF.

The best of the paper's ways shows the writer the instruction, an expert's response and responses of
several weaker models ("candidate-based"); "direct" shows the instruction alone. The reply thinks
first, then writes the heading ``Key Criteria Questions:``, one ``- question? (weight)`` a line with
weights from 0 to 100, and ``<END>``; ``None`` in place of the list is an empty checklist. As in the
released ``write_requirements.py``, a bullet without a weight at its end is no item. What it does
silently (a reply without any item is an empty checklist) is refused here, so that the writer is
asked again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.errors import WriterReplyError
from core.evolution.origin import stands_in
from core.evolution.prompt_sections import keep_parts
from core.evolution.similarity import is_near_duplicate, normal_text
from core.evolution.strict_object import checked_text
from core.evolution.universal import FULL_IMPORTANCE, UNIVERSAL_IDS, UNIVERSAL_TEXTS
from core.grading.reply_text import without_reasoning
from core.records import Completion
from core.rubric import Criterion
from core.templates import fenced, fill

HEADING = "Key Criteria Questions:"
END = "<END>"

Universal = Literal["one", "two", "none"]

_HEADING = re.compile(r"key criteria questions\s*:?\s*(?:\*\*|__)?\s*:?", re.IGNORECASE)
_BULLET = re.compile(r"(?:^|(?<=\))[ \t])[ \t]*[-*\u2022][ \t]+", re.MULTILINE)
"""At the start of a line, or behind the weight of the item before."""
_NONE = re.compile(r"[-*\u2022]?\s*[*_]{0,2}none[*_]{0,2}\.?", re.IGNORECASE)

_MAX_DIGITS = 9
_MAX_QUESTIONS = 20
"""The prompt asks for one to seven; a reply with many more has gone astray."""

UNIVERSAL_ITEM = Criterion(
    id="universal",
    text=(
        "Does the response meet both of these: (a) it answers what was asked directly, without "
        "padding, needless length or leaving the topic; (b) its tone, style and register suit the "
        "request and the situation that it describes?"
    ),
    weight=FULL_IMPORTANCE,
)
"""RLCF's one item for all checklists, of weight 100, in our words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChecklistRequest:
    """What the writer is asked for one query."""

    prompt: str
    candidates: tuple[str, ...] = ()
    """Responses of weaker models; none for a direct checklist."""
    expert: str | None = None


def checklist_prompt(template: str, request: ChecklistRequest, error: str = "") -> str:
    """Return the prompt of one try; ``error`` is why the last one was refused."""
    values = {"prompt": fenced(request.prompt, "request")}
    if request.expert is not None:
        values["expert"] = fenced(request.expert, "expert_answer")
    if request.candidates:
        values["candidates"] = "\n\n".join(
            fenced(text, f"answer_{i}") for i, text in enumerate(request.candidates, start=1)
        )
    if error:
        values["error"] = fenced(error, "refusal")
    return fill(keep_parts(template, set(values) - {"prompt"}), values)


def read_checklist(reply: Completion, request: ChecklistRequest) -> tuple[Criterion, ...]:
    """Return the questions as criteria, in the writer's order; empty for ``None``.

    WriterReplyError for a reply without a list, a weight over 100, or an item that repeats another
    one or stands word for word in a candidate that writes a checklist itself.
    """
    if reply.finish_reason == "length":
        raise WriterReplyError("the reply was cut at its token limit, wanted a shorter one")
    listed = _listed(reply.text)
    if _NONE.fullmatch(listed.strip()):
        return ()
    items = [item for piece in _BULLET.split(listed) if (item := _item(piece)) is not None]
    if not items:
        raise WriterReplyError(
            f'got no item that ends in its weight, wanted "{HEADING}" and then lines such as '
            '"- Does the answer ...? (100)", or None'
        )
    if len(items) > _MAX_QUESTIONS:
        raise WriterReplyError(f"got {len(items)} questions, wanted from one to seven")
    criteria = tuple(_criterion(i, *item) for i, item in enumerate(items, start=1))
    _check_set(criteria, request)
    return criteria


def with_universal_item(criteria: Sequence[Criterion], universal: Universal) -> list[Criterion]:
    """Return the checklist with RLCF's universal item at its end.

    ``one`` is the released form (one item that holds two demands), ``two`` gives each demand an
    item of weight 100, as CARE's baseline counts them.
    """
    if universal == "one":
        return [*criteria, UNIVERSAL_ITEM]
    if universal == "two":
        pairs = zip(UNIVERSAL_IDS, UNIVERSAL_TEXTS, strict=True)
        return [*criteria, *(Criterion(id=i, text=t, weight=FULL_IMPORTANCE) for i, t in pairs)]
    return list(criteria)


def _listed(text: str) -> str:
    """Return what stands between the last heading and the end mark; all of it without a heading."""
    body = without_reasoning(text, ())
    if body is None:
        raise WriterReplyError("the reasoning never ends, wanted the questions behind it")
    headings = list(_HEADING.finditer(body))
    listed = body[headings[-1].end() :] if headings else body
    return listed.partition(END)[0]


def _item(piece: str) -> tuple[str, int] | None:
    """Return an item's question and weight; None for a piece that does not end in a weight."""
    text = " ".join(piece.split()).rstrip(" .*_")
    question, _, digits = text.removesuffix(")").rpartition("(")
    is_weight = text.endswith(")") and digits.isascii() and digits.isdigit()
    question = question.strip("*_ ")
    return (question, int(digits[:_MAX_DIGITS])) if is_weight and question else None


def _criterion(number: int, question: str, weight: int) -> Criterion:
    where = f"question {number}"
    text = checked_text(question, where)
    if weight > FULL_IMPORTANCE:
        raise WriterReplyError(f"{where}: got the weight {weight}, wanted one from 0 to 100")
    return Criterion(id=f"c{number}", text=text, weight=float(weight))


def _check_set(criteria: Sequence[Criterion], request: ChecklistRequest) -> None:
    for i, criterion in enumerate(criteria):
        if any(is_near_duplicate(criterion.text, other.text) for other in criteria[:i]):
            raise WriterReplyError(f"got {criterion.text[:80]!r} twice, wanted each thing once")
    forging = [c for c in request.candidates if normal_text(HEADING) in normal_text(c)]
    for criterion in criteria:
        if any(stands_in(criterion.text, candidate) for candidate in forging):
            raise WriterReplyError(
                f"got {criterion.text[:80]!r}, which stands word for word in an answer, wanted "
                "questions of your own"
            )
