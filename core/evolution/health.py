"""How well each criterion of a rubric still does its work, from the verdicts of a run's rollouts.

Pure arithmetic over groups (the rollouts of one draw, graded under one version). Of a criterion
count the groups since it has stood in the rubric unchanged. A score is a share of the maximum, and
a failed verdict is no score: it is counted in ``failure_rate`` and nowhere else. What cannot be
known (no group, no spread) is None, never 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.config import RewardConfig
from core.records import Verdict
from core.reward import rollout_reward
from core.rubric import Cap, Criterion, Rubric


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictGroup:
    """The verdicts of one draw's rollouts."""

    step: int
    version: int
    """Of the rubric they were graded under."""
    rollouts: tuple[Mapping[str, Verdict], ...]
    """[G], by criterion id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CriterionHealth:
    """What the rollouts say about one criterion of the current version."""

    criterion: Criterion
    since_version: int
    """From which version on it has stood unchanged."""
    visits: int
    """Groups with at least one score."""
    num_scores: int
    discrimination: float | None
    """Population deviation of its scores in a group, mean over groups with two scores or more."""
    rest_correlation: float | None
    """Pearson correlation of what its score adds to the reward (of a penalty: takes away) with the
    reward of the rest of the rubric, within groups."""
    full_rate: float | None
    """Share of its scores that are full."""
    all_full_rate: float | None
    """Share of the groups in which every score is full: saturated from above."""
    all_zero_rate: float | None
    """Share of the groups in which every score is 0."""
    veto_rate: float | None
    """Share of the scores that veto; None for a criterion that is no [Resist]."""
    failure_rate: float | None
    """Share of its verdicts that are failures."""
    age_steps: int
    """Steps of the run since the version that brought it in."""
    age_visits: int
    """Groups graded since then."""


def discrimination(scores: Sequence[float]) -> float:
    """Return the population deviation of a group's scores (as shares of the maximum)."""
    if len(scores) < 2:
        return 0.0
    mean = math.fsum(scores) / len(scores)
    return math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / len(scores))


def rubric_health(
    versions: Sequence[Rubric],
    steps: Mapping[int, int],
    groups: Sequence[VerdictGroup],
    config: RewardConfig,
    last_step: int,
) -> tuple[CriterionHealth, ...]:
    """Return the health of each criterion of the last version.

    ``versions`` are all versions, oldest first, ``steps`` the step of each version, ``groups`` the
    rubric's graded groups in order of time, ``last_step`` the last step of the run.
    """
    by_version = {r.version: r for r in versions}
    return tuple(
        _criterion_health(c, by_version, steps, groups, config, last_step)
        for c in versions[-1].criteria
    )


def _criterion_health(
    criterion: Criterion,
    versions: Mapping[int, Rubric],
    steps: Mapping[int, int],
    groups: Sequence[VerdictGroup],
    config: RewardConfig,
    last_step: int,
) -> CriterionHealth:
    since = _since(criterion, versions)
    own = [g for g in groups if g.version >= since and g.version in versions]
    scores = [_shares(criterion, g) for g in own]
    scored = [s for s in scores if s]
    flat = [s for group in scored for s in group]
    num_verdicts = sum(criterion.id in r for g in own for r in g.rollouts)
    return CriterionHealth(
        criterion=criterion,
        since_version=since,
        visits=len(scored),
        num_scores=len(flat),
        discrimination=_mean([discrimination(s) for s in scored if len(s) > 1]),
        rest_correlation=_rest_correlation(criterion, versions, own, config),
        full_rate=_share([s >= 1 for s in flat]),
        all_full_rate=_share([min(s) >= 1 for s in scored]),
        all_zero_rate=_share([max(s) <= 0 for s in scored]),
        veto_rate=_share([s <= 0 for s in flat]) if criterion.is_resist else None,
        failure_rate=(num_verdicts - len(flat)) / num_verdicts if num_verdicts else None,
        age_steps=max(0, last_step - steps.get(since, 0)),
        age_visits=len(own),
    )


def _since(criterion: Criterion, versions: Mapping[int, Rubric]) -> int:
    """The version from which on the criterion has been in every one up to the last, unchanged."""
    since = max(versions)
    for version in sorted(versions, reverse=True):
        if criterion not in versions[version].criteria:
            break
        since = version
    return since


