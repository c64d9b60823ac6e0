"""What an accepted edit must also pass before it is committed: gates beyond the papers.

Pure: texts, rules and scores in, an answer out; who asks the judge is ``drivers/methods``.
``near_duplicate`` and ``contrary`` hold a new criterion against those that stay, ``discriminates``
holds its scores against the group, ``without_refused`` takes refused replacements out again, and
``retired`` names what goes when a rubric grows over its cap.
Texts are compared by their content words, and polarity is read in English: a gate that cannot judge
a text lets it pass. Criteria that code decides are compared by their rules.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from core.evolution.rare import Replaced
from core.evolution.rule_limits import excludes
from core.evolution.similarity import content_words, fixed_words, normal_text
from core.records import Evolution, GradedGroup, GradedRollout, Verdict
from core.rubric import Criterion, Rubric
from core.rules.phrases import canonical
from core.rules.registry import check_rule
from core.rules.verifiers import rule_of

_NEGATIVE_WORDS = (
    "not no never none nor neither cannot without avoid avoiding avoided exclude excluding "
    "excluded omit omitting omitted refrain refraining lack lacking absent absence"
)
_NEGATIVE = frozenset(_NEGATIVE_WORDS.split())
"""Words that turn a statement round."""
_NEUTRAL_WORDS = (
    "include including included contain containing contained use using used mention mentioning "
    "mentioned feature featuring having give giving given present presence provide providing "
    "provided ca wo can least one some shall will"
)
_NEUTRAL = frozenset(_NEUTRAL_WORDS.split())
"""Words that the two polarities of one statement need not share."""
_CONTRACTED = re.compile(r"n['\u2019]t\b", re.IGNORECASE)
_FREE_OF = re.compile(r"\bfree (?:of|from)\b", re.IGNORECASE)


def near_duplicate(
    new: Criterion, others: Sequence[Criterion], similarity: float
) -> Criterion | None:
    """Return the first of ``others`` that asks for the same as ``new``.

    The same text or the same rule; for texts without a rule, a share of common content words of at
    least ``similarity`` with the same numbers and negations.
    """
    return next((c for c in others if _asks_the_same(new, c, similarity)), None)


def contrary(new: Criterion, others: Sequence[Criterion]) -> Criterion | None:
    """Return the first of ``others`` that no response can satisfy together with ``new``.

    The same statement with the other polarity (a penalty wants the opposite of its text), or rules
    whose limits exclude each other.
    """
    return next((c for c in others if _wants_the_opposite(new, c)), None)


def discriminates(verdicts: Sequence[Verdict], top: int) -> bool:
    """Return whether a criterion tells two rollouts apart or is failed by the one at place ``top``.

    ``verdicts`` are those on the graded rollouts. One without a score says nothing; to fail is not
    to have the full score.
    """
    scores = {v.score for v in verdicts if v.score is not None}
    is_failed = verdicts[top].score is not None and not verdicts[top].is_full
    return len(scores) >= 2 or is_failed


def retired(
    rubric: Rubric, rollouts: Sequence[GradedRollout], max_active: int, keep: Collection[str]
) -> tuple[str, ...]:
    """Return the ids of the least telling [llm] criteria beyond the cap, first to go first.

    Lowest deviation of the scores over the group first, ties in rubric order (oldest first);
    criteria without any score were never measured and go last. Never a [Resist], one in ``keep``,
    one that carries a reward cap, or the last [llm] criterion of positive weight.
    """
    num_beyond = len(rubric.criteria) - max_active
    if num_beyond <= 0:
        return ()
    capped = {cap.criterion_id for cap in rubric.caps}
    free = [
        (_deviation(c, rollouts), place, c)
        for place, c in enumerate(rubric.criteria)
        if not c.is_resist and c.id not in keep and c.id not in capped
    ]
    num_positive = sum(c.weight > 0 and not c.is_resist for c in rubric.criteria)
    gone: list[str] = []
    for _, _, criterion in sorted(free, key=lambda item: item[:2]):
        if len(gone) == num_beyond:
            break
        if criterion.weight > 0:
            if num_positive == 1:
                continue
            num_positive -= 1
        gone.append(criterion.id)
    return tuple(gone)


def score_deviation(criterion_id: str, rollouts: Sequence[GradedRollout]) -> float | None:
    """Return the population deviation of a criterion's scores as shares of its maximum; None when
    no rollout has one."""
    shares = [
        v.score / v.max
        for r in rollouts
        if (v := r.verdicts.get(criterion_id)) is not None and v.score is not None
    ]
    if not shares:
        return None
    mean = sum(shares) / len(shares)
    return (sum((s - mean) ** 2 for s in shares) / len(shares)) ** 0.5


def _deviation(criterion: Criterion, rollouts: Sequence[GradedRollout]) -> float:
    found = score_deviation(criterion.id, rollouts)
    return float("inf") if found is None else round(found, 9)


def without_refused(group: GradedGroup, replaced: Replaced, reasons: Mapping[str, str]) -> Replaced:
    """Return RARE's replacements without the refused ones; ``reasons`` by criterion id.

    A refused one is recorded, and its criterion keeps text and scores. When none is left the group
    and its rubric version stay as they are.
    """
    if not reasons:
        return replaced
    edits = tuple(
        replace(e, status="refused", reason=reasons[e.new.id])
        if e.new is not None and e.new.id in reasons
        else e
        for e in replaced.evolution.edits
    )
    num_restored = replaced.evolution.num_restored
    if not any(e.status == "accepted" for e in edits):
        unchanged = Evolution(rubric=group.rubric, edits=edits, num_restored=num_restored)
        return Replaced(group=group, evolution=unchanged)
    new = replaced.evolution.rubric
    rubric = group.rubric.with_criteria(
        c if c.id in reasons else new.criterion(c.id) for c in group.rubric.criteria
    )
    rollouts = tuple(
        replace(now, verdicts={i: (was if i in reasons else now).verdicts[i] for i in rubric.ids})
        for was, now in zip(group.rollouts, replaced.group.rollouts, strict=True)
    )
    return Replaced(
        group=replace(group, rubric=rubric, rollouts=rollouts),
        evolution=Evolution(rubric=rubric, edits=edits, num_restored=num_restored),
    )


# ------------------------------------------------------------------ same and opposite
def _asks_the_same(new: Criterion, other: Criterion, similarity: float) -> bool:
    if normal_text(new.text) == normal_text(other.text):
        return True
    first, second = _rule_key(new), _rule_key(other)
    if first is not None and second is not None:
        return first == second
    statement = _statement(new.text)
    if statement and statement == _statement(other.text) and _is_wanted(new) == _is_wanted(other):
        return True
    a, b = content_words(new.text), content_words(other.text)
    is_alike = bool(a and b) and len(a & b) / len(a | b) >= similarity - 1e-9
    return is_alike and fixed_words(a) == fixed_words(b)


def _rule_key(criterion: Criterion) -> str | None:
    """The rule that decides a criterion, in one form; None where no valid one does."""
    rule = rule_of(criterion)
    if rule is None or check_rule(rule, criterion.max) is not None:
        return None
    return canonical(rule).model_dump_json()


def _wants_the_opposite(new: Criterion, other: Criterion) -> bool:
    first, second = _rule_key(new), _rule_key(other)
    if first is not None and second is not None:
        if first == second:
            return (new.weight < 0) != (other.weight < 0)
        return excludes(new, other)
    statement = _statement(new.text)
    is_same = bool(statement) and statement == _statement(other.text)
    return is_same and _is_wanted(new) != _is_wanted(other)


def _statement(text: str) -> frozenset[str]:
    """What a text is about, whichever way it wants it."""
    return _spelled_out(text) - _NEGATIVE - _NEUTRAL


def _is_wanted(criterion: Criterion) -> bool:
    """Whether what the text is about should be there."""
    has_negation = not _NEGATIVE.isdisjoint(_spelled_out(criterion.text))
    return has_negation == (criterion.weight < 0)


def _spelled_out(text: str) -> frozenset[str]:
    return content_words(_FREE_OF.sub("without", _CONTRACTED.sub(" not", text)))
