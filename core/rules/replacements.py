"""The rule-based rubric writer for RARE: new checks in place of saturated ones, pure.

``write_replacements`` answers with the JSON of RARE's sample-level rewriting: exactly
``num_updates`` of the saturated ids in their order, id and maximum kept. Each new check is a
canonical sentence that code can judge, and the one that tells the group's rollouts apart best among
the rules that no criterion uses yet. Negative checks hold when a flaw is absent, positive ones when
a quality is there. When nothing tells the rollouts apart, the diagnosis says so.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Literal

from core.evolution.similarity import compact_text
from core.rubric import Criterion, Rule
from core.rules.contrast import asked_words, listed_words, plain_line, quote_of
from core.rules.phrases import text_from_rule
from core.rules.registry import RULES, measure
from core.rules.spec import Case, Direction
from core.rules.verifiers import rule_of
from core.rules.words import Text
from core.writer_requests import ReplacementRequest

Polarity = Literal["negative", "positive"]

_MIN_SPREAD = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A check that could come in."""

    polarity: Polarity
    rule: Rule

    @property
    def text(self) -> str:
        """Its canonical sentence."""
        return text_from_rule(self.rule)


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """A candidate with its scores on the group."""

    candidate: Candidate
    scores: tuple[int, ...]
    """[G]"""
    direction: Direction
    max: int

    @cached_property
    def spread(self) -> float:
        """Variance of the scores as shares of the maximum."""
        shares = [s / self.max for s in self.scores]
        mean = sum(shares) / len(shares) if shares else 0.0
        return sum((s - mean) ** 2 for s in shares) / len(shares) if shares else 0.0


def write_replacements(request: ReplacementRequest) -> str:
    """Return the raw JSON reply on one saturated group."""
    criteria = request.rubric.criteria
    saturated = [
        c for i in request.saturated_ids for c in criteria if c.id == i and not c.is_resist
    ]
    words = asked_words(request.prompt) or listed_words(criteria)
    candidates = [*_candidates(words)]
    prompt = Text(request.prompt)
    cases = [Case(response=Text(r), prompt=prompt, max=1) for r in request.responses]
    used_names = {rule.name for c in criteria if (rule := rule_of(c)) is not None}
    used_texts = {compact_text(c.text) for c in criteria}
    updates: list[dict[str, object]] = []
    polarities: list[Polarity] = []
    for old in saturated[: request.num_updates]:
        wanted = _wanted_polarities(request, polarities)
        free = [
            c
            for c in candidates
            if c.polarity in wanted
            and c.rule.name not in used_names
            and compact_text(c.text) not in used_texts
        ]
        best = _best(free, cases, old.max)
        if best is None:
            rest = _length_checks(request.responses, wanted)
            unused = next(c for c in rest if compact_text(c.text) not in used_texts)
            best = _scored(unused, cases, old.max)
        used_names.add(best.candidate.rule.name)
        used_texts.add(compact_text(best.candidate.text))
        polarities.append(best.candidate.polarity)
        updates.append(_update(old, best, cases, request.responses))
    return json.dumps({"updates": updates}, indent=1)


def _wanted_polarities(request: ReplacementRequest, so_far: Sequence[Polarity]) -> set[Polarity]:
    """Mixed leaves the choice, but the last of several updates brings in what is missing."""
    if request.polarity != "mixed":
        return {request.polarity}
    is_last = len(so_far) == request.num_updates - 1
    if so_far and is_last and len(set(so_far)) == 1:
        return {"positive" if so_far[0] == "negative" else "negative"}
    return {"negative", "positive"}


def _best(free: Sequence[Candidate], cases: Sequence[Case], max_score: int) -> _Scored | None:
    """Return the candidate of largest spread; ties go to the order of the list.

    Where no graded rule is left, or none tells the rollouts apart, an all-or-nothing one serves.
    """
    scored = [_scored(c, cases, max_score) for c in free]
    graded = [
        s for s in scored if max_score == 1 or not RULES[s.candidate.rule.name].is_all_or_nothing
    ]
    for pool in (graded, scored):
        best = max(pool, key=lambda s: round(s.spread, 9), default=None)
        if best is not None and best.spread > _MIN_SPREAD:
            return best
    return next(iter(graded or scored), None)


def _scored(candidate: Candidate, cases: Sequence[Case], max_score: int) -> _Scored:
    found = [measure(candidate.rule, c) for c in cases]
    return _Scored(
        candidate=candidate,
        scores=tuple(m.score(max_score) for m in found),
        direction=found[0].direction if found else "at_least",
        max=max_score,
    )


# ------------------------------------------------------------------ what could come in
def _negative(name: str, **args: int | float) -> Candidate:
    return Candidate(polarity="negative", rule=Rule(name=name, args={**args}))


def _positive(name: str, **args: int | float) -> Candidate:
    return Candidate(polarity="positive", rule=Rule(name=name, args={**args}))


