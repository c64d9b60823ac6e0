"""How long everything takes in a benchmark whose engines only keep time.

Every duration is a function of the seed and of what is asked (a rollout, a call about a group), so
that all schedules and methods meet the same ones: common random numbers. The numbers are fixed once
and natural, none is fitted to a target:
- a response has lognormal many tokens (median 400, sigma 0.8: its 99th percentile is 6.4 medians),
  cut at 8 medians; generating it takes time in proportion, whatever runs beside it;
- 2 rollout workers of 48 slots for a step's 192 rollouts, 24 judge places, 12 writer places;
- judge and writer calls are lognormal with sigma 0.3 around their medians;
- an update takes the same time each step, its last part the weight sync, during which generation
  is paused;
- 31 % of the groups (7 or 8 of 24) have one criterion that all rollouts satisfy: a RARE event.
What a response "is" stands in its first words, so an engine finds its time from a prompt.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from core.query import Anchor, Message, Query
from core.records import Draw
from core.rubric import Criterion, Rubric
from drivers.queries import QueryStream

MEDIAN_TOKENS = 400
TOKENS_SIGMA = 0.8
MAX_TOKENS = 8 * MEDIAN_TOKENS
SERVICE_SIGMA = 0.3
RARE_FRAC = 0.31
"""Share of groups with a saturated criterion (RARE's figure)."""
NUM_CRITERIA = 6

CallKind = Literal["judge", "rescore", "contrast", "replacement"]

_NAME = re.compile(r"\brollout (\d+) of visit (\d+) to (q\d+)\b")
_LISTED = """apple river castle mountain violin candle lantern harbor meadow thunder copper garden
    whisper shadow feather marble orchard compass velvet ember"""
_WORDS = _LISTED.split()


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Medians and times in seconds; all 0 is a system whose engines take no time."""

    generation_s: float = 0.0
    """Of a response of the median length."""
    judge_s: float = 0.0
    """Median of a call that scores one response, or one that rescores a group jointly."""
    writer_s: float = 0.0
    """Median of a writer call."""
    update_s: float = 0.0
    """Optimizer steps of a whole batch."""
    sync_s: float = 0.0
    """Bringing the new weights to the workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """How much of each engine there is."""

    workers: int = 2
    slots: int = 48
    """Of one worker."""
    judge: int = 24
    writer: int = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutName:
    """Which rollout a response is."""

    query_id: str
    visit: int
    index: int

    @property
    def text(self) -> str:
        """As it stands in a response."""
        return f"rollout {self.index} of visit {self.visit} to {self.query_id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Durations and scores of everything that is asked; picklable, the same in every process."""

    seed: int = 0
    group_size: int = 8
    times: Times = Times()
    places: Places = Places()
    saturated: frozenset[tuple[str, int]] = field(default_factory=frozenset[tuple[str, int]])
    """Groups (query, visit) that have a criterion which all their rollouts satisfy."""

    # ------------------------------------------------------------------ generation
    def num_tokens(self, name: RolloutName) -> int:
        """Return the response's length."""
        drawn = self._random("tokens", name).lognormvariate(0.0, TOKENS_SIGMA)
        return max(1, min(MAX_TOKENS, round(MEDIAN_TOKENS * drawn)))

    def generation_s(self, name: RolloutName) -> float:
        """Return how long a slot works on it."""
        return self.times.generation_s * self.num_tokens(name) / MEDIAN_TOKENS

    def response(self, name: RolloutName) -> str:
        """Return a text of about that many tokens that begins with its name."""
        words = self._random("words", name).choices(_WORDS, k=self.num_tokens(name))
        return f"This is {name.text}: {' '.join(words)}."

    # ------------------------------------------------------------------ calls
    def call_s(self, kind: CallKind, name: RolloutName) -> float:
        """Return how long a place works on a call (about a group: named by its rollout 0)."""
        is_judge = kind in ("judge", "rescore")
        median_s = self.times.judge_s if is_judge else self.times.writer_s
        return median_s * self._random(kind, name).lognormvariate(0.0, SERVICE_SIGMA)

    def is_met(self, name: RolloutName, criterion: int) -> bool:
        """Return whether a response satisfies the criterion of this place in its rubric.

        Each criterion is failed by one rollout of the group, save the first one of a group that
        has a RARE event.
        """
        if criterion == 0 and (name.query_id, name.visit) in self.saturated:
            return True
        return criterion % self.group_size != name.index

    # ------------------------------------------------------------------ the learner
    def update_s(self, share: float = 1.0) -> float:
        """Return how long a share of a step's groups trains."""
        return self.times.update_s * share

    def _random(self, kind: str, name: RolloutName) -> random.Random:
        return random.Random(f"{self.seed}:{kind}:{name.query_id}:{name.visit}:{name.index}")


def names_in(text: str) -> list[RolloutName]:
    """Return the rollouts whose names stand in a prompt, in order, each once."""
    found = (
        RolloutName(query_id=query_id, visit=int(visit), index=int(index))
        for index, visit, query_id in _NAME.findall(text)
    )
    return list(dict.fromkeys(found))


def words_of(*parts: object) -> str:
    """Return a criterion text that depends on the parts alone; no two are alike."""
    return " ".join(random.Random(":".join(map(str, parts))).sample(_WORDS, 6))


def saturated_groups(
    query_ids: Sequence[str], groups_per_step: int, num_steps: int, seed: int
) -> frozenset[tuple[str, int]]:
    """Return the groups with a RARE event: in each step of the stream its share, rounded so that
    the share holds over the steps."""
    stream = QueryStream(query_ids, groups_per_step, seed)
    chosen: set[tuple[str, int]] = set()
    for step in range(num_steps):
        draws = [stream.draw(step * groups_per_step + i) for i in range(groups_per_step)]
        before, after = (round(RARE_FRAC * groups_per_step * (step + i)) for i in (0, 1))
        picked: list[Draw] = random.Random(f"{seed}:rare:{step}").sample(draws, after - before)
        chosen |= {(draw.query_id, draw.visit) for draw in picked}
    return frozenset(chosen)


def make_queries(num: int) -> Mapping[str, Query]:
    """Return ``num`` queries, each with a rubric of its own and an anchor."""
    return {query.id: query for query in map(_query, range(num))}


def _query(number: int) -> Query:
    query_id = f"q{number}"
    return Query(
        id=query_id,
        messages=(Message(role="user", content=f"Task {number}: {words_of('task', number)}"),),
        rubric=Rubric(
            criteria=tuple(
                Criterion(id=f"c{i + 1}", text=f"Tells of {words_of(query_id, i)}")
                for i in range(NUM_CRITERIA)
            )
        ),
        anchor=Anchor(response=f"A good answer: {words_of('anchor', number)}."),
    )
