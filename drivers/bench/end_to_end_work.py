"""What both sides of the end-to-end benchmark do: the same queries, rubric, lengths and steps.

A plain record, written as JSON for the process of each side. The queries ask for a long text, so
that nearly every rollout is cut at the token limit and both sides make the same number of tokens;
each side reports what it really made. The rubric is decided by code: grading is the same function
on both sides.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from core.config import RewardConfig
from core.query import Query
from core.reward import rollout_reward
from core.rubric import Criterion, Rubric, Rule
from core.rules.verifiers import decide

_SYSTEM = "You write long, vivid stories without lists."
_SUBJECTS = (
    "a lighthouse keeper who finds a map",
    "a baker who loses the sense of taste",
    "a river that changes its course",
    "two sisters who repair a boat",
    "a train that stops in the snow",
    "a gardener and a stubborn fox",
    "a clock that runs backwards",
    "a teacher on her first day",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One measurement, the same for both sides."""

    model: str
    """Folder of the model."""
    num_threads: int
    seed: int = 0
    groups_per_step: int = 4
    group_size: int = 8
    max_new_tokens: int = 96
    warmup_steps: int = 1
    measured_steps: int = 3
    lr: float = 1e-6
    trl_micro_batch: int = 8
    """Sequences of one of TRL's forward passes."""

    @property
    def rollouts_per_step(self) -> int:
        """Rollouts of one step."""
        return self.groups_per_step * self.group_size

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what ``as_json`` gave."""
        return cls(**data)


def queries() -> tuple[Query, ...]:
    """Return the queries, all with the same rubric."""
    return tuple(
        Query.model_validate(
            {
                "id": f"story{number}",
                "messages": [
                    {"role": "system", "content": _SYSTEM},
                    {"role": "user", "content": f"Write a story of 500 words about {subject}."},
                ],
                "rubric": [c.model_dump(mode="json") for c in RUBRIC.criteria],
            }
        )
        for number, subject in enumerate(_SUBJECTS)
    )


def _criterion(name: str, text: str, rule: str, **args: Any) -> Criterion:
    return Criterion(id=name, text=text, rule=Rule(name=rule, args=args))


RUBRIC = Rubric(
    criteria=(
        _criterion("long", "The response has at least 70 words.", "min_words", n=70),
        _criterion("many", "The response has at least 5 sentences.", "min_sentences", n=5),
        _criterion("short", "No sentence has more than 25 words.", "sentence_length", max_words=25),
        _criterion("prose", "The response has no list.", "no_list"),
    )
)
_REWARD = RewardConfig()


def rewards(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
    """Return the reward of each response: the verdicts and the sum that a run computes."""
    found: list[float] = []
    for prompt, response in zip(prompts, responses, strict=True):
        verdicts = {c.id: decide(c, response, prompt) for c in RUBRIC.criteria}
        value = rollout_reward(RUBRIC, verdicts, _REWARD).value
        assert value is not None, verdicts
        found.append(value)
    return found
