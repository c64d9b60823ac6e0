"""Where a method's calls and commits go through: writer, judge and RubricStore, with the counts.

``commit`` makes an ``Evolution`` the store's next version by compare-and-set and writes each edit,
accepted or not, as an event; where edits wait for a person it proposes instead. ``discard`` records
an edit that came to nothing. Verdicts go through the store's cache.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from actors.rubric_log import RubricVersion
from core.config import RunConfig
from core.config_evolution import (
    CareEvolution,
    EvolutionConfig,
    RareEvolution,
    RatchetEvolution,
    deadline_s,
)
from core.grading.cache_key import verdict_key
from core.metrics import saturation_counts
from core.query import Query
from core.records import (
    Branch,
    Commit,
    Completion,
    EditEvent,
    EditOrigin,
    EditStatus,
    Evolution,
    GradedGroup,
    RescoreReply,
    RescoreRequest,
    RubricEdit,
    UngradedGroup,
    Verdict,
)
from core.rubric import Criterion, Rubric
from core.rules.verifiers import is_decidable
from core.writer_requests import WriterRequest
from drivers.grading import Grader
from drivers.methods.counts import EvolutionCounts
from drivers.ports import Parts
from drivers.whereabouts import at

log = logging.getLogger(__name__)

RecordEdit = Callable[[EditEvent], None]
"""Writes one line of events.jsonl."""


class EditIsLate(RuntimeError):
    """An edit did not come about within the deadline."""


class EditDesk:
    """One for a run; its method is the only caller."""

    def __init__(
        self, config: RunConfig, parts: Parts, grader: Grader, record_edit: RecordEdit
    ) -> None:
        self.config = config
        self.deadline_s = deadline_s(config.evolution)
        self.store = parts.store
        self.counts = EvolutionCounts()
        """Running totals, read and reset by the loop once a step."""
        self._method = config.evolution.method
        self.waits_for_person = _waits_for_person(config.evolution)
        """Whether edits are proposed to a person instead of committed."""
        self._writer = parts.writer
        self._judge = parts.judge
        self._grader = grader
        self._record_edit = record_edit

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Bound what is inside by the deadline of an edit; EditIsLate when it is over.

        A TimeoutError of something inside (a store that does not answer) is no late edit: it stays
        what it is and ends the run.
        """
        limit = asyncio.timeout(self.deadline_s)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if limit.expired():
                raise EditIsLate(f"not within {self.deadline_s:g} s") from error
            raise

    # -------------------------------------------------------------- calls
    async def write(self, request: WriterRequest) -> Completion:
        """Return the writer's raw reply; ``failure`` is set when there is none."""
        self.counts.writer_calls += 1
        with at("writing", request.query_id, actor="RubricWriter"):
            return await self._writer.write(request)

    async def grade(
        self, query: Query, response: str, criteria: Sequence[Criterion]
    ) -> dict[str, Verdict]:
        """Return a verdict on one response for each criterion; failures are not the run's."""
        return await self._grader.verdicts(query, response, criteria, is_counted=False)

    async def rescore(self, request: RescoreRequest) -> RescoreReply:
        """Ask the judge once for all cells; a step that is done again finds them in the store."""
        # The judge sees the whole group: other verdicts than those on one response alone.
        judge = f"{self._judge.identity} rescore {len(request.responses)}"
        context = "\x00".join((request.prompt, *request.responses))
        rows = [
            [(c.id, verdict_key(judge, context, c, response)) for c in request.criteria]
            for response in request.responses
        ]
        known = await self.store.cached_verdicts(tuple(key for row in rows for _, key in row))
        if all(key in known for row in rows for _, key in row):
            verdicts = tuple(
                tuple(replace(known[key], criterion_id=criterion_id) for criterion_id, key in row)
                for row in rows
            )
            return RescoreReply(verdicts=verdicts, judge=self._judge.identity)
        self.counts.rescored_calls += 1
        with at("rescoring", request.query_id, actor="Judge"):
            reply = await self._judge.rescore(request)
        fresh = {
            key: v
            for row, verdicts in zip(rows, reply.verdicts, strict=True)
            for (_, key), v in zip(row, verdicts, strict=True)
            if v.score is not None
        }
        await self.store.put_verdicts(fresh)
        return reply

    def saw(self, group: GradedGroup) -> None:
        """Count the group's saturated criteria, before any edit."""
        saturated, saturable = saturation_counts(group)
        self.counts.saturated += saturated
        self.counts.saturable += saturable

    async def has_waiting_edit(self, rubric_id: str) -> bool:
        """Whether an edit of this rubric waits for a person: no second one is made until then."""
        return self.waits_for_person and await self.store.num_waiting(rubric_id) > 0

    # -------------------------------------------------------------- committing
    async def commit(
        self, origin: EditOrigin, old: Rubric, evolution: Evolution, *, stage: str, started: float
    ) -> bool:
        """Make the evolution's rubric current and record its edits.

        False when the rubric stays as it is for now: the race was lost, a person must approve, or
        a judge that is code could never score it. ``stage`` tells the commits of one visit (or of
        one step of a shared rubric) apart.
        """
        seconds = time.monotonic() - started
        self.counts.evolve_s += seconds
        self.counts.restored += evolution.num_restored
        is_current = True
        unscorable = self._unscorable(old, evolution.rubric)
        if unscorable is not None:
            reason = f"judge.backend=rules cannot decide {unscorable.id!r}: {unscorable.text[:80]}"
            evolution, is_current = refused(evolution, old, reason), False
        if evolution.rubric.version != old.version:
            commit = Commit(
                query_id=origin.rubric_id,
                from_version=old.version,
                rubric=evolution.rubric,
                edits=evolution.edits,
                step=origin.step,
                visit=origin.visit,
                key=_commit_key(origin, stage),
                writer=self._writer.identity,
                seconds=seconds,
            )
            if self.waits_for_person:
                await self.store.propose(commit)
                evolution = _with_status(evolution, old, "waiting", "until a person approves it")
                is_current = False
            elif not await self._is_applied(commit):
                self.counts.commit_conflicts += 1
                evolution = refused(evolution, old, f"version {old.version} is no longer current")
                is_current = False
        self.record(origin, old.version, evolution, seconds)
        return is_current

    def _unscorable(self, old: Rubric, new: Rubric) -> Criterion | None:
        """Return a criterion that is new and that code, where it is the judge, cannot decide: every
        rollout of the query would be without a reward from then on."""
        if self.config.judge.backend != "rules":
            return None
        return next(
            (c for c in new.criteria if c not in old.criteria and not is_decidable(c)), None
        )

    async def _is_applied(self, commit: Commit) -> bool:
        result = await self.store.commit(commit)
        if result.status == "duplicate":  # of this very commit, or of an earlier life's other
            return await self.store.current(commit.query_id) == commit.rubric
        return result.status == "applied"

    async def history(self, rubric_id: str) -> Sequence[RubricVersion]:
        """Return all versions of a rubric, oldest first."""
        return await self.store.history(rubric_id)

    def committed(
        self, history: Sequence[RubricVersion], origin: EditOrigin, stage: str
    ) -> Rubric | None:
        """Return what this visit committed in an earlier life of the run; None when nothing."""
        key = _commit_key(origin, stage)
        return next((v.rubric for v in history if v.key == key), None)

    def record(
        self, origin: EditOrigin, from_version: int, evolution: Evolution, seconds: float
    ) -> None:
        """Write the edits as events, without a commit."""
        for edit in evolution.edits:
            self.counts.edits.append(edit)
            to_version = evolution.rubric.version if edit.status == "accepted" else from_version
            self._record_edit(
                EditEvent(
                    edit=edit,
                    origin=origin,
                    from_version=from_version,
                    to_version=to_version,
                    seconds=seconds,
                )
            )

    def discard(
        self,
        origin: EditOrigin,
        version: int,
        branch: Branch,
        reason: str,
        *,
        started: float,
        is_late: bool = False,
    ) -> None:
        """Record an edit that came to nothing: no reply, tries used up, too late."""
        seconds = time.monotonic() - started
        self.counts.evolve_s += seconds
        self.counts.deadline_missed += int(is_late)
        log.warning("rubric %s, step %d: %s", origin.rubric_id, origin.step, reason)
        edit = RubricEdit(method=self._method, branch=branch, status="failed", reason=reason)
        self.counts.edits.append(edit)
        self._record_edit(
            EditEvent(
                edit=edit,
                origin=origin,
                from_version=version,
                to_version=version,
                seconds=seconds,
            )
        )


