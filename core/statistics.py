"""Intervals, agreement and averages of what was measured.

All intervals of means are percentile bootstraps (10,000 replicates unless said otherwise), drawn
from a generator of their own, so that the same values and seed give the same interval. Values are
means of what is known: what is missing is left out by the caller, who counts it. An empty input or
a number that is not finite raises ValueError, since no mean of it exists; what is well defined but
cannot be computed from what is there (the deviation of one seed, the agreement on one value) is
None. Krippendorff's alpha comes from the krippendorff library, proportions from statsmodels.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REPLICATES = 10_000

MeasurementLevel = Literal["nominal", "ordinal", "interval", "ratio"]

_CELLS_AT_ONCE = 4_000_000
"""Draws held in memory at one time."""


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, in the unit of what it is about."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """The mean of ``a - b`` over the ids that both have."""

    difference: float
    interval: Interval
    num_pairs: int
    num_only_a: int
    """Ids of ``a`` without a value in ``b``: left out."""
    num_only_b: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OverSeeds:
    """Mean and sample deviation (divisor n - 1) over training seeds."""

    mean: float
    deviation: float | None
    """None for one seed."""
    num_seeds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedMean:
    """Means within each type, over types for each seed, and over seeds."""

    by_seed: Mapping[str, float]
    by_type: Mapping[str, OverSeeds]
    overall: OverSeeds


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A share of cases, and how many cases could not be counted."""

    value: float | None
    """0..1; None when no case could be counted."""
    n: int
    missing: int


