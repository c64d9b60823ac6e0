"""MPO as a stage: analyse and refine each sample, merge once, commit for the next step.

The samples' two calls run side by side. A sample whose calls fail is left out; where none is left,
or the merge cannot be used, the old rubric stays and it is counted.
"""

import logging
from collections.abc import Sequence

from core.config_evolution import MpoEvolution
from core.errors import WriterReplyError
from core.evolution.mpo import draw_seed, drawn_samples, mpo_evolution, mpo_steps
from core.evolution.mpo_reply import read_analysis, read_merge, read_refinement
from core.query import shared_id
from core.records import Evolution, GradedGroup
from core.rubric import Rubric
from core.writer_requests import (
    MetaAnalysisRequest,
    MetaMergeRequest,
    MetaRefineRequest,
    ScoredSample,
)
from drivers.gathered import gathered
from drivers.methods.desk import EditDesk
from drivers.methods.shared_revision import NoRevision, SharedRevision

log = logging.getLogger(__name__)


class Mpo(SharedRevision):
    """Replaces each task's rubric after the scheduled steps by what the meta judge merged."""

    def __init__(self, desk: EditDesk, evolution: MpoEvolution) -> None:
        super().__init__(desk, mpo_steps(evolution.mpo, desk.config.loop.steps))
        self._config = evolution.mpo

    async def revised(
        self, task: str, rubric: Rubric, step: int, groups: Sequence[GradedGroup]
    ) -> Evolution:
        """See ``SharedRevision``."""
        config = self._desk.config
        current = [g for g in groups if g.rubric.version == rubric.version]
        seed = draw_seed(config.seed, task, step)
        samples = drawn_samples(current, self._config, config.reward, seed)
        if not samples:
            raise NoRevision(
                f"got no rollout of step {step} that is graded under version {rubric.version}, "
                "wanted at least one"
            )
        key = shared_id(task)
        results = await gathered(self._refined(key, rubric, sample) for sample in samples)
        refinements = [r for r in results if isinstance(r, str)]
        failures = [str(r) for r in results if not isinstance(r, str)]
        if not refinements:
            raise NoRevision(
                f"none of {len(samples)} samples was refined, the first: {failures[0]}"
            )
        request = MetaMergeRequest(
            query_id=key,
            rubric=rubric,
            refinements=tuple(refinements),
            max_points=self._config.max_points,
            max_criteria=self._config.max_criteria,
        )
        items = read_merge(
            await self._desk.write(request), request, [sample.response for sample in samples]
        )
        reason = f"merged from {len(refinements)} of {len(samples)} samples"
        return mpo_evolution(rubric, items, request, reason)

    async def _refined(
        self, key: str, rubric: Rubric, sample: ScoredSample
    ) -> str | WriterReplyError:
        """Return the criteria that one sample asks for, or why there are none."""
        try:
            analysis = await self._desk.write(
                MetaAnalysisRequest(query_id=key, rubric=rubric, sample=sample)
            )
            request = MetaRefineRequest(
                query_id=key,
                rubric=rubric,
                sample=sample,
                analysis=read_analysis(analysis),
                max_points=self._config.max_points,
                max_criteria=self._config.max_criteria,
            )
            return read_refinement(await self._desk.write(request), request)
        except WriterReplyError as error:
            log.warning("%s: sample of query %s left out: %s", key, sample.query_id, error)
            return error
