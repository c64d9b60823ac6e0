"""RARE at task level as a stage: evidence, tries of the writer, gate, commit for the next step.

The representatives are rescored under the candidate in one judge call each; criteria that did not
change have their verdicts in the store already (RARE section 3.3, appendix A.2.2).
"""

from collections.abc import Sequence
from dataclasses import replace

from core.config_evolution import RareEvolution
from core.errors import WriterReplyError
from core.evolution.rare_task import (
    Representative,
    evidence_seed,
    fitting_request,
    gate,
    revision_steps,
    task_evidence,
    task_evolution,
)
from core.evolution.rare_task_prompt import shown_evidence
from core.evolution.rare_task_reply import read_revision
from core.query import shared_id
from core.records import Evolution, GradedGroup
from core.rubric import Rubric
from core.writer_requests import TaskRevisionRequest
from drivers.gathered import gathered
from drivers.methods.desk import EditDesk
from drivers.methods.shared_revision import NoRevision, SharedRevision


class RareTask(SharedRevision):
    """Revises each task's rubric after the scheduled steps."""

    def __init__(self, desk: EditDesk, evolution: RareEvolution) -> None:
        super().__init__(desk, revision_steps(desk.config.loop.steps, evolution.task.revisions))
        self._config = evolution.task
        self._past: list[GradedGroup] = []
        """Groups of the last steps, oldest first, without their tokens."""

    def resume(self, past: Sequence[GradedGroup]) -> None:
        """See ``Method``."""
        self._past = [_without_tokens(g) for g in past]

    def evidence_of(self, step: int, groups: Sequence[GradedGroup]) -> Sequence[GradedGroup]:
        """See ``SharedRevision``."""
        first = step - self._config.evidence_steps + 1
        kept = [g for g in self._past if first <= g.draw.step < step]
        self._past = [*kept, *map(_without_tokens, groups)]
        return self._past

    async def revised(
        self, task: str, rubric: Rubric, step: int, groups: Sequence[GradedGroup]
    ) -> Evolution:
        """See ``SharedRevision``."""
        config, desk = self._config, self._desk
        reward = desk.config.reward
        draw_seed = evidence_seed(task, step, desk.config.seed)
        evidence = task_evidence(groups, rubric, config, reward, draw_seed)
        if evidence.reason:
            raise NoRevision(evidence.reason)
        request, shown = self._request(task, rubric, step, evidence.representatives)
        candidate, diagnosis = await self._written(request)
        rescored = await gathered(
            desk.grade(r.group.query, r.response, candidate.criteria) for r in shown
        )
        result = gate(shown, rescored, candidate, config, reward)
        if result.refusal:
            desk.counts.refused_by_gate["task"] += 1
        status = "refused" if result.refusal else "accepted"
        return task_evolution(rubric, candidate, diagnosis, result.reason, status)

    def _request(
        self, task: str, rubric: Rubric, step: int, representatives: Sequence[Representative]
    ) -> tuple[TaskRevisionRequest, list[Representative]]:
        """Return what the writer is asked, and the representatives that it is shown."""
        request = TaskRevisionRequest(
            query_id=shared_id(task),
            task=task,
            step=step,
            rubric=rubric,
            cases=tuple(r.case for r in representatives),
        )
        fitting = fitting_request(request, shown_evidence, self._config.min_groups)
        if fitting is None:
            raise NoRevision(
                f"got {self._config.min_groups} representatives that are too long for one prompt, "
                "wanted shorter responses or a lower evolution.task.min_groups"
            )
        shown_ids = {c.query_id for c in fitting.cases}
        return fitting, [r for r in representatives if r.group.query.id in shown_ids]

    async def _written(self, request: TaskRevisionRequest) -> tuple[Rubric, str]:
        """Ask until the writer gives a whole rubric that keeps the rules."""
        error = WriterReplyError("no try was made")
        for _ in range(self._config.max_attempts):
            reply = await self._desk.write(request)
            try:
                return read_revision(reply, request)
            except WriterReplyError as unusable:
                error = unusable
                request = replace(request, error=str(unusable))
        raise WriterReplyError(f"{self._config.max_attempts} tries, the last refused: {error}")


def _without_tokens(group: GradedGroup) -> GradedGroup:
    """What a revision looks at: kept over steps, tokens and log-probs would fill the memory."""
    rollouts = tuple(
        replace(
            r, rollout=replace(r.rollout, prompt_token_ids=(), token_ids=(), rollout_logprobs=())
        )
        for r in group.rollouts
    )
    return replace(group, rollouts=rollouts)
