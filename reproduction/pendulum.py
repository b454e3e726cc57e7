"""Pendulum: its angle from noisy pictures at irregular times, by five models."""

from __future__ import annotations

from typing import Any

from benchmarks.recipes import PENDULUM_LAYERS, pendulum_error, pendulum_model
from contiformer.data.synthetic import pendulum_splits
from reproduction.experiments import (
    CONTROLS_NOTE,
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
)

MODELS = ("contiformer", "mtan", "ode_rnn", "cru", "s5", STATIC_TWIN, "transformer:control")
SEEDS = (0, 1, 2)
QUICK: dict[str, Any] = {"epochs": 1, "min_steps": 100}


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed."""
    return [Cell("pendulum", "pendulum", "default", model, seed, protocol) for seed in SEEDS for model in MODELS]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Regressor(backbone=..., frames=(24, 24))``: the same encoder of pictures for all."""
    learning, validation, test = pendulum_splits(seed=cell.seed)
    options, control = model_options(cell.model)
    layers = {"n_layers": PENDULUM_LAYERS["contiformer"]} if control else {}
    options |= layers | (QUICK if budget == "quick" else {})
    backbone = options.pop("backbone")
    if cell.protocol == "honest":
        model = pendulum_model(backbone, cell.seed, verbose, **options)
        model.fit(learning, validation_data=validation).require_complete()
        metrics = {"mse": pendulum_error(model, test)}
    else:
        model = pendulum_model(backbone, cell.seed, verbose, **options, keep="last")
        model.fit(learning, validation_data=test).require_complete()
        metrics = {"mse": best_epoch(model.history_, "mse", "min")["mse"], "last_mse": pendulum_error(model, test)}
    return Outcome(metrics, configuration(model), {"validation": model.metrics_["validation"]})


EXPERIMENT = Experiment(
    name="pendulum",
    title="Pendulum: sine and cosine of the angle from noisy pictures",
    metrics=(Metric("mse", "MSE", "min", ".5f"),),
    grid=grid,
    run=run,
    note=f"Generated data; sizes and seeds are not stated in the paper. {CONTROLS_NOTE}",
    protocols=("honest", "paper"),
)
