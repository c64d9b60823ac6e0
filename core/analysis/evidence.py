"""What a run's files say, in the form in which every analysis reads it.

A ``Group`` is one draw's rollouts with their scores under one rubric version; a
``ReplacementEvent`` is a group in which saturated criteria were replaced (RARE), graded under the
new version: the scores of its replaced criteria are those of the joint rescoring. Before an event
every rollout had full score on the criteria that it replaces, since only saturated ones are.
A failed verdict is None and never a number. What a run's files cannot give raises ``NotInFiles``
with the reason; nothing is left out silently.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.rows import Row
from core.rubric import Criterion, Rubric


class NotInFiles(RuntimeError):
    """A number that these files do not hold; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One draw's rollouts under the rubric version that rewarded them."""

    run: str
    step: int
    query_id: str
    visit: int
    rubric_id: str
    """The query's, or that of its task for a shared rubric."""
    rubric: Rubric
    scores: tuple[Mapping[str, float | None], ...]
    """[G], by criterion id, on 0..max; None is a verdict without a score."""
    type: str = ""
    """What results are averaged within, such as the video type."""
    cluster: str = ""
    """What queries have in common that makes them dependent, such as their source video."""

    def shares(self, criterion: Criterion) -> tuple[float, ...] | None:
        """Return [G] scores as shares of the maximum; None when one of them is missing."""
        shares: list[float] = []
        for row in self.scores:
            score = row.get(criterion.id)
            if score is None:
                return None
            shares.append(score / criterion.max)
        return tuple(shares)

    def is_saturated(self, criterion: Criterion) -> bool | None:
        """Whether every rollout has full score (RARE equation 1); None when a score is missing."""
        shares = self.shares(criterion)
        return None if shares is None else min(shares) >= 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A saturated criterion and what took its place."""

    old: Criterion
    new: Criterion
    polarity: str
    """``negative`` or ``positive``, empty where the run does not tell."""
    reason: str = ""
    """The writer's difference and learning direction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplacementEvent:
    """One accepted revision of a group."""

    group: Group
    """Graded under the new version; it has a score for each new criterion and rollout."""
    pairs: tuple[Pair, ...]

    @property
    def key(self) -> str:
        """What tells it from the events of all other runs."""
        return f"{self.group.run}\x00{self.group.query_id}\x00{self.group.visit}"

    def shares(self, pair: Pair) -> tuple[float, ...]:
        """Return [G] rescored scores of one replacement as shares of its maximum."""
        shares = self.group.shares(pair.new)
        assert shares is not None, "an event has all scores of its replacements"
        return shares

    @property
    def summed(self) -> tuple[float, ...]:
        """[G]: the replacements' summed scores over their combined maximum (RARE section 5.1)."""
        total = sum(p.new.max for p in self.pairs)
        columns = [(p.new.max, self.shares(p)) for p in self.pairs]
        return tuple(
            sum(top * shares[g] for top, shares in columns) / total
            for g in range(len(self.group.scores))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvidence:
    """One run."""

    name: str
    method: str
    groups: tuple[Group, ...]
    """In order of time."""
    events: tuple[ReplacementEvent, ...] = ()
    """In order of time."""
    initial: Mapping[str, Rubric]
    """Version 0 by rubric id."""
    metrics: tuple[Row, ...] = ()
    """Lines of metrics.jsonl."""
    polarity: str = ""
    """The direction of RARE's replacements; empty for methods without."""
    budget: int | None = None
    """Most replacements of one event; None for methods without."""
    num_discarded: int = 0
    """Revisions that came to nothing: tries used up, too late, lost race."""
    num_unmatched: int = 0
    """Accepted revisions whose rollouts are not in the files under the new version."""


def events_of(runs: Sequence[RunEvidence]) -> list[ReplacementEvent]:
    """Return all replacement events; NotInFiles when there is none."""
    events = [e for run in runs for e in run.events]
    if not events:
        unmatched = sum(run.num_unmatched for run in runs)
        found = f"; {unmatched} are without their rollouts" if unmatched else ""
        raise NotInFiles(f"no accepted replacement of a saturated criterion in the run{found}")
    return events


def replaced_at(run: RunEvidence) -> dict[tuple[str, int], tuple[Criterion, ...]]:
    """Return the criteria that a draw (query id, visit) replaced, saturated at that moment."""
    return {(e.group.query_id, e.group.visit): tuple(p.old for p in e.pairs) for e in run.events}


def is_saturable(criterion: Criterion) -> bool:
    """Whether full score everywhere says that it no longer tells rollouts apart: a [Resist] is
    meant to be passed by all, and full score on a penalty is no praise."""
    return not criterion.is_resist and not criterion.is_penalty


def sizes_of(groups: Iterable[Group]) -> list[int]:
    """Return the different numbers of rollouts a group."""
    return sorted({len(g.scores) for g in groups})
