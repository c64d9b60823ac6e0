"""People who compare pairs of responses: which pairs, who sees which in what order, who said what.

The design is that of RARE appendix A.3.1: in each type a seeded hash ranking chooses 20 distinct
sources and one query of each; five raters judge 36 pairs each, twelve of every type, so that each
pair has three independent votes; in each rater's twelve pairs of a type side ``a`` stands first six
times. Nothing depends on scores or on the order of the candidates, and the same seed gives the same
design. A vote that is not there is missing and counted; it is never a tie.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.seeded_rank import seeded_rank
from core.statistics import Interval, bootstrap_interval, krippendorff_alpha, preference_score

Side = Literal["a", "b"]
Vote = Literal["a", "b", "tie"]
Outcome = Literal["a", "b", "tie", "unresolved", "incomplete"]
"""``unresolved``: all votes are there without a majority; ``incomplete``: votes that are missing
could still decide it."""

PAIRS_PER_TYPE = 20
NUM_RATERS = 5
VOTES_PER_PAIR = 3

_CHOICES: Mapping[str, Literal["first", "second", "tie"]] = {
    "1": "first",
    "first": "first",
    "2": "second",
    "second": "second",
    "tie": "tie",
    "0": "tie",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A query for which both sides have a response."""

    id: str
    type: str
    """The stratum, such as the video type."""
    source: str
    """What several queries are made from, such as a video."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Showing:
    """One pair as one rater sees it."""

    rater: str
    id: str
    type: str
    first: Side
    """The side that stands first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What a rater wrote beside a pair: ``first``, ``second`` or ``tie``; blank when nothing."""

    rater: str
    id: str
    choice: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Votes:
    """What the raters said, by pair, of the sides."""

    votes: Mapping[str, Mapping[str, Vote]]
    """[pair][rater]; a vote that is missing is not there."""
    types: Mapping[str, str]
    asked: Mapping[str, int]
    """By pair, how many raters were to judge it."""

    @property
    def num_missing(self) -> int:
        """Votes that were asked for and are not there."""
        return sum(self.asked.values()) - sum(len(v) for v in self.votes.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferenceTable:
    """The outcomes of some pairs; side ``a`` is what wins."""

    outcomes: Mapping[Outcome, int]
    score: float | None
    """0..1 over the pairs that are not incomplete; None without any."""
    interval: Interval | None
    """95 %, over pairs resampled within each type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgreementTable:
    """What the raters' votes come to."""

    overall: PreferenceTable
    by_type: Mapping[str, PreferenceTable]
    alpha: float | None
    """Krippendorff's nominal alpha of the single votes."""
    num_unanimous: int
    """Pairs on which all raters who were asked agree."""
    num_votes: int
    num_missing: int
    votes_by_rater: Mapping[str, Mapping[Vote, int]]


# ------------------------------------------------------------------ the design
def select_pairs(
    candidates: Sequence[Candidate], *, per_type: int = PAIRS_PER_TYPE, seed: int = 0
) -> tuple[Candidate, ...]:
    """Return ``per_type`` candidates of each type, no two of one source, by seeded hash ranking.

    Raises ValueError for a type with fewer sources.
    """
    if not candidates:
        raise ValueError("got no candidates, wanted queries that both sides have answered")
    chosen: list[Candidate] = []
    for name in sorted({c.type for c in candidates}):
        best: dict[str, Candidate] = {}
        of_type = (c for c in candidates if c.type == name)
        for one in sorted(of_type, key=lambda c: seeded_rank(seed, "query", c.type, c.id)):
            best.setdefault(one.source, one)
        if len(best) < per_type:
            raise ValueError(
                f"got {len(best)} sources of type {name!r}, wanted at least {per_type}: add "
                "candidates or choose fewer pairs a type"
            )
        ranked = sorted(best.values(), key=lambda c: seeded_rank(seed, "source", c.type, c.source))
        chosen += ranked[:per_type]
    return tuple(chosen)


