"""Forecasts of regular series: five sets, four horizons each, eight models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.recipes import standardised_windows
from contiformer import Forecaster
from contiformer.backbones import BACKBONES
from contiformer.data import SeriesSet
from contiformer.data.catalog import PAPER_LENGTHS
from reproduction.experiments import (
    PUBLISHED,
    STATIC_TWIN,
    Budget,
    Cell,
    Experiment,
    Metric,
    Outcome,
    Protocol,
    best_epoch,
    configuration,
    model_options,
    not_here,
)
from reproduction.published import Recipe, evenly, train_published

#: Small sets first.
DATA = ("ILI", "Exchange", "ETTh2", "ETTm2", "Weather")
RIVALS = ("dlinear", "timesnet", "autoformer", "transformer", "fedformer", "informer", "reformer")
#: By our recipe, Forecaster(backbone=...); and, behind a colon, as published, which is shown but not ranked.
MODELS = ("contiformer", STATIC_TWIN, *RIVALS, *(f"{rival}:{PUBLISHED}" for rival in RIVALS))
#: Run before all others.
FIRST_DATA = DATA[:3]
FIRST_MODELS = ("contiformer", STATIC_TWIN, *RIVALS[:4], *(f"{rival}:{PUBLISHED}" for rival in RIVALS[:4]))
SEEDS = (0, 1, 2)

#: Width of the transformers. Their scripts have 512, which costs sixteen times as much.
WIDTH = 128
_TRANSFORMER: dict[str, Any] = {"d_model": WIDTH, "n_layers": 2, "dropout": 0.05}
#: The paper's TimesNet has the power of two above the number of channels, but at least 32; its scripts have 768 for
#: ILI and 64 for some horizons of Exchange.
RECIPES: dict[str, Recipe] = {
    "dlinear": Recipe(backbone="dlinear", dropout=0.0),
    "timesnet": Recipe(backbone="timesnet", n_layers=2, dropout=0.1),
    "autoformer": Recipe(backbone="autoformer", **_TRANSFORMER, backbone_options={"factor": 3.0}),
    "fedformer": Recipe(backbone="fedformer", **_TRANSFORMER),
    "informer": Recipe(backbone="informer", **_TRANSFORMER, backbone_options={"factor": 3.0}),
    "reformer": Recipe(backbone="reformer", **_TRANSFORMER),
    # Informer without what is new in it: encoder and decoder with full attention
    "transformer": Recipe(backbone="informer", **_TRANSFORMER, backbone_options={"factor": None, "distil": False}),
}
#: Other learning rates than the protocol's: those of DLinear's own scripts; and, for TimesNet on ILI, where 190 steps
#: of 1e-4 leave a validation error of 0.58, one that leaves 0.25.
RATES: dict[str, dict[str, float]] = {
    "dlinear": {"ILI": 0.05, "ETTh2": 0.05, "Exchange": 5e-4, "ETTm2": 1e-3},
    "timesnet": {"ILI": 1e-3},
}
QUICK: dict[str, Any] = {"max_epochs": 2, "validation_limit": 64}
QUICK_STEPS = 60
#: Windows to learn from in a quick run, evenly spaced.
QUICK_WINDOWS = 640


def grid(protocol: Protocol) -> list[Cell]:
    """Small sets and the models that matter most first; each seed by seed."""
    cells = [
        Cell("forecasting", data, f"horizon{horizon}", model, seed, protocol)
        for seed in SEEDS
        for data in DATA
        for horizon in PAPER_LENGTHS[data][1]
        for model in MODELS
    ]
    return sorted(cells, key=lambda cell: not (cell.data in FIRST_DATA and cell.model in FIRST_MODELS))


def recipe_of(model: str, data: str) -> Recipe:
    """The recipe of a published model for a data set."""
    recipe = RECIPES[model]
    return replace(recipe, learning_rate=RATES.get(model, {}).get(data, recipe.learning_rate))


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Forecaster(backbone=...)`` with its defaults, or a rival trained as published."""
    own, published = model_options(cell.model)
    horizon = int(cell.setting.removeprefix("horizon"))
    learning, validation, test = standardised_windows(
        cell.data, horizon, even=BACKBONES[own["backbone"]].fixed_window or bool(published)
    )
    options: dict[str, Any] = {}
    if budget == "quick":
        options, learning = dict(QUICK), evenly(learning, QUICK_WINDOWS)
    if cell.protocol == "paper":
        # every epoch is judged by all test windows
        options, validation = {**options, "keep": "last", "validation_limit": None}, test
    evaluate: Callable[[SeriesSet], dict[str, float]]
    if published:
        recipe = replace(recipe_of(own["backbone"], cell.data), **options)
        trained = train_published(recipe, learning, validation, seed=cell.seed, verbose=verbose)
        evaluate, epochs = trained.evaluate, trained.history
        validated, used = trained.validation, trained.configuration
    else:
        if budget == "quick":
            options |= {"epochs": options.pop("max_epochs"), "min_steps": QUICK_STEPS}
        options |= {"horizon": horizon, "history": PAPER_LENGTHS[cell.data][0], "scaling": "none"}
        model = Forecaster.from_options(**own, **options, seed=cell.seed, verbose=verbose)
        model.fit(learning, validation_data=validation).require_complete()
        evaluate, epochs = model.evaluate, model.history_
        validated, used = model.metrics_["validation"], configuration(model)
    if cell.protocol == "honest":
        errors = evaluate(test)
        metrics = {key: errors[key] for key in ("mse", "mae")}
    else:
        best, last = best_epoch(epochs, "mse", "min"), epochs[-1]
        metrics = {"mse": best["mse"], "mae": best["mae"], "last_mse": last["mse"], "last_mae": last["mae"]}
    return Outcome(metrics, used, {"validation": validated})


EXPERIMENT = Experiment(
    name="forecasting",
    title="Forecasts of regular series (input 96 rows, ILI 36)",
    metrics=(Metric("mse", "MSE", "min"), Metric("mae", "MAE", "min")),
    grid=grid,
    run=run,
    absent=not_here,
    note=(
        "Errors over all test windows, in units of the training part's standard deviations. Names without a colon: our "
        "recipe, Forecaster(backbone=...) with its defaults, the same for all; these are ranked. Names with "
        f":{PUBLISHED}: as published (reproduction/published.py), shown but not ranked: all channels together, "
        "squared error, Adam, at most 10 epochs, the best by validation; transformers have a "
        f"width of {WIDTH}, their scripts 512. DLinear has the learning rates of its authors' scripts; with 1e-4, the "
        "default of the Time Series Library, 10 epochs on ILI end long before it has learned."
    ),
    protocols=("honest", "paper"),
)
