"""CARE: contrast each group's top rollout with the anchor (CARE section 3.4)."""

from collections.abc import Callable

from core.config_evolution import CareEvolution
from core.records import GradedGroup
from drivers.methods.base import Method
from drivers.methods.contrast import Contrast
from drivers.methods.desk import EditDesk


class Care(Method):
    """Edits for the query's next visit, or for the same step."""

    def __init__(self, desk: EditDesk, evolution: CareEvolution) -> None:
        super().__init__(desk)
        self._is_same_step = evolution.apply == "same_step"
        self._contrast = Contrast(desk, evolution.care, evolution.trigger, evolution.gates)

    @property
    def has_next_visit(self) -> bool:
        """See ``Method``."""
        return not self._is_same_step

    def edits_same_step(self, group: GradedGroup) -> bool:
        """See ``Method``."""
        return self._is_same_step and self._contrast.is_due(group)

    async def same_step(self, group: GradedGroup) -> GradedGroup:
        """See ``Method``."""
        return await self._contrast.for_this_step(group) if self._is_same_step else group

    async def next_visit(self, group: GradedGroup, is_expired: Callable[[], bool]) -> None:
        """See ``Method``."""
        await self._contrast.for_next_visit(group, is_expired)
