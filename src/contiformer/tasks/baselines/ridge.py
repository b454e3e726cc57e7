"""Ridge regression whose penalty is chosen by exact leave-one-out errors."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

#: Penalties that are tried, in units of the mean eigenvalue of the Gram matrix of the features.
PENALTIES = np.logspace(-6, 2, 17)


def fit_ridge(
    x: Float64[np.ndarray, "n features"], y: Float64[np.ndarray, "n outputs"], weights: Float64[np.ndarray, " n"]
) -> tuple[Float64[np.ndarray, "features outputs"], Float64[np.ndarray, " outputs"], Float64[np.ndarray, "n outputs"]]:
    """Slopes, intercept, and the prediction for each row by the ridge of all others.

    With ``X = U S Vᵀ`` of centred and weighted rows, the hat matrix for the penalty a is ``U S²/(S² + a) Uᵀ`` plus the
    mean's part, and the prediction without row i is ``y_i - r_i / (1 - h_ii)`` with the residual r.
    """
    root = np.sqrt(weights / weights.mean())[:, None]
    share = (weights / weights.sum())[:, None]
    centre, level = (share * x).sum(0), (share * y).sum(0)
    rows, targets = root * (x - centre), root * (y - level)
    if len(x) <= x.shape[1]:
        values, left = np.linalg.eigh(rows @ rows.T)
        keep = values > 1e-10 * max(values[-1], 1e-300)
        values, left = values[keep], left[:, keep]
    else:
        values, right = np.linalg.eigh(rows.T @ rows)
        keep = values > 1e-10 * max(values[-1], 1e-300)
        values, left = values[keep], (rows @ right[:, keep]) / np.sqrt(values[keep])
    inner = left.T @ targets
    best, chosen = np.inf, (0.0, y * 0.0)
    for penalty in PENALTIES * max(values.sum() / len(x), 1e-300):
        shrink = values / (values + penalty)
        own = (left**2 @ shrink)[:, None] + share
        miss = (targets - left @ (shrink[:, None] * inner)) / np.maximum(1 - own, 1e-6)
        error = float((miss**2).sum())
        if error < best:
            # rows without weight tell nothing, and are predicted by all others as they are
            best, chosen = error, (penalty, y - miss / np.where(root > 0, root, np.inf))
    slopes = rows.T @ (left @ (inner / (values + chosen[0])[:, None]))
    return slopes, level - centre @ slopes, chosen[1]
