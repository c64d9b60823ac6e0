"""RARE's sample level as a stage: ask for replacements, rescore once, commit, reward by them.

All or nothing: a writer whose tries are used up, a rescoring that misses a cell, a deadline or a
lost race leave the group with its old rubric and old rewards (RARE appendix A.2.1). Gates, where
they are on, take single replacements out before the commit.
"""

import time
from dataclasses import replace

from core.config_evolution import GatesConfig, RareConfig
from core.errors import WriterReplyError
from core.evolution.rare import (
    Replaced,
    apply_replacements,
    read_replacements,
    replacement_request,
    rescore_request,
)
from core.records import GradedGroup
from core.writer_requests import ReplacementRequest
from drivers.methods.desk import EditDesk, EditIsLate, origin_of
from drivers.methods.gatekeeper import Gatekeeper

_BRANCH = "replacement"


class Replacement:
    """Replaces the saturated criteria of a group."""

    def __init__(self, desk: EditDesk, rare: RareConfig, gates: GatesConfig | None = None) -> None:
        self._desk = desk
        self._rare = rare
        self._gatekeeper = Gatekeeper(gates or GatesConfig(), desk)

    def is_due(self, group: GradedGroup) -> bool:
        """Whether the group has saturated criteria to replace."""
        return replacement_request(group, self._rare) is not None

    async def for_this_step(self, group: GradedGroup) -> GradedGroup:
        """Return the group under the next rubric version, or as it is."""
        request = replacement_request(group, self._rare)
        if request is None or await self._desk.has_waiting_edit(group.query.id):
            return group
        started = time.monotonic()
        origin, version = origin_of(group), group.rubric.version
        try:
            async with self._desk.deadline():
                replaced = await self._written(group, request)
        except EditIsLate:
            reason = f"no replacement within {self._desk.deadline_s:g} s"
            self._desk.discard(origin, version, _BRANCH, reason, started=started, is_late=True)
            return group
        except WriterReplyError as error:
            self._desk.discard(origin, version, _BRANCH, str(error), started=started)
            return group
        replaced = self._gatekeeper.passed(group, replaced)
        is_current = await self._desk.commit(
            origin, group.rubric, replaced.evolution, stage=_BRANCH, started=started
        )
        return replaced.group if is_current else group

    async def _written(self, group: GradedGroup, request: ReplacementRequest) -> Replaced:
        """Ask until the writer gives exactly the wanted replacements, then rescore once."""
        error = WriterReplyError("no try was made")
        for _ in range(self._rare.max_attempts):
            reply = await self._desk.write(request)
            try:
                replacements = read_replacements(reply, request)
                break
            except WriterReplyError as unusable:
                error = unusable
                request = replace(request, error=str(unusable))
        else:
            raise WriterReplyError(f"{self._rare.max_attempts} tries, the last refused: {error}")
        scores = await self._desk.rescore(rescore_request(group, replacements))
        method = self._desk.config.evolution.method
        return apply_replacements(group, replacements, scores, method=method)