def _candidates(words: tuple[str, ...]) -> Iterator[Candidate]:
    """Yield checks in order of preference, each with its usual limits, the strict ones last.

    No limit is stricter than what careful prose keeps, whatever would split the group better.
    """
    for limit in (0.3, 0.2, 0.15, 0.1, 0.05):
        yield _negative("no_repeated_ngrams", n=3, max_frac=limit)
    for limit in (0.2, 0.15, 0.12, 0.1, 0.08):
        yield _negative("max_word_share", share=limit, min_len=3)
    for most in (60, 40, 30, 25):
        yield _negative("sentence_length", max_words=most)
    yield _negative("ends_sentence")
    for limit in (0.5, 0.3, 0.2, 0.1, 0.05):
        yield _negative("no_prompt_copy", n=4, max_frac=limit)
    yield _negative("no_placeholder")
    yield _negative("no_self_praise")
    for limit in (0.5, 0.3):
        yield _negative("max_list_lines", max_frac=limit)
    if words:
        listed = list(words)
        for limit in (0.4, 0.3, 0.25, 0.2):
            yield Candidate(
                polarity="negative",
                rule=Rule(name="max_list_share", args={"words": [*listed], "share": limit}),
            )
        for least in range(1, len(listed) + 1):
            rule = Rule(name="contains_any", args={"words": [*listed], "at_least": least})
            yield Candidate(polarity="positive", rule=rule)
        for context in (3, 4, 6):
            rule = Rule(name="keyword_in_sentences", args={"words": [*listed], "context": context})
            yield Candidate(polarity="positive", rule=rule)
    for least in (1, 2, 3, 4, 5, 6):
        yield _positive("min_sentences", n=least)
    for limit in (0.5, 0.6, 0.65, 0.7):
        yield _positive("distinct_words", min_frac=limit)
    for limit in (0.2, 0.25, 0.3, 0.35):
        yield _positive("connected_prose", min_frac=limit)


REPLACEMENT_RULES = frozenset(c.rule.name for c in _candidates(("word",))) | {
    "max_words",
    "min_words",
}
"""Names of the rules that a replacement can use."""


def _length_checks(responses: Sequence[str], wanted: set[Polarity]) -> Iterator[Candidate]:
    """Yield length checks without end: what is left when every rule is in use."""
    longest = max((len(Text(r).words) for r in responses), default=0)
    for i in count(1):
        if "negative" in wanted:
            yield _negative("max_words", n=longest + 5 * i)
        if "positive" in wanted:
            yield _positive("min_words", n=i)


# ------------------------------------------------------------------ the reply
def _update(
    old: Criterion, best: _Scored, cases: Sequence[Case], responses: Sequence[str]
) -> dict[str, object]:
    top, low = (max(best.scores), min(best.scores)) if best.scores else (0, 0)
    is_apart = top > low
    stronger = [i for i, s in enumerate(best.scores) if s == top] if is_apart else []
    weaker = [i for i, s in enumerate(best.scores) if s == low] if is_apart else []
    return {
        "id": old.id,
        "polarity": best.candidate.polarity,
        "diagnosis": {
            "difference": _difference(best, cases, responses, stronger, weaker),
            "best_rollout_ids": [f"R{i}" for i in stronger],
            "weaker_rollout_ids": [f"R{i}" for i in weaker],
            "learning_direction": f"Toward responses of which this is true: {best.candidate.text}",
            "nonredundancy": "No criterion of the rubric says the same.",
        },
        "rubric": {
            "id": old.id,
            "check": best.candidate.text,
            "max_points": old.max,
            "scoring_rule": scoring_rule(old.max, best.direction),
        },
    }


def _difference(
    best: _Scored,
    cases: Sequence[Case],
    responses: Sequence[str],
    stronger: Sequence[int],
    weaker: Sequence[int],
) -> str:
    if not stronger or not weaker:
        return "No rule that is left tells these rollouts apart; this one asks for something new."
    sides: list[str] = []
    for name, ids in (("best", stronger), ("weaker", weaker)):
        found = measure(best.candidate.rule, cases[ids[0]])
        quote = quote_of(responses[ids[0]])
        shown = f', "{quote}"' if quote else ""
        sides.append(f"R{ids[0]} ({name}{shown}): {plain_line(found.reason)}")
    return "; ".join(sides)


def scoring_rule(max_score: int, direction: Direction) -> str:
    """Return what each level means, from the top down, as the rules' one scale gives it."""
    levels = [f"{max_score} = the check holds"]
    for k in range(max_score - 1, 0, -1):
        if direction == "at_least":
            share = f"at least {k / max_score:.0%} of what is asked is there"
        else:
            share = f"the limit is exceeded by no more than a factor of {max_score / k:.2f}"
        levels.append(f"{k} = {share}")
    return "; ".join([*levels, "0 = anything else"])