def _shares(criterion: Criterion, group: VerdictGroup) -> list[float]:
    verdicts = [r[criterion.id] for r in group.rollouts if criterion.id in r]
    return [v.score / v.max for v in verdicts if v.score is not None]


# ------------------------------------------------------------------ the rest of the rubric
def _rest_correlation(
    criterion: Criterion,
    versions: Mapping[int, Rubric],
    groups: Sequence[VerdictGroup],
    config: RewardConfig,
) -> float | None:
    """Correlate deviations from the group's means, so that easy and hard queries do not count."""
    xs: list[float] = []
    ys: list[float] = []
    sign = -1.0 if criterion.is_penalty else 1.0
    for group in groups:
        rest = _without(criterion, versions[group.version])
        if rest is None:
            continue
        pairs = [
            (sign * v.score / v.max, reward)
            for r in group.rollouts
            if (v := r.get(criterion.id)) is not None
            and v.score is not None
            and (reward := rollout_reward(rest, r, config).value) is not None
        ]
        xs += _centred([x for x, _ in pairs])
        ys += _centred([y for _, y in pairs])
    spread = math.sqrt(math.fsum(x * x for x in xs) * math.fsum(y * y for y in ys))
    if spread < 1e-12:
        return None
    return math.fsum(x * y for x, y in zip(xs, ys, strict=True)) / spread


def _without(criterion: Criterion, rubric: Rubric) -> Rubric | None:
    rest = tuple(c for c in rubric.criteria if c.id != criterion.id)
    if not any(c.weight > 0 for c in rest):
        return None
    caps: tuple[Cap, ...] = tuple(c for c in rubric.caps if c.criterion_id != criterion.id)
    return Rubric(version=rubric.version, criteria=rest, caps=caps)


def _centred(values: Sequence[float]) -> list[float]:
    mean = _mean(values)
    return [] if mean is None else [v - mean for v in values]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


# ------------------------------------------------------------------ asking the judge again
@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """How often the judge, asked again, gave another score."""

    num_asked: int
    """Verdicts that had a score and were asked for again."""
    num_failed: int
    """Of these, failures the second time."""
    rate: float | None
    """Share of the pairs of scores that differ."""
    mean_difference: float | None
    """Mean size of the difference, as a share of the maximum."""


def disagreement(pairs: Sequence[tuple[Verdict, Verdict]]) -> Disagreement:
    """Compare verdicts of one criterion (before, again); those unscored before are left out."""
    asked = [(a, b) for a, b in pairs if a.score is not None]
    gaps = [
        abs(a.score / a.max - b.score / b.max)
        for a, b in asked
        if a.score is not None and b.score is not None
    ]
    return Disagreement(
        num_asked=len(asked),
        num_failed=len(asked) - len(gaps),
        rate=_share([g > 0 for g in gaps]),
        mean_difference=_mean(gaps),
    )


# ------------------------------------------------------------------ what stands out
Sign = Literal["never_scored", "always_full", "always_zero", "flat", "against_the_rest", "fails"]

MIN_VISITS = 3
"""Fewer groups than this say nothing yet."""
_AGAINST = -0.3
_STANDARD_ERRORS = 3.0
"""How many of its standard errors (1 / sqrt(scores)) a correlation must be away from 0."""
_OFTEN_FAILS = 0.2
_NEARLY_ALL = 0.9


def signs(health: CriterionHealth) -> tuple[Sign, ...]:
    """Return what about a criterion deserves a look; a rule of thumb, no verdict.

    A limit that no rollout breaks does its work: a [Resist] all pass, a penalty none earns.
    """
    found: list[Sign] = []
    if health.age_visits >= MIN_VISITS and health.visits == 0:
        found.append("never_scored")
    if health.failure_rate is not None and health.failure_rate > _OFTEN_FAILS:
        found.append("fails")
    if health.visits < MIN_VISITS:
        return tuple(found)
    is_resist, is_penalty = health.criterion.is_resist, health.criterion.is_penalty
    if (health.all_full_rate or 0.0) >= _NEARLY_ALL and not is_resist:
        found.append("always_full")
    elif (health.all_zero_rate or 0.0) >= _NEARLY_ALL and not is_penalty:
        found.append("always_zero")
    elif health.discrimination == 0 and not (is_resist or is_penalty):
        found.append("flat")
    error = _STANDARD_ERRORS / math.sqrt(health.num_scores)
    if (health.rest_correlation or 0.0) < min(_AGAINST, -error):
        found.append("against_the_rest")
    return tuple(found)
