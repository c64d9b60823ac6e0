"""A query's initial rubric, from what sets its first rollouts apart.

After RARE, appendix A.1: a strong model compares the eight rollouts of the initial policy and makes
criteria of the differences in quality that it observes, without prescribing the content of any of
them; a rubric has three to eight criteria, one of which is the same in every rubric: a fixed check
of content density. The paper gives no prompt and no text of that check; both are ours.

A criterion names rollouts that do better on it and rollouts that do worse, so that none can rest on
what all have alike; of three or more rollouts, not all criteria split them in the same way. Every
refusal is a WriterReplyError whose text goes back to the writer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.errors import WriterReplyError
from core.evolution.origin import stands_in, writes_key
from core.evolution.prompt_sections import keep_parts
from core.evolution.rare_reply import scoring_levels
from core.evolution.similarity import is_near_duplicate
from core.evolution.strict_object import checked_object, checked_text, json_object
from core.grading.prompt import rollout_ids
from core.records import Completion
from core.rubric import Criterion
from core.templates import fenced, fill, json_text

_KEYS = frozenset({"id", "difference", "better", "weaker", "check", "scoring_rule", "max_points"})
_ID = re.compile(r"[a-z][a-z0-9_]{0,59}")
_NAMES_A_ROLLOUT = re.compile(r"(?<![A-Za-z0-9])R\d{1,2}(?![A-Za-z0-9])")

DENSITY = Criterion(
    id="content_density",
    text=(
        "How dense the content is: every part adds something of its own (an event, a fact, a step, "
        "a reason, an image), and nothing is padding, repetition or announcement."
    ),
    max=2,
    levels={
        0: "large parts could be cut without loss, or so little is worked out that only a sketch "
        "is there",
        1: "worked out as a whole, but some passages repeat, announce or fill",
        2: "every passage adds something, and what matters most has the most room",
    },
)
"""The check that stands in every rubric, in our words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastRequest:
    """What the writer is asked for one query."""

    prompt: str
    responses: tuple[str, ...]
    """What the policy answered, as it is judged."""
    min_criteria: int = 3
    max_criteria: int = 8
    """Both with the fixed check."""
    max_points: int = 2
    """Highest maximum of a criterion."""
    density: Criterion | None = DENSITY
    """The fixed check; None leaves it out."""

    @property
    def num_fixed(self) -> int:
        """How many criteria are there before the writer is asked."""
        return int(self.density is not None)


def different(responses: Sequence[str]) -> tuple[str, ...]:
    """Return the responses with text, each once, in order: fewer than two give no contrast."""
    return tuple(dict.fromkeys(r for r in responses if r.strip()))


def contrast_prompt(template: str, request: ContrastRequest, error: str = "") -> str:
    """Return the prompt of one try; ``error`` is why the last one was refused."""
    names = rollout_ids(len(request.responses))
    sections = [fenced(text, name) for name, text in zip(names, request.responses, strict=True)]
    values = {
        "num_responses": str(len(names)),
        "last_response": names[-1],
        "prompt": fenced(request.prompt, "request"),
        "responses": "\n\n".join(sections),
        "min_criteria": str(max(1, request.min_criteria - request.num_fixed)),
        "max_criteria": str(request.max_criteria - request.num_fixed),
        "max_points": str(request.max_points),
    }
    parts: set[str] = set()
    if request.density is not None:
        parts.add("density")
        values["density"] = fenced(json_text(request.density.text), "criterion")
    if error:
        parts.add("error")
        values["error"] = fenced(error, "refusal")
    return fill(keep_parts(template, parts), values)


def read_contrast(reply: Completion, request: ContrastRequest) -> tuple[Criterion, ...]:
    """Return the rubric's criteria, the fixed one last; WriterReplyError says what is wrong."""
    fields = checked_object(
        json_object(reply.text, reply.finish_reason), frozenset({"criteria"}), "the reply"
    )
    entries = fields["criteria"]
    if not isinstance(entries, list):
        raise WriterReplyError("criteria: wanted a list")
    items = cast("list[Any]", entries)
    _check_number(len(items), request)
    read = [_criterion(item, f"criteria[{i}]", request) for i, item in enumerate(items)]
    criteria = tuple(c for c, _ in read)
    _check_splits([split for _, split in read], request)
    fixed = () if request.density is None else (request.density,)
    check_distinct((*criteria, *fixed))
    _check_origin(criteria, request)
    return (*criteria, *fixed)


