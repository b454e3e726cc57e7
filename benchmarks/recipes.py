"""Training recipes and data preparation that the accuracy benchmark and the reproduction share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer import Interpolator, Regressor
from contiformer.data import Scaling, SeriesSet
from contiformer.data.catalog import PAPER_LENGTHS, borders, load_forecasting, windows
from contiformer.data.synthetic import spiral_set

#: Spirals to learn from and to choose by; the others of 300 are judged.
SPIRALS_TRAINING, SPIRALS_VALIDATION = 170, 30
SPIRALS_OPTIONS: dict[str, Any] = {
    "law": "point",
    "d_model": 32,
    "dropout": 0.0,
    "window": 0,
    "weight_decay": 0.0,
    "learning_rate": 0.02,
    "batch_size": 16,
    "keep": "best",
    "min_steps": 1200,
    "epochs": 1,
    "patience": 1.0,
}
#: ContiFormer's own options, all by validation error.
#: Layers: 0.00097 with two, 0.00130 with one (seed 0, alpha 0.2). Others have as many as in their papers, the
#: Transformer two.
#: Rate: two layers learn more steadily at half the rate (0.00020, 0.00057 and 0.00083 instead of 0.00057, 0.00061 and
#: 0.00169, alphas 0.02, 0.2 and 2, seeds 0, 2 and 2). The Transformer is better with it once and worse twice; the
#: others were not tried.
#: Path: curves are smooth, and so is a path of queries that is a cubic spline (0.00020, 0.00061, 0.00050, 0.00048 and
#: 0.00057 instead of 0.00020, 0.00074, 0.00057, 0.00046 and 0.00083; alphas 0.02, 0.2, 0.2, 2 and 2, seeds 0, 0, 2, 0
#: and 2). The norm at the layers' entry and fields that learn at the full rate were better on some of these pairs and
#: worse on others.
SPIRALS_OWN_OPTIONS: dict[str, dict[str, Any]] = {
    "contiformer": {"n_layers": 2, "learning_rate": 0.01, "backbone_options": {"interpolation": "cubic"}}
}
#: By validation error: a second layer fits better than one, at less than half as much time again.
PENDULUM_OPTIONS: dict[str, Any] = {"dropout": 0.1, "epochs": 16}
#: Layers of the pendulum's models; others have as many as their papers.
PENDULUM_LAYERS = {"contiformer": 2}


def spiral_splits(alpha: float, seed: int) -> tuple[SeriesSet, SeriesSet, SeriesSet]:
    """Spirals by the authors' protocol: 200 to learn from (30 of them to choose by), 100 to be judged on."""
    data = spiral_set(300, preset="authors' code", alpha=alpha, seed=seed)
    border = SPIRALS_TRAINING + SPIRALS_VALIDATION
    return data[:SPIRALS_TRAINING], data[SPIRALS_TRAINING:border], data[border:]


def fit_spirals(backbone: str, alpha: float, seed: int, verbose: int = 0, **changes: Any) -> Interpolator:
    """An Interpolator of spirals: one recipe for all models, but for ContiFormer's own options."""
    learning, validation, _ = spiral_splits(alpha, seed)
    options = SPIRALS_OPTIONS | SPIRALS_OWN_OPTIONS.get(backbone, {}) | changes
    model = Interpolator.from_options(backbone=backbone, seed=seed, verbose=verbose, **options)
    return model.fit(learning, validation_data=validation).require_complete()


def spiral_errors(model: Interpolator, test: SeriesSet) -> dict[str, float]:
    """Errors in the first half, where points are observed, and in the second, where none are."""
    said = model.predict(test, at=[one.target_times for one in test])
    return plane_errors(np.stack([a.values - b.target_values for a, b in zip(said, test, strict=True)]))


def plane_errors(miss: NDArray[np.float64]) -> dict[str, float]:
    """Errors as in the authors' script, of misses [n, T, 2]: distances in the plane, in the unit box of all curves."""
    first, second = np.split(miss, 2, axis=1)
    return {
        "interpolation_rmse": float(np.sqrt((first**2).sum(2).mean())),
        "extrapolation_rmse": float(np.sqrt((second**2).sum(2).mean())),
        "interpolation_mae": float(np.abs(first).sum(2).mean()),
        "extrapolation_mae": float(np.abs(second).sum(2).mean()),
    }


def pendulum_model(backbone: str, seed: int, verbose: int = 0, **changes: Any) -> Regressor:
    """A Regressor for the pendulum's pictures: the same encoder of pictures for all models."""
    options = PENDULUM_OPTIONS | {"n_layers": PENDULUM_LAYERS.get(backbone)} | changes
    return Regressor.from_options(backbone=backbone, frames=(24, 24), seed=seed, verbose=verbose, **options)


def pendulum_error(model: Regressor, test: SeriesSet) -> float:
    """Mean squared error over all target times."""
    said = model.predict(test, at=[one.target_times for one in test])
    miss = np.concatenate([(a.values - b.target_values).ravel() for a, b in zip(said, test, strict=True)])
    return float((miss**2).mean())


def standardised_windows(name: str, horizon: int, *, even: bool = False) -> list[SeriesSet]:
    """Windows of train, val and test, in units of the training part's means and standard deviations.

    Args:
        name: of the set.
        horizon: rows to forecast, from as many as the paper takes.
        even: dates as if no row were missing, as models of a regular grid take them; a few are missing in Weather.
    """
    data = load_forecasting(name)
    series = data[0]
    start, end = borders(name, rows=len(series))["train"]
    scaling = Scaling.fit(SeriesSet([series.points(slice(start, end))], schema=data.schema))
    step = float(np.median(np.diff(series.times)))
    times = series.times[0] + step * np.arange(len(series)) if even else series.times
    scaled = SeriesSet([replace(series, times=times, values=scaling.apply_to(series).values)], schema=data.schema)
    return [windows(scaled, part, PAPER_LENGTHS[name][0], horizon) for part in ("train", "val", "test")]
