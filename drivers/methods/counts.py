"""What happened to rubrics since the loop last looked: totals that a step's metrics are made of."""

from collections import Counter
from dataclasses import dataclass, field

from core.records import RubricEdit


@dataclass(kw_only=True)
class EvolutionCounts:
    """Running totals of one run's method."""

    edits: list[RubricEdit] = field(default_factory=list)
    saturated: int = 0
    saturable: int = 0
    contrasts: int = 0
    writer_calls: int = 0
    rescored_calls: int = 0
    skipped: int = 0
    not_triggered: int = 0
    restored: int = 0
    deadline_missed: int = 0
    commit_conflicts: int = 0
    refused_by_gate: Counter[str] = field(default_factory=Counter[str])
    evolve_s: float = 0.0
