"""The evolution stage: how a graded group changes its query's rubric, method by method.

``same_step`` runs before the group is rewarded and returns the group under the rubric that rewards
it; ``next_visit`` runs beside the policy update. Both commit by compare-and-set and write every
edit, accepted or not, as an event. A writer that fails or is late never stops a step: the old
rubric and the old rewards stay, and it is counted.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from core.config import RewardConfig
from core.config_evolution import (
    CareConfig,
    CareEvolution,
    EvolutionConfig,
    RareConfig,
    RareEvolution,
    RatchetEvolution,
    StaticEvolution,
)
from core.errors import WriterReplyError
from core.evolution.care import contrast_request, read_contrast
from core.evolution.rare import (
    Replaced,
    apply_replacements,
    read_replacements,
    replacement_request,
    rescore_request,
)
from core.grading.cache_key import verdict_key
from core.grading.visible import visible_response
from core.metrics import saturation_counts
from core.records import (
    Branch,
    Commit,
    Draw,
    EditStatus,
    Evolution,
    GradedGroup,
    GradedRollout,
    RescoreReply,
    RescoreRequest,
    RubricEdit,
)
from core.rubric import Rubric
from drivers.ports import JudgeClient, Store, WriterClient

log = logging.getLogger(__name__)

RecordEdit = Callable[[Draw, RubricEdit, int, int, float], None]
"""(draw, edit, from_version, to_version, seconds): writes one line of events.jsonl."""


@dataclass(kw_only=True)
class EvolutionCounts:
    """What happened to rubrics since the loop last looked."""

    edits: list[RubricEdit] = field(default_factory=list)
    saturated: int = 0
    saturable: int = 0
    contrasts: int = 0
    writer_calls: int = 0
    rescored_calls: int = 0
    skipped: int = 0
    restored: int = 0
    deadline_missed: int = 0
    commit_conflicts: int = 0
    evolve_s: float = 0.0


class Evolver:
    """Applies the configured method to graded groups."""

    def __init__(
        self,
        evolution: EvolutionConfig,
        reward: RewardConfig,
        writer: WriterClient,
        judge: JudgeClient,
        store: Store,
        record_edit: RecordEdit,
    ) -> None:
        self._evolution = evolution
        self._reward = reward
        self._writer = writer
        self._judge = judge
        self._store = store
        self._record_edit = record_edit
        self.counts = EvolutionCounts()
        """Running totals, read and reset by the loop once a step."""

    @property
    def has_next_visit(self) -> bool:
        """Whether edits run beside the update and take effect at the query's next draw."""
        method = self._evolution
        return isinstance(method, RatchetEvolution) or (
            isinstance(method, CareEvolution) and method.apply == "next_visit"
        )

    @property
    def deadline_s(self) -> float:
        """Longest wait for one edit."""
        method = self._evolution
        return 0.0 if isinstance(method, StaticEvolution) else method.deadline_s

    # -------------------------------------------------------------- same step
    async def same_step(self, group: GradedGroup) -> GradedGroup:
        """Return the group under the rubric that rewards it in this step."""
        method = self._evolution
        saturated, saturable = saturation_counts(group)
        self.counts.saturated += saturated
        self.counts.saturable += saturable
        if isinstance(method, RareEvolution | RatchetEvolution):
            return await self._replace_saturated(group, method.rare)
        if isinstance(method, CareEvolution) and method.apply == "same_step":
            return await self._contrast_now(group, method.care)
        return group

    async def _replace_saturated(self, group: GradedGroup, rare: RareConfig) -> GradedGroup:
        started = time.monotonic()
        if replacement_request(group, rare) is None:
            return group
        try:
            async with asyncio.timeout(self.deadline_s):
                replaced = await self._written_replacements(group, rare)
        except (TimeoutError, WriterReplyError) as error:
            is_late = isinstance(error, TimeoutError)
            reason = f"no replacement within {self.deadline_s:g} s" if is_late else str(error)
            self._discard(group, "replacement", "failed", reason, started, is_late=is_late)
            return group
        is_committed = await self._commit(group, replaced.evolution, "replacement", started)
        return replaced.group if is_committed else group

    async def _written_replacements(self, group: GradedGroup, rare: RareConfig) -> Replaced:
        """Ask until the writer gives exactly the wanted replacements, then rescore once."""
        request = replacement_request(group, rare)
        assert request is not None
        error = WriterReplyError("no try was made")
        for _ in range(rare.max_attempts):
            reply = await self._writer.write(request)
            self.counts.writer_calls += 1
            try:
                replacements = read_replacements(reply, request)
                break
            except WriterReplyError as unusable:
                error = unusable
                request = replace(request, error=str(unusable))
        else:
            raise WriterReplyError(f"{rare.max_attempts} tries, the last refused: {error}")
        scores = await self._rescore(rescore_request(group, replacements))
        return apply_replacements(group, replacements, scores, method=self._evolution.method)

    async def _contrast_now(self, group: GradedGroup, care: CareConfig) -> GradedGroup:
        """CARE with its algorithm's literal line 11: the changed criterion is rescored once."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.deadline_s):
                evolution = await self._contrasted(group, care)
                if evolution is None:
                    return group
                rescored = await self._regraded(group, evolution.rubric)
        except TimeoutError:
            reason = f"no edit within {self.deadline_s:g} s"
            self._discard(group, "adaptive", "failed", reason, started, is_late=True)
            return group
        except WriterReplyError as error:
            self._discard(group, "adaptive", "failed", str(error), started)
            return group
        is_committed = await self._commit(group, evolution, "contrast", started)
        return rescored if is_committed else group

    async def _regraded(self, group: GradedGroup, rubric: Rubric) -> GradedGroup:
        """Return the group under ``rubric``, asking only for the criteria that changed."""
        if rubric.version == group.rubric.version:
            return group
        old = {c.id: c for c in group.rubric.criteria}
        changed = tuple(c for c in rubric.criteria if old.get(c.id) != c)
        reply = await self._rescore(
            RescoreRequest(
                query_id=group.query.id,
                prompt=group.query.prompt_text,
                responses=tuple(visible_response(r.rollout.response) for r in group.rollouts),
                criteria=changed,
            )
        )
        rollouts: list[GradedRollout] = []
        for member, verdicts in zip(group.rollouts, reply.verdicts, strict=True):
            if any(v.score is None for v in verdicts):
                raise WriterReplyError(
                    "the changed criterion could not be rescored on all rollouts"
                )
            fresh = {**member.verdicts, **{v.criterion_id: v for v in verdicts}}
            rollouts.append(replace(member, verdicts={i: fresh[i] for i in rubric.ids}))
        return replace(group, rubric=rubric, rollouts=tuple(rollouts))

    async def _rescore(self, request: RescoreRequest) -> RescoreReply:
        """Ask the judge once for all cells; a step that is done again finds them in the store."""
        # The judge sees the whole group: other verdicts than those on one response alone.
        judge = f"{self._judge.identity} rescore {len(request.responses)}"
        context = "\x00".join((request.prompt, *request.responses))
        rows = [
            [(c.id, verdict_key(judge, context, c, response)) for c in request.criteria]
            for response in request.responses
        ]
        known = await self._store.cached_verdicts(tuple(key for row in rows for _, key in row))
        if all(key in known for row in rows for _, key in row):
            verdicts = tuple(
                tuple(replace(known[key], criterion_id=criterion_id) for criterion_id, key in row)
                for row in rows
            )
            return RescoreReply(verdicts=verdicts, judge=self._judge.identity)
        self.counts.rescored_calls += 1
        reply = await self._judge.rescore(request)
        fresh = {
            key: v
            for row, verdicts in zip(rows, reply.verdicts, strict=True)
            for (_, key), v in zip(row, verdicts, strict=True)
            if v.score is not None
        }
        await self._store.put_verdicts(fresh)
        return reply

    # -------------------------------------------------------------- next visit
    async def next_visit(self, group: GradedGroup, is_expired: Callable[[], bool]) -> None:
        """Contrast the group's top rollout with the anchor and commit the edit.

        ``is_expired`` tells whether the query was drawn again meanwhile with the old rubric; the
        late edit is then refused.
        """
        method = self._evolution
        assert isinstance(method, CareEvolution | RatchetEvolution)
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.deadline_s):
                evolution = await self._contrasted(group, method.care)
        except TimeoutError:
            reason = f"no edit within {self.deadline_s:g} s"
            self._discard(group, "adaptive", "failed", reason, started, is_late=True)
            return
        if evolution is None:
            return
        if is_expired():
            self.counts.commit_conflicts += 1
            evolution = _refused(evolution, group.rubric, "the query was drawn again before it")
        await self._commit(group, evolution, "contrast", started)

    async def _contrasted(self, group: GradedGroup, care: CareConfig) -> Evolution | None:
        request = contrast_request(group, care, self._reward)
        if request is None:
            self.counts.skipped += 1
            return None
        reply = await self._writer.write(request)
        self.counts.writer_calls += 1
        self.counts.contrasts += int(reply.failure is None)
        return read_contrast(
            reply, request, group, care, self._reward, method=self._evolution.method
        )

    # -------------------------------------------------------------- committing
    async def _commit(
        self, group: GradedGroup, evolution: Evolution, stage: str, started: float
    ) -> bool:
        """Commit the next rubric and record its edits; False when the race was lost."""
        seconds = time.monotonic() - started
        self.counts.evolve_s += seconds
        self.counts.restored += evolution.num_restored
        from_version = group.rubric.version
        is_lost = False
        if evolution.rubric.version != from_version:
            result = await self._store.commit(
                Commit(
                    query_id=group.query.id,
                    from_version=from_version,
                    rubric=evolution.rubric,
                    edits=evolution.edits,
                    step=group.draw.step,
                    visit=group.draw.visit,
                    key=f"{group.query.id}:{group.draw.visit}:{stage}",
                    writer=self._writer.identity,
                    seconds=seconds,
                )
            )
            is_lost = result.status == "conflict"
            if result.status == "duplicate":  # of this very commit, or of an earlier life's other
                is_lost = await self._store.current(group.query.id) != evolution.rubric
        if is_lost:
            self.counts.commit_conflicts += 1
            evolution = _refused(
                evolution, group.rubric, f"version {from_version} is no longer current"
            )
        for edit in evolution.edits:
            self.counts.edits.append(edit)
            to_version = evolution.rubric.version if edit.status == "accepted" else from_version
            self._record_edit(group.draw, edit, from_version, to_version, seconds)
        return not is_lost

    def _discard(
        self,
        group: GradedGroup,
        branch: Branch,
        status: EditStatus,
        reason: str,
        started: float,
        *,
        is_late: bool = False,
    ) -> None:
        seconds = time.monotonic() - started
        self.counts.evolve_s += seconds
        self.counts.deadline_missed += int(is_late)
        log.warning("query %s, step %d: %s", group.query.id, group.draw.step, reason)
        edit = RubricEdit(
            method=self._evolution.method, branch=branch, status=status, reason=reason
        )
        self.counts.edits.append(edit)
        version = group.rubric.version
        self._record_edit(group.draw, edit, version, version, seconds)


def _refused(evolution: Evolution, rubric: Rubric, reason: str) -> Evolution:
    """The same edits, none of them accepted, on the unchanged rubric."""
    edits = tuple(
        replace(e, status="refused", reason=reason) if e.status == "accepted" else e
        for e in evolution.edits
    )
    return Evolution(rubric=rubric, edits=edits, num_restored=evolution.num_restored)
