"""Criteria and rubrics: what a response is scored by.

A ``Rubric`` is frozen and checked when it is built: a bad one (two criteria of one id, a graded
[Resist], no positive weight, a cap on an unknown criterion) cannot exist. An edit makes a new
``Rubric`` with ``version + 1``; nothing here changes in place.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

CriterionKind = Literal["llm", "resist"]

TAGS: dict[CriterionKind, str] = {"llm": "[llm]", "resist": "[Resist]"}
"""How a criterion's kind is written in a writer's set (CARE section 3.2)."""


MAX_SCALE = 1_000_000
"""Highest maximum of a criterion: far above any scale, far below what a database takes."""

MAX_WEIGHT = 1e30
"""Largest weight in size: sums and products of such weights stay finite."""


class Frozen(BaseModel):
    """Base of all records that come from files: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(Frozen):
    """A check that code decides: a verifier's name and its arguments (``core/rules``)."""

    name: str = Field(min_length=1)
    args: dict[str, JsonValue] = Field(default_factory=dict)


class Criterion(Frozen):
    """One gradable statement with integer levels ``0..max``; higher is always better, save for a
    penalty (negative weight), whose score says how true it is."""

    id: str = Field(min_length=1)
    text: str
    kind: CriterionKind = "llm"
    max: int = Field(default=1, ge=1, le=MAX_SCALE, strict=True)
    weight: float = Field(default=1.0, strict=True)
    levels: dict[int, str] | None = None
    rule: Rule | None = None

    @field_validator("text")
    @classmethod
    def _text_is_not_blank(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("got a blank criterion text, wanted a statement to grade")
        return text

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if not math.isfinite(self.weight):
            raise ValueError(f"criterion {self.id!r}: got weight {self.weight}, wanted a number")
        if abs(self.weight) > MAX_WEIGHT:
            raise ValueError(
                f"criterion {self.id!r}: got weight {self.weight:g}, wanted at most "
                f"{MAX_WEIGHT:g} in size"
            )
        if self.kind == "resist" and self.max != 1:
            raise ValueError(
                f"criterion {self.id!r}: got max {self.max} on a [Resist] criterion, wanted 1 "
                "(a veto is binary)"
            )
        if self.kind == "resist" and self.weight < 0:
            raise ValueError(
                f"criterion {self.id!r}: got weight {self.weight:g} on a [Resist] criterion, "
                "wanted 0 or more (to pass it is what is wanted)"
            )
        if self.levels is not None and sorted(self.levels) != list(range(self.max + 1)):
            raise ValueError(
                f"criterion {self.id!r}: got levels {sorted(self.levels)}, "
                f"wanted each of 0..{self.max}"
            )
        return self

    @property
    def tagged(self) -> str:
        """The criterion as it stands in a writer's set: ``[llm] text`` or ``[Resist] text``."""
        return f"{TAGS[self.kind]} {self.text}"

    @property
    def is_resist(self) -> bool:
        """Whether failing it vetoes the reward."""
        return self.kind == "resist"

    @property
    def is_penalty(self) -> bool:
        """Whether it takes points away where it is true: a writer, who is told that a higher score
        is better, would turn its meaning round."""
        return self.weight < 0


def presence_levels(maximum: int) -> dict[int, str]:
    """Return a penalty's levels: a judge that takes high scores for praise must not read it the
    other way round."""
    between = {level: f"true of it in part ({level} of {maximum})" for level in range(1, maximum)}
    return {0: "not true of the response", **between, maximum: "plainly true of the response"}


class Cap(Frozen):
    """RARE's ``reward_aggregation`` cap: a low score on one criterion bounds the whole reward."""

    criterion_id: str
    score_lte: int = Field(ge=0, strict=True)
    max_normalized_score: float = Field(ge=0.0, le=1.0)


class Rubric(Frozen):
    """The versioned list of criteria of one query (or of one task)."""

    version: int = Field(default=0, ge=0)
    criteria: tuple[Criterion, ...] = Field(min_length=1)
    caps: tuple[Cap, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        ids = self.ids
        doubled = sorted({i for i in ids if ids.count(i) > 1})
        if doubled:
            raise ValueError(f"got two criteria with the id {doubled[0]!r}, wanted unique ids")
        if not any(c.weight > 0 for c in self.criteria):
            raise ValueError("got no criterion with a positive weight, wanted at least one")
        for cap in self.caps:
            if cap.criterion_id not in ids:
                raise ValueError(f"got a cap on {cap.criterion_id!r}, wanted one of {list(ids)}")
            top = self.criterion(cap.criterion_id).max
            if cap.score_lte > top:
                raise ValueError(
                    f"got a cap at score_lte={cap.score_lte} on {cap.criterion_id!r}, wanted one "
                    f"of its scores 0..{top}"
                )
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """Criterion ids in rubric order."""
        return tuple(c.id for c in self.criteria)

    @property
    def total_max(self) -> int:
        """Sum of the maxima: the denominator of RARE section 3.1."""
        return sum(c.max for c in self.criteria)

    def criterion(self, criterion_id: str) -> Criterion:
        """Return the criterion with this id; KeyError if there is none."""
        for c in self.criteria:
            if c.id == criterion_id:
                return c
        raise KeyError(criterion_id)

    def with_criteria(self, criteria: Iterable[Criterion]) -> "Rubric":
        """Return the next version with these criteria (``version + 1``, caps kept)."""
        return Rubric(version=self.version + 1, criteria=tuple(criteria), caps=self.caps)

    def digest(self) -> str:
        """Return 16 hex digits that depend on criteria and caps, not on the version number."""
        text = "\n".join(part.model_dump_json() for part in (*self.criteria, *self.caps))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
