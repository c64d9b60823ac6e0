"""What a rule is: a named measure over one response, with typed arguments.

A rule measures a value and holds it against a limit, from below or from above. One formula turns
that into a score for every rule, so binary and graded criteria share it:
``at least``: floor(max * value / limit), ``at most``: floor(max * limit / value), both at most
``max``. On a binary criterion this is exactly "the limit is kept". A rule that only holds or does
not has value 0 or 1 and the limit 1. Reasons quote what was seen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, StringConstraints

from core.rubric import Frozen
from core.rules.words import Text, words_of

Direction = Literal["at_least", "at_most"]

_TOLERANCE = 1e-9

A = TypeVar("A", bound=Frozen)


def _has_words(value: str) -> str:
    if not words_of(value):
        raise ValueError("wanted at least one letter or digit in each listed word")
    return value


Word = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=80),
    AfterValidator(_has_words),
]
WordList = Annotated[tuple[Word, ...], Field(min_length=1, max_length=64)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class NoArgs(Frozen):
    """A rule without arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a rule looks at."""

    response: Text
    prompt: Text
    max: int
    """Top of the criterion's scale."""


def case(response: str, prompt: str = "", max_score: int = 1) -> Case:
    """Return the case of one response."""
    return Case(response=Text(response), prompt=Text(prompt), max=max_score)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A value held against a limit."""

    value: float
    limit: float
    direction: Direction
    seen: str
    """What was seen in the response, in words, with a quoted fragment where there is one."""

    def score(self, max_score: int) -> int:
        """Return 0..max (formula in the module's docstring)."""
        low, high = (
            (self.value, self.limit) if self.direction == "at_least" else (self.limit, self.value)
        )
        if high <= 0 or low >= high - _TOLERANCE:
            return max_score
        return min(max_score, max(0, math.floor(max_score * low / high + _TOLERANCE)))

    @property
    def reason(self) -> str:
        """What was seen and what was wanted."""
        sign = "at least" if self.direction == "at_least" else "at most"
        return f"{self.seen}: got {_number(self.value)}, wanted {sign} {_number(self.limit)}"


def holds(is_true: bool, seen: str) -> Measure:
    """Return the measure of a rule that holds or does not."""
    return Measure(value=float(is_true), limit=1.0, direction="at_least", seen=seen)


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleSpec:
    """A registered rule."""

    name: str
    args: type[Frozen]
    measure: Callable[[Any, Case], Measure]
    is_all_or_nothing: bool
    """Whether only 0 and the top of the scale can be given."""


class Rules:
    """Rules by name; every file of rules fills one of these."""

    def __init__(self) -> None:
        self.specs: dict[str, RuleSpec] = {}

    def add(
        self, name: str, args: type[A], *, is_all_or_nothing: bool = False
    ) -> Callable[[Callable[[A, Case], Measure]], Callable[[A, Case], Measure]]:
        """Register the decorated measure under a name."""

        def register(measure: Callable[[A, Case], Measure]) -> Callable[[A, Case], Measure]:
            assert name not in self.specs, f"two rules are called {name}"
            self.specs[name] = RuleSpec(
                name=name, args=args, measure=measure, is_all_or_nothing=is_all_or_nothing
            )
            return measure

        return register


class UndecidedError(Exception):
    """Code could not decide: a pattern took too long on this response."""


def quoted(fragment: str, max_chars: int = 60) -> str:
    """Return a fragment for a reason: one line, cut, in quotation marks."""
    line = " ".join(fragment.split()).replace('"', "'")
    return f'"{line[: max_chars - 1]}…"' if len(line) > max_chars else f'"{line}"'


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
