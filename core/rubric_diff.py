"""What changed between two versions of a rubric, criterion by criterion.

Criteria are told apart by their ids, which every method keeps when it rewrites one.
``rollback_edits`` turns a difference into the edits of a rollback: the old criteria come back as a
new version, and nothing is deleted.
"""

from dataclasses import dataclass

from core.records import RubricEdit
from core.rubric import Criterion, Rubric


@dataclass(frozen=True, kw_only=True, slots=True)
class CriterionChange:
    """One criterion that is not the same in both versions."""

    old: Criterion | None
    new: Criterion | None
    what: tuple[str, ...]
    """``added``, ``removed``, or what differs: ``rewritten``, ``kind``, ``weight``, ``scale``,
    ``levels``, ``rule``."""

    @property
    def loosens_veto(self) -> bool:
        """Whether a [Resist] criterion goes or is no longer the same check."""
        if self.old is None or not self.old.is_resist:
            return False
        return self.new is None or self.new != self.old


def rubric_changes(old: Rubric, new: Rubric) -> tuple[CriterionChange, ...]:
    """Return the criteria that differ: first those of ``old`` in its order, then the added ones."""
    after = {c.id: c for c in new.criteria}
    changes: list[CriterionChange] = []
    for criterion in old.criteria:
        other = after.get(criterion.id)
        if other is None:
            changes.append(CriterionChange(old=criterion, new=None, what=("removed",)))
        elif other != criterion:
            what = _differences(criterion, other)
            changes.append(CriterionChange(old=criterion, new=other, what=what))
    known = set(old.ids)
    changes += [
        CriterionChange(old=None, new=c, what=("added",)) for c in new.criteria if c.id not in known
    ]
    return tuple(changes)


def _differences(old: Criterion, new: Criterion) -> tuple[str, ...]:
    pairs = (
        ("rewritten", old.text, new.text),
        ("kind", old.kind, new.kind),
        ("weight", old.weight, new.weight),
        ("scale", old.max, new.max),
        ("levels", old.levels, new.levels),
        ("rule", old.rule, new.rule),
    )
    return tuple(name for name, a, b in pairs if a != b)


def is_same_rubric(one: Rubric, other: Rubric) -> bool:
    """Return whether two versions score alike: same criteria in the same order, same caps."""
    return one.criteria == other.criteria and one.caps == other.caps


def rolled_back(current: Rubric, target: Rubric) -> Rubric:
    """Return the next version after ``current`` with the criteria and caps of ``target``."""
    return Rubric(version=current.version + 1, criteria=target.criteria, caps=target.caps)


def rollback_edits(current: Rubric, target: Rubric, reason: str) -> tuple[RubricEdit, ...]:
    """Return a person's edits that lead from ``current`` back to ``target``; at least one."""
    changes = rubric_changes(current, target)
    pairs = [(c.old, c.new) for c in changes] or [(None, None)]  # only order or caps differ
    return tuple(
        RubricEdit(
            method="person",
            branch="rollback",
            status="accepted",
            reason=reason,
            old=old,
            new=new,
        )
        for old, new in pairs
    )