def assign_raters(
    pairs: Sequence[Candidate],
    raters: Sequence[str],
    *,
    votes_per_pair: int = VOTES_PER_PAIR,
    seed: int = 0,
) -> dict[str, tuple[Showing, ...]]:
    """Return what each rater sees, in the order in which to show it.

    Within a type every set of ``votes_per_pair`` raters gets the same even number of pairs: so all
    raters have equally many, and of two pairs of one set each rater sees ``a`` first in one. Five
    raters with three votes a pair have ten such sets, hence 20 pairs a type, 12 of them a rater's.

    Raises ValueError for raters named twice and for numbers that cannot be balanced.
    """
    _check_raters(raters, votes_per_pair)
    teams = list(itertools.combinations(sorted(raters), votes_per_pair))
    showings: dict[str, list[Showing]] = {rater: [] for rater in raters}
    for name in sorted({p.type for p in pairs}):
        of_type = [p for p in pairs if p.type == name]
        if len(of_type) % (2 * len(teams)):
            raise ValueError(
                f"got {len(of_type)} pairs of type {name!r} for {len(raters)} raters with "
                f"{votes_per_pair} votes a pair, wanted a multiple of {2 * len(teams)}, so that "
                "raters and orders are balanced"
            )
        ranked = sorted(of_type, key=lambda p: seeded_rank(seed, "assign", p.type, p.id))
        for place, pair in enumerate(ranked):
            team = teams[place // 2 % len(teams)]
            for rater, first in _orders(team, place, ranked[place - place % 2].id, seed):
                showings[rater].append(Showing(rater=rater, id=pair.id, type=name, first=first))
    return {
        rater: tuple(sorted(shown, key=lambda s: seeded_rank(seed, "show", s.rater, s.id)))
        for rater, shown in showings.items()
    }


def _check_raters(raters: Sequence[str], votes_per_pair: int) -> None:
    if len(set(raters)) != len(raters):
        raise ValueError(f"got the raters {list(raters)}, wanted each named once")
    if not 1 <= votes_per_pair <= len(raters):
        raise ValueError(
            f"got {votes_per_pair} votes a pair with {len(raters)} raters, wanted at least one and "
            "at most as many as there are raters"
        )


def _orders(team: tuple[str, ...], place: int, twin: str, seed: int) -> Iterable[tuple[str, Side]]:
    """Return who of a team sees which side first: the opposite in the second pair of a twin.

    Of three raters never all see the same order, so that no pair's votes share one order.
    """
    ranked = sorted(team, key=lambda rater: seeded_rank(seed, "order", twin, rater))
    is_swapped = (place % 2 == 1) != (seeded_rank(seed, "swap", twin) % 2 == 1)
    half = math.ceil(len(team) / 2)
    for number, rater in enumerate(ranked):
        yield rater, "a" if (number < half) != is_swapped else "b"


# ------------------------------------------------------------------ what was said
def read_choices(showings: Iterable[Showing], choices: Iterable[Choice]) -> Votes:
    """Return the votes of the sides: each choice un-swapped by the order that its rater saw.

    Raises ValueError for a word that is no choice, a pair that its rater was not shown, and two
    choices that differ.
    """
    shown = {(s.rater, s.id): s for s in showings}
    votes: dict[str, dict[str, Vote]] = {s.id: {} for s in shown.values()}
    for made in choices:
        seen = shown.get((made.rater, made.id))
        if seen is None:
            raise ValueError(
                f"got a choice of {made.rater!r} on {made.id[:80]!r}, which that rater was not to "
                "judge, wanted the raters and pairs of the assignment"
            )
        vote = _unswapped(made, seen.first)
        if vote is None:
            continue
        if votes[made.id].setdefault(made.rater, vote) != vote:
            raise ValueError(
                f"got two different choices of {made.rater!r} on {made.id[:80]!r}, wanted one"
            )
    return Votes(
        votes=votes,
        types={s.id: s.type for s in shown.values()},
        asked=Counter(s.id for s in shown.values()),
    )


def _unswapped(made: Choice, first: Side) -> Vote | None:
    word = made.choice.strip().casefold()
    if not word:
        return None
    choice = _CHOICES.get(word)
    if choice is None:
        raise ValueError(
            f"got the choice {made.choice[:40]!r} of {made.rater!r} on {made.id[:80]!r}, wanted "
            "first, second, tie or nothing"
        )
    if choice == "tie":
        return "tie"
    other: Side = "b" if first == "a" else "a"
    return first if choice == "first" else other


def pair_outcome(votes: Iterable[Vote], num_asked: int) -> Outcome:
    """Return what a pair's votes decide: at least two votes for one thing, and more than for any
    other (RARE appendix A.3.1: at least two matching votes)."""
    counts = Counter(votes)
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    best = ranked[0][1] if ranked else 0
    second = ranked[1][1] if len(ranked) > 1 else 0
    num_open = num_asked - counts.total()
    needed = min(2, num_asked)
    if best >= needed and best > second + num_open:
        return ranked[0][0]
    return "incomplete" if num_open else "unresolved"


def agreement_table(votes: Votes, *, seed: int = 0) -> AgreementTable:
    """Return outcomes, preference score and agreement (RARE appendix A.3.1)."""
    outcomes: dict[str, Outcome] = {
        pair: pair_outcome(said.values(), votes.asked[pair]) for pair, said in votes.votes.items()
    }
    names = sorted(set(votes.types.values()))
    by_type = {
        name: _preferences(
            {p: o for p, o in outcomes.items() if votes.types[p] == name}, votes, seed
        )
        for name in names
    }
    by_rater: dict[str, dict[str, Vote]] = {}
    for pair, said in votes.votes.items():
        for rater, vote in said.items():
            by_rater.setdefault(rater, {})[pair] = vote
    unanimous = [
        p for p, v in votes.votes.items() if len(v) == votes.asked[p] and len(set(v.values())) == 1
    ]
    return AgreementTable(
        overall=_preferences(outcomes, votes, seed),
        by_type=by_type,
        alpha=krippendorff_alpha(by_rater, "nominal"),
        num_unanimous=len(unanimous),
        num_votes=sum(len(v) for v in by_rater.values()),
        num_missing=votes.num_missing,
        votes_by_rater={rater: Counter(v.values()) for rater, v in sorted(by_rater.items())},
    )


def _preferences(outcomes: Mapping[str, Outcome], votes: Votes, seed: int) -> PreferenceTable:
    counts: Counter[Outcome] = Counter(outcomes.values())
    decided = [p for p, o in outcomes.items() if o != "incomplete"]
    if not decided:
        return PreferenceTable(outcomes=counts, score=None, interval=None)
    points = {"a": 1.0, "b": 0.0}
    return PreferenceTable(
        outcomes=counts,
        score=preference_score(counts["a"], counts["tie"] + counts["unresolved"], counts["b"]),
        interval=bootstrap_interval(
            [points.get(outcomes[p], 0.5) for p in decided],
            strata=[votes.types[p] for p in decided],
            seed=seed,
        ),
    )
