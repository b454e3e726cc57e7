"""Metrics over all series at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

#: Bins of equal size in confidence, for the calibration error.
BINS = 15


def classification_scores(
    probability: Float[np.ndarray, "n classes"], label: Int[np.ndarray, " n"]
) -> dict[str, float]:
    """Accuracy, mean negative log-likelihood (loss), calibration error; for two classes AUROC and average precision."""
    from sklearn.metrics import average_precision_score, roc_auc_score  # noqa: PLC0415

    own = probability[np.arange(len(label)), label]
    scores = {
        "accuracy": float((probability.argmax(1) == label).mean()),
        "loss": float(-np.log(np.maximum(own.astype(np.float64), 1e-12)).mean()),
        "ece": calibration_error(probability, label),
    }
    if probability.shape[1] == 2 and 0 < label.sum() < len(label):
        scores["auroc"] = float(roc_auc_score(label, probability[:, 1]))
        scores["average_precision"] = float(average_precision_score(label, probability[:, 1]))
    return scores


def calibration_error(probability: Float[np.ndarray, "n classes"], label: Int[np.ndarray, " n"]) -> float:
    """``Σ_b n_b / n |accuracy_b - confidence_b|`` over bins b of the largest probability (Naeini et al., 2015)."""
    confidence = probability.max(1)
    right = probability.argmax(1) == label
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, right - confidence)).sum() / len(label))


def error_scores(squares: NDArray[Any], absolutes: NDArray[Any], counts: NDArray[Any]) -> dict[str, float]:
    """MSE, RMSE and MAE from sums over batches and channels; NaN where nothing was judged."""
    n = float(counts.sum())
    if n == 0:
        return {"mse": math.nan, "rmse": math.nan, "mae": math.nan}
    mse = float(squares.sum()) / n
    return {"mse": mse, "rmse": mse**0.5, "mae": float(absolutes.sum()) / n}


def regression_scores(miss: Float[np.ndarray, " n"], label: Float[np.ndarray, " n"]) -> dict[str, float]:
    """MSE, RMSE, MAE and R² of one number for each series."""
    miss, label = miss.astype(np.float64), label.astype(np.float64)
    spread = float(((label - label.mean()) ** 2).sum())
    r2 = 1 - float((miss**2).sum()) / spread if spread > 0 else 0.0
    return error_scores(miss**2, np.abs(miss), np.ones_like(miss)) | {"r2": r2}


def best_temperature(logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> float:
    """The most probable temperature of the logits, given a normal law of its logarithm around 0."""
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]  # noqa: PLC0415 - start-up time

    def cost(log_temperature: float) -> float:
        # as if half of an e-fold were the usual change: few series must not turn into certainty
        doubt = 2 * log_temperature**2 / len(labels)
        return float(cross_entropy(logits.double() / np.exp(log_temperature), labels)) + doubt

    found = minimize_scalar(cost, bounds=(-4.0, 4.0), method="bounded", options={"xatol": 1e-7})
    return float(np.exp(found.x))
