"""Holds accepted edits against the gates before they are committed.

Gates look at new and rewritten criteria only, in the order of their price: what the texts tell,
then the anchor under a new [Resist] criterion (one judge call), then the group under the new
criterion (one joint call, whose verdicts the store keeps). A refusal leaves the rubric unchanged
and names the gate and the numbers. Where the judge gives no score the edit is refused: that never
counts as passed.
An accepted edit that takes the rubric over its cap retires the least telling criteria with it.
Of RARE's replacements only those that a gate refuses are left out. Everything here waits within the
caller's deadline.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from core.config_evolution import GatesConfig
from core.evolution.care import top_rollout
from core.evolution.gates import (
    contrary,
    discriminates,
    near_duplicate,
    retired,
    score_deviation,
    without_refused,
)
from core.evolution.rare import Replaced
from core.grading.visible import visible_response
from core.records import Evolution, GradedGroup, RescoreRequest, RubricEdit, Verdict
from core.rubric import Criterion, Rubric
from drivers.methods.desk import EditDesk, JointRescoring, refused

Gate = Literal["redundant", "anchor", "discriminates"]

_MAX_TEXT = 80


class _Refusal(NamedTuple):
    """Which gate says no, and why in numbers."""

    gate: Gate
    reason: str


class Gatekeeper:
    """The gates of a run's method."""

    def __init__(self, gates: GatesConfig, desk: EditDesk) -> None:
        self._gates = gates
        self._desk = desk

    async def check(
        self, group: GradedGroup, evolution: Evolution, rescoring: JointRescoring
    ) -> Evolution:
        """Return the evolution if every gate lets its changes pass, else a refused one.

        ``group`` is graded under the rubric that was edited; ``rescoring`` is the event's.
        """
        changed = _changed(evolution)
        if not changed or not self._gates.is_any_on:
            return evolution
        refusal = (
            self._first_redundant(evolution.rubric, changed)
            or await self._failed_by_anchor(group, changed)
            or await self._untelling(group, changed, rescoring)
        )
        if refusal is None:
            return self._capped(group, evolution, changed)
        return refused(evolution, group.rubric, self._counted(refusal))

    def passed(self, group: GradedGroup, replaced: Replaced) -> Replaced:
        """Return RARE's replacements without those that a gate refuses; asks nobody.

        The scores of the one rescoring are there already. A refused replacement leaves its
        criterion as it was; the top rollout is the group's as it was graded before.
        """
        changed = _changed(replaced.evolution)
        staying = {c.id: c for c in group.rubric.criteria if c.id not in {n.id for n in changed}}
        reasons: dict[str, str] = {}
        for new in changed:
            refusal = self._redundant([*staying.values()], new)
            if refusal is None and self._gates.discriminates:
                column = [r.verdicts[new.id] for r in replaced.group.rollouts]
                refusal = self._against_scores(group, new, column)
            if refusal is not None:
                reasons[new.id] = self._counted(refusal)
            staying[new.id] = new if refusal is None else group.rubric.criterion(new.id)
        return without_refused(group, replaced, reasons)

    def _counted(self, refusal: _Refusal) -> str:
        self._desk.counts.refused_by_gate[refusal.gate] += 1
        return f"gate {refusal.gate}: {refusal.reason}"

    # -------------------------------------------------------------- gates
    def _redundant(self, others: Sequence[Criterion], new: Criterion) -> _Refusal | None:
        if not self._gates.not_redundant:
            return None
        same = near_duplicate(new, others, self._gates.similarity)
        if same is not None:
            return _Refusal("redundant", f"{new.id!r} asks for the same as {_named(same)}")
        opposite = contrary(new, others)
        if opposite is not None:
            return _Refusal("redundant", f"{new.id!r} is contrary to {_named(opposite)}")
        return None

    def _first_redundant(self, rubric: Rubric, changed: Sequence[Criterion]) -> _Refusal | None:
        for new in changed:
            refusal = self._redundant([c for c in rubric.criteria if c.id != new.id], new)
            if refusal is not None:
                return refusal
        return None

    async def _failed_by_anchor(
        self, group: GradedGroup, changed: Sequence[Criterion]
    ) -> _Refusal | None:
        resist = [c for c in changed if c.is_resist]
        anchor = group.query.anchor
        if not self._gates.anchor_passes or not resist or anchor is None:
            return None
        verdicts = await self._desk.grade(group.query, anchor.response, resist)
        for criterion in resist:
            verdict = verdicts[criterion.id]
            if verdict.score is None:
                reason = f"the anchor has no score on {criterion.id!r} ({verdict.failure})"
                return _Refusal("anchor", reason)
            if not verdict.is_full:
                reason = f"the anchor has {verdict.score:g} of {verdict.max} on {criterion.id!r}"
                return _Refusal("anchor", f"{reason}: {_cut(verdict.reason)}")
        return None

    async def _untelling(
        self, group: GradedGroup, changed: Sequence[Criterion], rescoring: JointRescoring
    ) -> _Refusal | None:
        if not self._gates.discriminates:
            return None
        # The request that rewards the group in the same step is this one: it is paid once.
        reply = await rescoring.of(
            RescoreRequest(
                query_id=group.query.id,
                prompt=group.query.prompt_text,
                responses=tuple(visible_response(r.rollout.response) for r in group.rollouts),
                criteria=tuple(changed),
            )
        )
        for place, criterion in enumerate(changed):
            column = [row[place] for row in reply.verdicts]
            refusal = self._against_scores(group, criterion, column)
            if refusal is not None:
                return refusal
        return None

    def _against_scores(
        self, group: GradedGroup, criterion: Criterion, column: Sequence[Verdict]
    ) -> _Refusal | None:
        """Hold one criterion's verdicts on the whole group against the gate."""
        top = top_rollout(group, self._desk.config.reward)
        graded = [i for i, r in enumerate(group.rollouts) if r.is_graded]
        if top is None:
            return _Refusal("discriminates", "no rollout of the group is graded")
        verdicts = [column[i] for i in graded]
        if discriminates(verdicts, graded.index(group.rollouts.index(top))):
            return None
        scored = [v for v in verdicts if v.score is not None]
        if not scored:
            kinds = ", ".join(sorted({v.failure or "" for v in verdicts}))
            reason = f"none of {len(graded)} rollouts has a score on {criterion.id!r} ({kinds})"
        else:
            reason = (
                f"{len(scored)} of {len(graded)} rollouts have scores on {criterion.id!r}, all "
                f"{scored[0].score:g} of {criterion.max}, and the top one does not fail it"
            )
        return _Refusal("discriminates", reason)

    # -------------------------------------------------------------- the cap
    def _capped(
        self, group: GradedGroup, evolution: Evolution, changed: Sequence[Criterion]
    ) -> Evolution:
        """Retire what is beyond the cap, as further accepted edits of the same version."""
        limit = self._gates.max_active
        if limit is None:
            return evolution
        rubric = evolution.rubric
        ids = retired(rubric, group.rollouts, limit, {c.id for c in changed})
        if not ids:
            return evolution
        first = next(e for e in evolution.edits if e.status == "accepted")
        num_criteria = len(rubric.criteria)
        edits = tuple(
            RubricEdit(
                method=first.method,
                branch=first.branch,
                status="accepted",
                reason=_retirement(i, group, num_criteria, limit),
                old=rubric.criterion(i),
            )
            for i in ids
        )
        kept = Rubric(
            version=rubric.version,
            criteria=tuple(c for c in rubric.criteria if c.id not in ids),
            caps=rubric.caps,
        )
        return replace(evolution, rubric=kept, edits=(*evolution.edits, *edits))


def _changed(evolution: Evolution) -> list[Criterion]:
    """The new and rewritten criteria, in the rubric's order."""
    accepted = {e.new.id for e in evolution.edits if e.status == "accepted" and e.new is not None}
    return [c for c in evolution.rubric.criteria if c.id in accepted]


def _retirement(criterion_id: str, group: GradedGroup, num_criteria: int, limit: int) -> str:
    deviation = score_deviation(criterion_id, group.rollouts)
    seen = "no score" if deviation is None else f"score deviation {deviation:.2f}"
    return f"retired: {seen} over the group, {num_criteria} criteria for at most {limit}"


def _named(criterion: Criterion) -> str:
    return f"{criterion.id!r} ({_cut(criterion.tagged)})"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}\u2026"
