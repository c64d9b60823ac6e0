"""CARE's contrast as a stage: trigger, one writer call, gates, commit.

Beside the update (``for_next_visit``) it edits the rubric that the query's next draw is judged by;
in the same step (``for_this_step``, the literal line 11 of CARE's algorithm 1) the changed
criterion is rescored once on the same rollouts, and the group is rewarded under the new version.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from core.config_evolution import CareConfig, GatesConfig, TriggerConfig
from core.errors import WriterReplyError
from core.evolution.care import contrast_request, read_contrast, top_rollout
from core.evolution.triggers import contrast_reason
from core.grading.visible import visible_response
from core.records import Branch, Evolution, GradedGroup, GradedRollout, RescoreRequest
from core.rubric import Rubric
from drivers.methods.desk import EditDesk, EditIsLate, JointRescoring, origin_of, refused
from drivers.methods.gatekeeper import Gatekeeper

_STAGE = "contrast"


class Contrast:
    """Contrasts the top rollout of a group with its anchor."""

    def __init__(
        self, desk: EditDesk, care: CareConfig, trigger: TriggerConfig, gates: GatesConfig
    ) -> None:
        self._desk = desk
        self._care = care
        self._branch: Branch = "adaptive" if care.adaptive else "chase"
        """On which an edit that came to nothing is booked."""
        self._trigger = trigger
        self._gatekeeper = Gatekeeper(gates, desk)

    def is_due(self, group: GradedGroup) -> bool:
        """Whether the group's top rollout will be contrasted."""
        reward = self._desk.config.reward
        top = top_rollout(group, reward)
        if top is None or contrast_request(group, self._care, reward) is None:
            return False
        return bool(contrast_reason(group, top, self._trigger, reward))

    async def for_next_visit(self, group: GradedGroup, is_expired: Callable[[], bool]) -> None:
        """Commit the edit for the query's next draw."""
        started = time.monotonic()
        try:
            async with self._desk.deadline():
                evolution = await self._edited(group, JointRescoring(self._desk))
        except EditIsLate:
            self._late(group, started)
            return
        if evolution is None:
            return
        if is_expired():
            self._desk.counts.commit_conflicts += 1
            evolution = refused(evolution, group.rubric, "the query was drawn again before it")
        await self._desk.commit(
            origin_of(group), group.rubric, evolution, stage=_STAGE, started=started
        )

    async def for_this_step(self, group: GradedGroup) -> GradedGroup:
        """Return the group under the edited rubric, or as it is."""
        started = time.monotonic()
        try:
            async with self._desk.deadline():
                rescoring = JointRescoring(self._desk)
                evolution = await self._edited(group, rescoring)
                if evolution is None:
                    return group
                rescored = group
                if not self._desk.waits_for_person:  # else it rewards nothing in this step
                    rescored = await self._rescored(group, evolution.rubric, rescoring)
        except EditIsLate:
            self._late(group, started)
            return group
        except WriterReplyError as error:
            self._desk.discard(
                origin_of(group), group.rubric.version, self._branch, str(error), started=started
            )
            return group
        is_current = await self._desk.commit(
            origin_of(group), group.rubric, evolution, stage=_STAGE, started=started
        )
        return rescored if is_current else group

    async def _edited(self, group: GradedGroup, rescoring: JointRescoring) -> Evolution | None:
        """Return what the writer's reply makes of the rubric; None when it was not asked."""
        reward, counts = self._desk.config.reward, self._desk.counts
        request = contrast_request(group, self._care, reward)
        if request is None or await self._desk.has_waiting_edit(group.query.id):
            counts.skipped += 1
            return None
        top = top_rollout(group, reward)
        assert top is not None, "a request rests on a top rollout"
        if not contrast_reason(group, top, self._trigger, reward):
            counts.not_triggered += 1
            return None
        reply = await self._desk.write(request)
        counts.contrasts += int(reply.failure is None)
        method = self._desk.config.evolution.method
        evolution = read_contrast(reply, request, group, self._care, reward, method=method)
        return await self._gatekeeper.check(group, evolution, rescoring)

    async def _rescored(
        self, group: GradedGroup, rubric: Rubric, rescoring: JointRescoring
    ) -> GradedGroup:
        """Return the group under ``rubric``, asking only for the criteria that changed.

        Each rollout that had a reward must have one again; an ungraded one may stay without.
        """
        if rubric.version == group.rubric.version:
            return group
        old = {c.id: c for c in group.rubric.criteria}
        changed = tuple(c for c in rubric.criteria if old.get(c.id) != c)
        rollouts: list[GradedRollout] = list(group.rollouts)
        if changed:
            reply = await rescoring.of(
                RescoreRequest(
                    query_id=group.query.id,
                    prompt=group.query.prompt_text,
                    responses=tuple(visible_response(r.rollout.response) for r in rollouts),
                    criteria=changed,
                )
            )
            for i, verdicts in enumerate(reply.verdicts):
                if rollouts[i].is_graded and any(v.score is None for v in verdicts):
                    raise WriterReplyError(
                        "the changed criterion could not be rescored on all graded rollouts"
                    )
                fresh = {**rollouts[i].verdicts, **{v.criterion_id: v for v in verdicts}}
                rollouts[i] = replace(rollouts[i], verdicts=fresh)
        kept = (replace(r, verdicts={i: r.verdicts[i] for i in rubric.ids}) for r in rollouts)
        return replace(group, rubric=rubric, rollouts=tuple(kept))

    def _late(self, group: GradedGroup, started: float) -> None:
        self._desk.discard(
            origin_of(group),
            group.rubric.version,
            self._branch,
            f"no edit within {self._desk.deadline_s:g} s",
            started=started,
            is_late=True,
        )
