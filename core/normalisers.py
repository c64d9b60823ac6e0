"""Named ways of turning a rubric's scores into one number.

Public rubric sets are defined with different denominators, and the choice changes results, so each
has a name of its own. Every function takes weights (maxima for ``max_points``) and scores in the
same order. None means that the number is not defined (nothing to divide by): never a zero.
"""

from collections.abc import Callable, Mapping, Sequence

Normaliser = Callable[[Sequence[float], Sequence[float]], float | None]


def _products(weights: Sequence[float], scores: Sequence[float]) -> float:
    return sum(w * s for w, s in zip(weights, scores, strict=True))


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom > 0 else None


def pos_sum(weights: Sequence[float], scores: Sequence[float]) -> float | None:
    """Sum of w*s over the sum of positive weights (HealthBench, Online Rubrics).

    Scores are 0..1; a negative weight subtracts, so the result can be below 0.
    """
    return _ratio(_products(weights, scores), sum(w for w in weights if w > 0))


def pos_sum_floor1(weights: Sequence[float], scores: Sequence[float]) -> float | None:
    """``pos_sum`` whose denominator is never below 1 (DR Tulu's RLER)."""
    return _products(weights, scores) / max(sum(w for w in weights if w > 0), 1.0)


def abs_sum(weights: Sequence[float], scores: Sequence[float]) -> float | None:
    """Sum of w*s over the sum of |w| (open-instruct's RubricVerifier)."""
    return _ratio(_products(weights, scores), sum(abs(w) for w in weights))


def max_points(maxima: Sequence[float], scores: Sequence[float]) -> float | None:
    """Sum of scores over the sum of maxima (RARE section 3.1); scores are 0..max."""
    assert len(maxima) == len(scores), (maxima, scores)
    return _ratio(sum(scores), sum(maxima))


def raw_sum(weights: Sequence[float], scores: Sequence[float]) -> float | None:
    """Sum of w*s, not normalised (Chasing the Tail's released code)."""
    return _products(weights, scores)


def weight100(weights: Sequence[float], scores: Sequence[float]) -> float | None:
    """Sum of w*s over 100 * sum of w, clipped to 0..1 (RLCF); scores are 0..100."""
    value = _ratio(_products(weights, scores), 100.0 * sum(weights))
    return None if value is None else min(1.0, max(0.0, value))


NORMALISERS: Mapping[str, Normaliser] = {
    "pos_sum": pos_sum,
    "pos_sum_floor1": pos_sum_floor1,
    "abs_sum": abs_sum,
    "max_points": max_points,
    "raw_sum": raw_sum,
    "weight100": weight100,
}
