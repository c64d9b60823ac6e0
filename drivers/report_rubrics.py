"""A run's rubrics for its report: criteria by version, and the ones that tell most.

The file is opened read-only and may belong to a run that goes on; a run without rubrics.sqlite has
no texts, and its verdicts are counted without them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from actors.rubric_log import RubricLog, RubricVersion
from core.rows import Row, puts_in_veto
from core.rubric import Criterion

MAX_RUBRICS = 40
"""Rubrics shown with all their versions."""


class RubricTexts:
    """Criteria by rubric and version."""

    def __init__(self, log: RubricLog | None) -> None:
        self._log = log
        self._criteria: dict[tuple[str, int], Mapping[str, Criterion]] = {}

    def history(self, rubric_id: str) -> tuple[RubricVersion, ...]:
        """Return all versions of a rubric, oldest first."""
        return self._log.history(rubric_id) if self._log is not None else ()

    def criteria(self, rubric_id: str, version: int) -> Mapping[str, Criterion]:
        """Return a version's criteria by id; none for one that is not there."""
        key = (rubric_id, version)
        if key not in self._criteria:
            for one in self.history(rubric_id):
                by_id = {c.id: c for c in one.rubric.criteria}
                self._criteria[rubric_id, one.version] = by_id
            self._criteria.setdefault(key, {})
        return self._criteria[key]

    def shown(self, events: Sequence[Row]) -> list[str]:
        """Return the rubrics to show, those with a veto put in first, then the most edited; without
        any edit, some as they were given."""
        if self._log is None:
            return []
        resisted = {e["query_id"] for e in events if puts_in_veto(e)}
        edited = Counter(v.query_id for v in self._log.edited())
        ranked = sorted(edited, key=lambda i: (i not in resisted, -edited[i], i))
        if len(ranked) < MAX_RUBRICS:
            ranked += [i for i in self._log.query_ids() if i not in edited]
        return ranked[:MAX_RUBRICS]