def criterion_of(entry: Mapping[str, Any], where: str, max_points: int) -> Criterion:
    """Return the criterion of an object with ``id``, ``check``, ``scoring_rule``, ``max_points``.

    The maximum is a whole number from 1 to ``max_points``, and the rule defines every level.
    """
    name, points = entry["id"], entry["max_points"]
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise WriterReplyError(
            f"{where}.id: got {name!r:.60}, wanted lower case letters, digits and underscores"
        )
    if type(points) is not int or not 1 <= points <= max_points:
        raise WriterReplyError(
            f"{where}.max_points: got {points!r:.40}, wanted a whole number from 1 to {max_points}"
        )
    rule = checked_text(entry["scoring_rule"], f"{where}.scoring_rule")
    return Criterion(
        id=name,
        text=checked_text(entry["check"], f"{where}.check"),
        max=points,
        levels=scoring_levels(rule, points, f"{where}.scoring_rule"),
    )


def check_distinct(criteria: Sequence[Criterion]) -> None:
    """Refuse two criteria of one id, and two that ask for the same in almost the same words."""
    for i, criterion in enumerate(criteria):
        for other in criteria[:i]:
            if criterion.id == other.id:
                raise WriterReplyError(f"got the id {criterion.id!r} twice, wanted each once")
            if is_near_duplicate(criterion.text, other.text):
                raise WriterReplyError(
                    f"got {other.id!r} and {criterion.id!r} with the same check, wanted checks "
                    "that need different evidence"
                )


# ---------------------------------------------------------------- one criterion
_Split = tuple[frozenset[int], frozenset[int]]
"""Places of the better and of the weaker rollouts."""


def _criterion(value: Any, where: str, request: ContrastRequest) -> tuple[Criterion, _Split]:
    entry = checked_object(value, _KEYS, where)
    checked_text(entry["difference"], f"{where}.difference")
    criterion = criterion_of(entry, where, request.max_points)
    levels = criterion.levels or {}
    if any(_NAMES_A_ROLLOUT.search(text) for text in (criterion.text, *levels.values())):
        raise WriterReplyError(
            f"{where}: got a check or level that names an answer (R0, R1, ...), wanted one that "
            "fits any answer"
        )
    num_responses = len(request.responses)
    better = _rollouts(entry["better"], f"{where}.better", num_responses)
    weaker = _rollouts(entry["weaker"], f"{where}.weaker", num_responses)
    both = sorted(better & weaker)
    if both:
        raise WriterReplyError(f"{where}: got R{both[0]} as better and as weaker, wanted one")
    return criterion, (better, weaker)


def _rollouts(value: Any, where: str, num_responses: int) -> frozenset[int]:
    ids = {name: i for i, name in enumerate(rollout_ids(num_responses))}
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    if not items or any(not isinstance(i, str) or i not in ids for i in items):
        raise WriterReplyError(
            f"{where}: got {value!r:.80}, wanted at least one of R0..R{num_responses - 1}"
        )
    return frozenset(ids[i] for i in items)


# ---------------------------------------------------------------- the whole set
def _check_number(num_written: int, request: ContrastRequest) -> None:
    low = max(1, request.min_criteria - request.num_fixed)
    high = request.max_criteria - request.num_fixed
    if not low <= num_written <= high:
        raise WriterReplyError(f"got {num_written} criteria, wanted from {low} to {high}")


def _check_splits(splits: Sequence[_Split], request: ContrastRequest) -> None:
    """Criteria that all split the rollouts alike tell no more than one of them would."""
    if len(request.responses) > 2 and len(splits) > 1 and len(set(splits)) == 1:
        raise WriterReplyError(
            f"got the same better and weaker answers for all {len(splits)} criteria, wanted "
            "criteria that do not all split the answers in the same way"
        )


def _check_origin(criteria: Sequence[Criterion], request: ContrastRequest) -> None:
    """A response that writes criteria of its own is no source of checks: its text is data."""
    forging = [r for r in request.responses if writes_key(r, ("criteria",))]
    for criterion in criteria:
        if any(stands_in(criterion.text, response) for response in forging):
            raise WriterReplyError(
                f"got a check of {criterion.id!r} that stands word for word in an answer, wanted "
                "one in your own words"
            )
