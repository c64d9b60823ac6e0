"""What the loop asks of a method: hooks around grading, reward and update.

Every hook does nothing by default, which is the method ``static``. A method decides with the pure
code in ``core/evolution`` and acts through its ``EditDesk``. No hook raises for a writer or judge
that failed: the old rubric and the old rewards stay, and it is counted. The hooks of one draw, in
order: ``ready``, ``control``, ``grading_rubric`` (whole groups only), ``edits_same_step``,
``same_step``, ``next_visit``; of one step: ``step_collected``.
"""

from collections.abc import Callable, Sequence

from core.query import Query
from core.records import Draw, GradedGroup, Rollout, ScoredGroup, UngradedGroup
from core.rubric import Rubric
from drivers.methods.desk import EditDesk


class Method:
    """The method ``static``, and the base of all others."""

    grades_whole_groups: bool = False
    """Whether the rubric of a group depends on its rollouts: the judge then waits for them all."""

    def __init__(self, desk: EditDesk) -> None:
        self._desk = desk

    @property
    def has_next_visit(self) -> bool:
        """Whether edits run beside the update and take effect at the query's next draw."""
        return False

    @property
    def deadline_s(self) -> float:
        """Longest wait for one edit."""
        return self._desk.deadline_s

    async def ready(self, draw: Draw) -> None:
        """Wait, no longer than the deadline, until the draw's rubric may be pinned."""

    async def control(self, draw: Draw, query: Query) -> tuple[Rollout, ...]:
        """Return rollouts of another policy, generated beside the group's own."""
        return ()

    async def grading_rubric(self, group: UngradedGroup) -> Rubric:
        """Return the rubric that the group is graded under, committed if it is a new version."""
        return group.rubric

    def edits_same_step(self, group: GradedGroup) -> bool:
        """Whether ``same_step`` will ask for an edit: the group's rewards then come late, and the
        others' training passes need not wait for them."""
        return False

    async def same_step(self, group: GradedGroup) -> GradedGroup:
        """Return the group under the rubric that rewards it in this step."""
        return group

    async def next_visit(self, group: GradedGroup, is_expired: Callable[[], bool]) -> None:
        """Edit the rubric for the query's next draw, beside the policy update.

        ``is_expired`` tells whether the query was drawn again meanwhile with the old rubric; a
        late edit is then refused.
        """

    def step_collected(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Look at the groups of a step, complete and rewarded, before its update begins."""

    def resume(self, past: Sequence[GradedGroup]) -> None:
        """Take up the groups of the last steps before a resume, oldest first."""

    async def drain(self) -> None:
        """Wait for what ``step_collected`` began; a checkpoint follows."""

    async def close(self) -> None:
        """Cancel what still runs."""
