"""The optimum of a Bradley-Terry model with covariates, by scipy, or for thousands of replicates.

The loss is that of Arena-Hard's style control (github lmarena/arena-hard-auto,
utils/math_utils.py): the sum over battles of the cross-entropy of sigmoid(row of the design times
coefficients) with a score of 0, 0.5 or 1; no intercept, no regulariser. Battles with the same row
are given together, as their number and the sum of their scores, which leaves the loss as it is.
Where the design tells wins and losses apart without exception there is no optimum: coefficients
would grow for ever. Such a fit is missing (None, or NaN among replicates), never a large number. It
is known by its Newton steps, which do not vanish as those towards an optimum do.
K: rows, P: coefficients, R: replicates.
"""

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_STEP_AT_OPTIMUM = 1e-6
_MAX_ITERATIONS = 25
_MAX_STEP = 3.0
_RIDGE = 1e-8
"""Times the curvature at zero: lets columns that depend on each other be solved with, and keeps the
steps of a fit without optimum from being lost in rounding. It slows the way to an optimum a little
and does not move it."""
_CELLS_AT_ONCE = 2_000_000


def optimum(design_KP: "Array", counts_K: "Array", wins_K: "Array") -> "Array | None":
    """Return the coefficients [P] that minimise the loss; None when there is no finite optimum.

    ``counts_K``: battles of each row; ``wins_K``: the sum of their scores, 0 to the count.
    """
    import numpy as np
    from scipy.optimize import minimize  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    def loss(coefs_P: "Array") -> float:
        logits_K = design_KP @ coefs_P
        return float(np.sum(counts_K * np.logaddexp(0.0, logits_K) - wins_K * logits_K))

    def slope(coefs_P: "Array") -> "Array":
        return _slopes(design_KP, counts_K[None], wins_K[None], coefs_P[None])[0]

    def curvature(coefs_P: "Array") -> "Array":
        return _curvatures(design_KP, counts_K[None], coefs_P[None])[0]

    found: Any = minimize(  # pyright: ignore[reportUnknownVariableType]
        loss,
        np.zeros(design_KP.shape[1]),
        method="trust-exact",
        jac=slope,
        hess=curvature,
        options={"gtol": 1e-8 * max(1.0, float(counts_K.sum())), "maxiter": 500},
    )
    near_P: Array = np.asarray(cast("Any", found).x, dtype=np.float64)
    coefs_P = optima(design_KP, counts_K[None], wins_K[None], near_P)[0]
    return None if bool(np.isnan(coefs_P).any()) else coefs_P


def optima(design_KP: "Array", counts_RK: "Array", wins_RK: "Array", start_P: "Array") -> "Array":
    """Return the coefficients [R, P] of each replicate; NaN where one has no finite optimum.

    Newton's method for many replicates at once, from a start near their optima: one fit by scipy
    each would take minutes for what takes seconds.
    """
    import numpy as np

    at_once = max(1, _CELLS_AT_ONCE // max(1, design_KP.shape[0]))
    parts = [
        _newton(design_KP, counts_RK[i : i + at_once], wins_RK[i : i + at_once], start_P)
        for i in range(0, counts_RK.shape[0], at_once)
    ]
    return np.concatenate(parts)


def _newton(design_KP: "Array", counts_RK: "Array", wins_RK: "Array", start_P: "Array") -> "Array":
    import numpy as np

    num_replicates, num_coefs = counts_RK.shape[0], design_KP.shape[1]
    coefs_RP = np.tile(start_P, (num_replicates, 1))
    at_zero_RP = 0.25 * (counts_RK @ design_KP**2)
    ridge_R = _RIDGE * at_zero_RP.mean(axis=1) + np.finfo(np.float64).tiny
    is_open_R = np.ones(num_replicates, dtype=bool)
    for _ in range(_MAX_ITERATIONS):
        counts, coefs = counts_RK[is_open_R], coefs_RP[is_open_R]
        slopes = _slopes(design_KP, counts, wins_RK[is_open_R], coefs)
        curvatures = _curvatures(design_KP, counts, coefs)
        curvatures += ridge_R[is_open_R, None, None] * np.eye(num_coefs)
        solved = cast("Array", np.linalg.solve(curvatures, slopes[..., None]))
        steps: Array = solved[..., 0]
        sizes = np.abs(steps).max(axis=1)
        coefs_RP[is_open_R] -= steps * np.minimum(1.0, _MAX_STEP / np.maximum(sizes, 1.0))[:, None]
        is_open_R[is_open_R] = sizes >= _STEP_AT_OPTIMUM
        if not is_open_R.any():
            break
    # a column none of whose rows was drawn has no slope, and would keep its start
    is_empty_R = (counts_RK @ (design_KP != 0.0) == 0.0).any(axis=1)
    coefs_RP[is_open_R | is_empty_R] = np.nan
    return coefs_RP


def _slopes(design_KP: "Array", counts_RK: "Array", wins_RK: "Array", coefs_RP: "Array") -> "Array":
    """Return the gradients of the losses, [R, P]."""
    return (counts_RK * _chances(design_KP, coefs_RP) - wins_RK) @ design_KP


def _curvatures(design_KP: "Array", counts_RK: "Array", coefs_RP: "Array") -> "Array":
    """Return the Hessians of the losses, [R, P, P]."""
    num_coefs = design_KP.shape[1]
    chances_RK = _chances(design_KP, coefs_RP)
    products_KPP = design_KP[:, :, None] * design_KP[:, None, :]
    weights_RK = counts_RK * chances_RK * (1.0 - chances_RK)
    flat = weights_RK @ products_KPP.reshape(-1, num_coefs * num_coefs)
    return flat.reshape(-1, num_coefs, num_coefs)


def _chances(design_KP: "Array", coefs_RP: "Array") -> "Array":
    """Return the model's chance to win each battle, [R, K]."""
    import numpy as np

    return 0.5 * (1.0 + np.tanh(0.5 * (coefs_RP @ design_KP.T)))