class JointRescoring:
    """The joint rescoring of one event: asked once, also where some cell came back without a score
    (CARE's same step allows one such call an event)."""

    def __init__(self, desk: EditDesk) -> None:
        self._desk = desk
        self._request: RescoreRequest | None = None
        self._reply: RescoreReply | None = None

    async def of(self, request: RescoreRequest) -> RescoreReply:
        """Return the event's reply to this request."""
        if self._reply is None or self._request != request:
            self._request, self._reply = request, await self._desk.rescore(request)
        return self._reply


def refused(evolution: Evolution, rubric: Rubric, reason: str) -> Evolution:
    """The same edits, none of them accepted, on the unchanged rubric."""
    return _with_status(evolution, rubric, "refused", reason)


def origin_of(group: GradedGroup | UngradedGroup) -> EditOrigin:
    """Return where an edit of the group's own query comes from."""
    return EditOrigin(rubric_id=group.query.id, step=group.draw.step, visit=group.draw.visit)


def _commit_key(origin: EditOrigin, stage: str) -> str:
    return f"{origin.rubric_id}:{origin.visit}:{stage}"


def _with_status(
    evolution: Evolution, rubric: Rubric, status: EditStatus, reason: str
) -> Evolution:
    edits = tuple(
        replace(e, status=status, reason=reason) if e.status == "accepted" else e
        for e in evolution.edits
    )
    return Evolution(rubric=rubric, edits=edits, num_restored=evolution.num_restored)


def _waits_for_person(evolution: EvolutionConfig) -> bool:
    has_mode = isinstance(evolution, CareEvolution | RareEvolution | RatchetEvolution)
    return has_mode and evolution.approval == "person"
