"""Forecasts of regular series: five sets, four horizons each, eight models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contiformer.data.catalog.forecasting import PAPER_LENGTHS, borders, load_forecasting, windows
from contiformer.data.scaling import Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.estimators import Forecaster
from contiformer.estimators.forecaster import PLAIN_TRAINING
from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Experiment, Metric, Outcome, best_epoch
from contiformer.experiments.presence import not_here
from contiformer.experiments.recipe import configuration

#: Small sets first.
DATA = ("ILI", "Exchange", "ETTh2", "ETTm2", "Weather")
MODELS = ("contiformer", "dlinear", "timesnet", "autoformer", "transformer", "fedformer", "informer", "reformer")
#: What is run before all else.
FIRST_DATA, FIRST_MODELS = DATA[:3], MODELS[:5]
SEEDS = (0, 1, 2)

#: The protocol of Autoformer and of the Time Series Library, for all models but ours.
PROTOCOL: dict[str, Any] = {
    "as_published": True,
    "law": "point",
    "separate": False,
    "window": 0,
    "most_validated": None,
    "max_epochs": 10,
    "patience": 0.3,
    "keep": "best",
    "batch_size": 32,
    "learning_rate": 1e-4,
    **PLAIN_TRAINING,
}
#: Of the transformers. Their scripts have 512, which costs sixteen times as much.
WIDTH = 128
_TRANSFORMER: dict[str, Any] = {"d_model": WIDTH, "n_layers": 2, "dropout": 0.05}
#: The paper's TimesNet has the power of two above the number of channels, but at least 32; its scripts have 768 for
#: ILI and 64 for some horizons of Exchange.
PUBLISHED: dict[str, dict[str, Any]] = {
    "dlinear": {"backbone": "dlinear", "d_model": 32, "dropout": 0.0},
    "timesnet": {"backbone": "timesnet", "d_model": 32, "n_layers": 2, "dropout": 0.1},
    "autoformer": {"backbone": "autoformer", **_TRANSFORMER, "backbone_options": {"factor": 3.0}},
    "fedformer": {"backbone": "fedformer", **_TRANSFORMER},
    "informer": {"backbone": "informer", **_TRANSFORMER, "backbone_options": {"factor": 3.0}},
    "reformer": {"backbone": "reformer", **_TRANSFORMER},
    # Informer without what is new in it: encoder and decoder with full attention
    "transformer": {"backbone": "informer", **_TRANSFORMER, "backbone_options": {"factor": None, "distil": False}},
}
#: Other learning rates than the protocol's: those of DLinear's own scripts; and, for TimesNet on ILI, where 190 steps
#: of 1e-4 leave a validation error of 0.58, one that leaves 0.25.
RATES: dict[str, dict[str, float]] = {
    "dlinear": {"ILI": 0.05, "ETTh2": 0.05, "Exchange": 5e-4, "ETTm2": 1e-3},
    "timesnet": {"ILI": 1e-3},
}
QUICK: dict[str, Any] = {"max_epochs": 2, "min_steps": 60, "most_validated": 64}
#: Windows to learn from in a quick run, evenly spaced.
QUICK_WINDOWS = 640


def grid(protocol: Protocol) -> list[Cell]:
    """What is small and asked for first, then the rest; each seed by seed."""
    cells = [
        Cell("forecasting", data, f"horizon{horizon}", model, seed, protocol)
        for seed in SEEDS
        for data in DATA
        for horizon in PAPER_LENGTHS[data][1]
        for model in MODELS
    ]
    return sorted(cells, key=lambda cell: not (cell.data in FIRST_DATA and cell.model in FIRST_MODELS))


def options_of(model: str, data: str) -> dict[str, Any]:
    """Parameters of :class:`Forecaster` for a model of the table; ours has the defaults."""
    if model not in PUBLISHED:
        return {"backbone": model}
    rate = RATES.get(model, {}).get(data, PROTOCOL["learning_rate"])
    return {**PROTOCOL, **PUBLISHED[model], "learning_rate": rate}


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


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Forecaster()`` with its defaults for ContiFormer, ``Forecaster(as_published=True)`` for the others."""
    horizon = int(cell.setting.removeprefix("horizon"))
    learning, validation, test = standardised_windows(cell.data, horizon, even=cell.model in PUBLISHED)
    options = options_of(cell.model, cell.data)
    if budget == "quick":
        options |= QUICK
        learning = _some(learning)
    history = PAPER_LENGTHS[cell.data][0]
    model = Forecaster(**options, horizon=horizon, history=history, scaling="none", seed=cell.seed, verbose=verbose)
    if cell.protocol == "honest":
        errors = model.fit(learning, validation_data=validation).whole().evaluate(test)
        metrics = {key: errors[key] for key in ("mse", "mae")}
    else:
        # every epoch is judged by all test windows
        model.set_params(keep="last", most_validated=None).fit(learning, validation_data=test).whole()
        best, last = best_epoch(model.history_, "mse", "min"), model.history_[-1]
        metrics = {"mse": best["mse"], "mae": best["mae"], "last_mse": last["mse"], "last_mae": last["mae"]}
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"]})


def _some(data: SeriesSet) -> SeriesSet:
    if len(data) <= QUICK_WINDOWS:
        return data
    return data.select(np.linspace(0, len(data) - 1, QUICK_WINDOWS).round().astype(int))


EXPERIMENT = Experiment(
    name="forecasting",
    title="Forecasts of regular series (input 96 rows, ILI 36)",
    metrics=(Metric("mse", "MSE", "min"), Metric("mae", "MAE", "min")),
    grid=grid,
    run=run,
    absent=not_here,
    note=(
        "Errors over all test windows, in units of the training part's standard deviations. ContiFormer is "
        "Forecaster() with its defaults; the others are trained as published, Forecaster(as_published=True): all "
        "channels together, squared error, Adam, at most 10 epochs, the best by validation. Transformers have a width "
        f"of {WIDTH}, their scripts 512. DLinear has the learning rates of its authors' scripts; with 1e-4, the "
        "default of the Time Series Library, 10 epochs on ILI end long before it has learned."
    ),
    protocols=("honest", "paper"),
)
