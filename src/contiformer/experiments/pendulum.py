"""The angle of a pendulum from noisy pictures at irregular times: five models."""

from __future__ import annotations

from typing import Any

import numpy as np

from contiformer.data.synthetic import pendulum_splits
from contiformer.estimators import Regressor
from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Experiment, Metric, Outcome, best_epoch
from contiformer.experiments.recipe import configuration

MODELS = ("contiformer", "mtan", "ode_rnn", "cru", "s5")
SEEDS = (0, 1, 2)
#: By validation: a second layer fits better than one, at less than half as much time again. 12 epochs are 3000 steps.
OPTIONS: dict[str, Any] = {"dropout": 0.1, "max_epochs": 16}
#: Others have as many layers as their papers.
LAYERS = {"contiformer": 2}
QUICK: dict[str, Any] = {"max_epochs": 1, "min_steps": 100}


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed."""
    return [Cell("pendulum", "pendulum", "default", model, seed, protocol) for seed in SEEDS for model in MODELS]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Regressor(backbone=..., frames=(24, 24))``: the same encoder of pictures for all."""
    learning, validation, test = pendulum_splits(seed=cell.seed)
    options = OPTIONS | {"n_layers": LAYERS.get(cell.model)} | (QUICK if budget == "quick" else {})
    model = Regressor(backbone=cell.model, frames=(24, 24), seed=cell.seed, verbose=verbose, **options)
    if cell.protocol == "honest":
        model.fit(learning, validation_data=validation).whole()
        metrics = {"mse": _error(model, test)}
    else:
        model.set_params(keep="last").fit(learning, validation_data=test).whole()
        metrics = {"mse": best_epoch(model.history_, "mse", "min")["mse"], "last_mse": _error(model, test)}
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"]})


def _error(model: Regressor, test: Any) -> float:
    said = model.predict(test, at=[one.target_times for one in test])
    miss = np.concatenate([(a.values - b.target_values).ravel() for a, b in zip(said, test, strict=True)])
    return float((miss**2).mean())


EXPERIMENT = Experiment(
    name="pendulum",
    title="Pendulum: sine and cosine of the angle from noisy pictures",
    metrics=(Metric("mse", "MSE", "min", ".5f"),),
    grid=grid,
    run=run,
    note="Generated data; sizes and seeds are not stated in the paper.",
    protocols=("honest", "paper"),
)
