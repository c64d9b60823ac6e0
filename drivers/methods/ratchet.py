"""Ratchet's own method: RARE's replacement, then CARE's contrast, over one graded group.

The replacement is committed as one version and rewards this step; the contrast looks at the group
under the rubric as it then stands and commits a second version for the query's next visit. Gates
look at both, a trigger decides whether the contrast is asked for.
"""

from collections.abc import Callable

from core.config_evolution import RatchetEvolution
from core.records import GradedGroup
from drivers.methods.base import Method
from drivers.methods.contrast import Contrast
from drivers.methods.desk import EditDesk
from drivers.methods.replacement import Replacement


class Ratchet(Method):
    """Both papers in one pass."""

    def __init__(self, desk: EditDesk, evolution: RatchetEvolution) -> None:
        super().__init__(desk)
        self._replacement = Replacement(desk, evolution.rare, evolution.gates)
        self._contrast = Contrast(desk, evolution.care, evolution.trigger, evolution.gates)

    @property
    def has_next_visit(self) -> bool:
        """See ``Method``."""
        return True

    def edits_same_step(self, group: GradedGroup) -> bool:
        """See ``Method``."""
        return self._replacement.is_due(group)

    async def same_step(self, group: GradedGroup) -> GradedGroup:
        """See ``Method``."""
        return await self._replacement.for_this_step(group)

    async def next_visit(self, group: GradedGroup, is_expired: Callable[[], bool]) -> None:
        """See ``Method``."""
        await self._contrast.for_next_visit(group, is_expired)
