"""MPO (Meta Policy Optimization, arXiv 2504.20157): a meta judge refines a task's shared rubric.

What is decided here, all of it pure: the steps after which a run revises (every ``every_steps``, as
MPO's launch script; or evenly spaced, as RARE adapts it to the frequency of its own revisions,
appendix A.2.2), which scored rollouts the meta judge looks at, and the rubric that its merged
criteria make. The released code rewards by the plain sum of scores; here the rubric's sum of
maxima divides it, as for every other method. The merged set takes the place of the whole rubric
except for [Resist] criteria, which only a person loosens, and for penalties (negative weights),
whose score means the opposite of what the meta judge writes; the caps go with their criteria.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.config import RewardConfig
from core.config_evolution import MpoConfig
from core.evolution.rare_task import revision_steps, seeded
from core.evolution.similarity import compact_text
from core.grading.visible import visible_response
from core.records import Evolution, GradedGroup, RubricEdit
from core.reward import rollout_reward
from core.rubric import Criterion, Rubric
from core.writer_requests import MetaMergeRequest, ScoredSample


@dataclass(frozen=True, kw_only=True, slots=True)
class MpoItem:
    """One criterion as the meta judge wrote it."""

    text: str
    levels: dict[int, str] | None = None
    """None where the text does not give each level a line of its own."""


def mpo_steps(mpo: MpoConfig, num_steps: int) -> tuple[int, ...]:
    """Return the steps after which the rubric is revised; none after the last one."""
    if mpo.revisions is not None:
        return revision_steps(num_steps, mpo.revisions)
    assert mpo.every_steps is not None, "the config has one schedule"
    return tuple(range(mpo.every_steps, num_steps, mpo.every_steps))


def drawn_samples(
    groups: Sequence[GradedGroup], mpo: MpoConfig, reward: RewardConfig, draw_seed: str
) -> tuple[ScoredSample, ...]:
    """Return rollouts of one step, drawn without replacement from those that have a reward."""
    samples = [
        ScoredSample(
            query_id=group.query.id,
            prompt=group.query.prompt_text,
            response=visible_response(member.rollout.response),
            reward=value,
            verdicts=member.verdicts,
        )
        for group in sorted(groups, key=lambda g: g.draw.position)
        for member in group.rollouts
        if (value := rollout_reward(group.rubric, member.verdicts, reward).value) is not None
    ]
    rng = seeded(draw_seed)
    return tuple(rng.sample(samples, min(mpo.num_samples, len(samples))))


def draw_seed(seed: int, task: str, step: int) -> str:
    """Return what the draw of samples is seeded with."""
    return f"mpo:{seed}:{task}:{step}"


def mpo_evolution(
    rubric: Rubric, items: Sequence[MpoItem], request: MetaMergeRequest, reason: str
) -> Evolution:
    """Return the rubric of the merged criteria, one edit for each that comes or goes.

    Ids are ``mpo_<version>_<n>``, the scale is 0..``max_points``, weights are 1. A set that says
    what the rubric says already changes nothing.
    """
    version = rubric.version + 1
    limits = tuple(c for c in rubric.criteria if c.is_resist or c.is_penalty)
    taken = {c.id for c in limits}
    names = (i for n in itertools.count(1) if (i := f"mpo_{version}_{n}") not in taken)
    new = tuple(
        Criterion(id=name, text=item.text, max=request.max_points, levels=item.levels)
        for name, item in zip(names, items, strict=False)
    )
    old = tuple(c for c in rubric.criteria if c not in limits)
    if {_content(c) for c in new} == {_content(c) for c in old}:
        same = RubricEdit(
            method="mpo", branch="task", status="noop", reason="the merged criteria are the old"
        )
        return Evolution(rubric=rubric, edits=(same,))
    accepted = RubricEdit(method="mpo", branch="task", status="accepted", reason=reason)
    caps = tuple(cap for cap in rubric.caps if cap.criterion_id in taken)
    return Evolution(
        rubric=Rubric(version=version, criteria=(*new, *limits), caps=caps),
        edits=(
            *(replace(accepted, new=c) for c in new),
            *(replace(accepted, old=c) for c in old),
        ),
    )


def _content(criterion: Criterion) -> tuple[str, int, tuple[str, ...]]:
    levels = criterion.levels or {}
    texts = tuple(compact_text(levels[level]) for level in sorted(levels))
    return compact_text(criterion.text), criterion.max, texts
