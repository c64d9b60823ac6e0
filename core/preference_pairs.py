"""Preference pairs out of two scored responses a prompt, and which of them to train on.

After RLCF's released ``generate_wildchat_openrlhf_dataset.py``: the response with the higher reward
is chosen; pairs are ranked by the largest lead of the chosen response on one item, whatever that
item weighs, and the first 40 percent are kept. What that code decides by a coin (equal rewards) or
by a -1 (a score that could not be had) is no pair here; both are counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.query import Message
from core.rows import Row

KEEP_PERCENT = 40.0

NoPair = Literal["missing_score", "tie", "same_response"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredResponse:
    """A response with its checklist scores."""

    text: str
    scores: Mapping[str, float | None]
    """By item id, 0..100; None for one that could not be had."""
    reward: float | None
    """0..1; None where a score is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferencePair:
    """The better and the worse response to one prompt."""

    id: str
    messages: tuple[Message, ...]
    chosen: ScoredResponse
    rejected: ScoredResponse

    @property
    def largest_lead(self) -> float:
        """The largest difference chosen - rejected over the items, -100..100."""
        both = ((self.chosen.scores[i], self.rejected.scores[i]) for i in self.chosen.scores)
        return max(a - b for a, b in both if a is not None and b is not None)


def preference_pair(
    query_id: str, messages: Sequence[Message], first: ScoredResponse, second: ScoredResponse
) -> PreferencePair | NoPair:
    """Return the pair of two responses to one prompt, or why there is none."""
    if first.text == second.text:
        return "same_response"
    if first.reward is None or second.reward is None:
        return "missing_score"
    if first.reward == second.reward:
        return "tie"
    is_first = first.reward > second.reward
    chosen, rejected = (first, second) if is_first else (second, first)
    return PreferencePair(id=query_id, messages=tuple(messages), chosen=chosen, rejected=rejected)


def strongest(
    pairs: Sequence[PreferencePair], percent: float = KEEP_PERCENT
) -> list[PreferencePair]:
    """Return the ``percent`` of pairs with the largest lead on an item, largest first.

    Their number is rounded down, and of equal leads the earlier pair comes first.
    """
    ranked = sorted(pairs, key=lambda p: -p.largest_lead)
    return ranked[: int(len(pairs) * percent / 100)]


def pair_row(pair: PreferencePair) -> Row:
    """Return the pair as a row of TRL's conversational preference format, with its scores."""
    return {
        "id": pair.id,
        "prompt": [m.model_dump() for m in pair.messages],
        "chosen": [{"role": "assistant", "content": pair.chosen.text}],
        "rejected": [{"role": "assistant", "content": pair.rejected.text}],
        "chosen_score": pair.chosen.reward,
        "rejected_score": pair.rejected.reward,
        "items": {
            i: {"chosen": pair.chosen.scores[i], "rejected": pair.rejected.scores[i]}
            for i in pair.chosen.scores
        },
    }