# ------------------------------------------------------------------ bootstrap
def bootstrap_interval(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Return the percentile bootstrap interval of the mean of ``values``.

    ``clusters``: labels in the order of ``values``; clusters are resampled whole, so the mean of a
    replicate is the sum over its values divided by their number. ``strata``: labels; each stratum
    keeps its number of clusters (or values) in every replicate, and a cluster's label counts within
    its stratum. Sources: CARE appendix D.4 (paired prompts, 10,000 replicates, percentile), RARE
    appendix A.3.1 (pairs within video type) and A.4 (source-video clusters within datasets).

    Raises ValueError for no values, values that are not finite, and labels of another length.
    """
    import numpy as np

    _check(values, replicates, level)
    sums, sizes, groups = _clustered(values, clusters, strata)
    generator = np.random.default_rng(seed)
    totals, counts = np.zeros(replicates), np.zeros(replicates)
    for members in groups:
        _add_resampled(generator, sums[members], sizes[members], totals, counts)
    tail = 100.0 * (1.0 - level) / 2.0
    low, high = np.percentile(totals / counts, [tail, 100.0 - tail])
    return Interval(float(low), float(high))


def paired_difference(
    a: Mapping[str, float],
    b: Mapping[str, float],
    *,
    clusters: Mapping[str, Hashable] | None = None,
    strata: Mapping[str, Hashable] | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
    level: float = 0.95,
) -> PairedDifference:
    """Return the mean of ``a - b`` over common ids, with its interval (CARE appendix D.4).

    Pairs are kept whole; ``clusters`` and ``strata`` give labels by id, as in
    ``bootstrap_interval``. Raises ValueError for no common id and an id without a label.
    """
    ids = sorted(a.keys() & b.keys())
    if not ids:
        raise ValueError(
            f"got {len(a)} and {len(b)} values without a common id, wanted values to pair by id"
        )
    differences = [a[i] - b[i] for i in ids]
    interval = bootstrap_interval(
        differences,
        clusters=_labels(ids, clusters, "cluster"),
        strata=_labels(ids, strata, "stratum"),
        replicates=replicates,
        seed=seed,
        level=level,
    )
    return PairedDifference(
        difference=math.fsum(differences) / len(ids),
        interval=interval,
        num_pairs=len(ids),
        num_only_a=len(a) - len(ids),
        num_only_b=len(b) - len(ids),
    )


def _check(values: Sequence[float], replicates: int, level: float) -> None:
    _check_values(values)
    if replicates < 1 or not 0.0 < level < 1.0:
        raise ValueError(
            f"got replicates={replicates} and level={level}, wanted at least 1 and a level "
            "between 0 and 1"
        )


def _check_values(values: Sequence[float]) -> None:
    if not values:
        raise ValueError("got no values, wanted at least one")
    bad = [v for v in values if not math.isfinite(v)]
    if bad:
        raise ValueError(
            f"got {len(bad)} of {len(values)} values that are not finite (first {bad[0]}), wanted "
            "numbers: leave out what is missing, and count it"
        )


def _labels(
    ids: Sequence[str], labels: Mapping[str, Hashable] | None, what: str
) -> list[Hashable] | None:
    if labels is None:
        return None
    lacking = [i for i in ids if i not in labels]
    if lacking:
        raise ValueError(f"got no {what} for {lacking[0][:80]!r}, wanted one for each paired id")
    return [labels[i] for i in ids]


def _clustered(
    values: Sequence[float],
    clusters: Sequence[Hashable] | None,
    strata: Sequence[Hashable] | None,
) -> "tuple[NDArray[np.float64], NDArray[np.float64], list[list[int]]]":
    """Return sum and size of each cluster, and each stratum's clusters by position."""
    import numpy as np

    for name, labels in (("clusters", clusters), ("strata", strata)):
        if labels is not None and len(labels) != len(values):
            raise ValueError(
                f"got {len(labels)} {name} for {len(values)} values, wanted a label for each"
            )
    place: dict[tuple[Hashable, Hashable], int] = {}
    groups: dict[Hashable, list[int]] = {}
    sums: list[float] = []
    sizes: list[float] = []
    for position, value in enumerate(values):
        stratum = None if strata is None else strata[position]
        key = (stratum, position if clusters is None else clusters[position])
        if key not in place:
            place[key] = len(sums)
            groups.setdefault(stratum, []).append(len(sums))
            sums.append(0.0)
            sizes.append(0.0)
        sums[place[key]] += value
        sizes[place[key]] += 1.0
    return np.asarray(sums), np.asarray(sizes), list(groups.values())


def _add_resampled(
    generator: "np.random.Generator",
    sums: "NDArray[np.float64]",
    sizes: "NDArray[np.float64]",
    totals: "NDArray[np.float64]",
    counts: "NDArray[np.float64]",
) -> None:
    """Add one stratum's resampled sums and sizes to each replicate, some replicates at a time."""
    num_clusters = len(sums)
    rows = max(1, _CELLS_AT_ONCE // num_clusters)
    for start in range(0, len(totals), rows):
        part = slice(start, min(start + rows, len(totals)))
        drawn = generator.integers(num_clusters, size=(part.stop - part.start, num_clusters))
        totals[part] += sums[drawn].sum(axis=1)
        counts[part] += sizes[drawn].sum(axis=1)


# ------------------------------------------------------------------ means
def over_seeds(values: Sequence[float]) -> OverSeeds:
    """Return mean and sample deviation (CARE table 6: mean and SD over training seeds)."""
    _check_values(values)
    mean = math.fsum(values) / len(values)
    squares = math.fsum((v - mean) ** 2 for v in values)
    deviation = math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None
    return OverSeeds(mean=mean, deviation=deviation, num_seeds=len(values))


def nested_mean(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> NestedMean:
    """Return means within each type, over types equally, then over seeds (RARE appendix A.3).

    ``scores[seed][type]`` holds one value a query. Raises ValueError when seeds differ in their
    types, since their means would then be of different things.
    """
    if not scores:
        raise ValueError("got no seeds, wanted scores of at least one")
    types = sorted(next(iter(scores.values())))
    for seed, by_type in scores.items():
        if sorted(by_type) != types or not types:
            raise ValueError(
                f"got the types {sorted(by_type)} for seed {seed!r}, wanted the same ones for "
                f"every seed (the first has {types})"
            )
    means = {
        seed: {t: over_seeds(by_type[t]).mean for t in types} for seed, by_type in scores.items()
    }
    by_seed = {seed: over_seeds(list(m.values())).mean for seed, m in means.items()}
    return NestedMean(
        by_seed=by_seed,
        by_type={t: over_seeds([m[t] for m in means.values()]) for t in types},
        overall=over_seeds(list(by_seed.values())),
    )


# ------------------------------------------------------------------ preferences and agreement
def preference_score(wins: int, ties: int, losses: int) -> float:
    """Return (wins + ties / 2) / n, 0..1 (RARE section 5.4: ties and pairs without a majority count
    half a win). ValueError for no cases and negative counts."""
    n = wins + ties + losses
    if min(wins, ties, losses) < 0 or n == 0:
        raise ValueError(
            f"got {wins} wins, {ties} ties and {losses} losses, wanted counts with at least one "
            "case"
        )
    return (wins + ties / 2) / n


def directional_agreement(outcomes: Iterable[tuple[str | None, str | None]]) -> Share:
    """Return the share of judgments that the order of the two texts leaves unchanged (RARE appendix
    A.3).

    Each case is the outcome in one order and in the other, both said of the same two sides (so the
    second is swapped back); a case with a None is missing.
    """
    cases = list(outcomes)
    known = [(x, y) for x, y in cases if x is not None and y is not None]
    value = sum(x == y for x, y in known) / len(known) if known else None
    return Share(value=value, n=len(known), missing=len(cases) - len(known))


def krippendorff_alpha(
    ratings: Mapping[str, Mapping[str, str | float]], level: MeasurementLevel = "nominal"
) -> float | None:
    """Return Krippendorff's alpha of ``ratings[rater][item]``; an item that a rater has not rated
    is left out there.

    None when no item has two ratings, or all of those that have are the same value: then chance
    agreement is not defined. ValueError for labels that are no numbers at another level than
    nominal.
    """
    items = _rated_twice(ratings)
    rows = {rater: {i: v for i, v in by.items() if i in items} for rater, by in ratings.items()}
    rows = {rater: by for rater, by in rows.items() if by}
    domain = sorted({v for by in rows.values() for v in by.values()}, key=repr)
    if len(domain) < 2:
        return None
    if level != "nominal" and any(isinstance(v, str) for v in domain):
        raise ValueError(f"got labels that are no numbers ({domain[0]!r}), wanted level='nominal'")
    codes = {v: float(i) if level == "nominal" else float(v) for i, v in enumerate(domain)}
    order = sorted(items)
    data = [[codes[by[i]] if i in by else math.nan for i in order] for by in rows.values()]
    return _alpha(data, level)


def _rated_twice(ratings: Mapping[str, Mapping[str, Any]]) -> set[str]:
    times: dict[str, int] = {}
    for by_item in ratings.values():
        for item in by_item:
            times[item] = times.get(item, 0) + 1
    return {item for item, count in times.items() if count > 1}


def _alpha(data: list[list[float]], level: MeasurementLevel) -> float:
    import krippendorff  # pyright: ignore[reportMissingTypeStubs]

    return float(krippendorff.alpha(reliability_data=data, level_of_measurement=level))


def proportion_interval(count: int, n: int, *, level: float = 0.95) -> Interval:
    """Return Wilson's interval of a proportion, 0..1 (statsmodels); ValueError for no cases."""
    if not 0 <= count <= n or n == 0:
        raise ValueError(f"got {count} of {n} cases, wanted a count within at least one case")
    proportion: Any = import_module("statsmodels.stats.proportion")  # it has no types
    made = proportion.proportion_confint(count, n, alpha=1.0 - level, method="wilson")
    return Interval(float(made[0]), float(made[1]))
