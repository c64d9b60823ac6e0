"""RARE at sample level: replace what a whole group satisfies, in the same step (section 3.2)."""

from core.config_evolution import RareEvolution
from core.records import GradedGroup
from drivers.methods.base import Method
from drivers.methods.desk import EditDesk
from drivers.methods.replacement import Replacement


class Rare(Method):
    """Replacements that reward the same rollouts."""

    def __init__(self, desk: EditDesk, evolution: RareEvolution) -> None:
        super().__init__(desk)
        self._replacement = Replacement(desk, evolution.rare)

    def edits_same_step(self, group: GradedGroup) -> bool:
        """See ``Method``."""
        return self._replacement.is_due(group)

    async def same_step(self, group: GradedGroup) -> GradedGroup:
        """See ``Method``."""
        return await self._replacement.for_this_step(group)
