"""Spirals: six models fill in the first half of a curve and continue it; and the paper's pictures of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.recipes import SPIRALS_OWN_OPTIONS, fit_spirals, spiral_errors, spiral_splits
from contiformer import Interpolator
from contiformer.plots import BLUE, INK, ORANGE, new_figure, save
from reproduction.experiments import (
    CONTROLS_NOTE,
    STATIC_TWIN,
    Budget,
    Cell,
    Experiment,
    Metric,
    Outcome,
    Protocol,
    configuration,
    model_options,
)

MODELS = (
    *("contiformer", "transformer", "neural_ode", "latent_ode", "latent_ode_rnn", "neural_cde"),
    *(STATIC_TWIN, "transformer:control"),
)
ALPHAS = ("0.02", "0.2", "2")
SEEDS = (0, 1, 2)
QUICK: dict[str, Any] = {"min_steps": 60}
#: Models of the pictures and their labels.
DRAWN = {"latent_ode": "Latent ODE", "transformer": "Transformer", "contiformer": "ContiFormer"}
DRAWN_WITH_DROPOUT = {"contiformer": "ContiFormer", "transformer": "Transformer"}
SHARES = ("0", "0.1", "0.3", "0.5")
ALPHA, EXAMPLES, RESOLUTION, DIGITS = 0.02, 4, 300, 4


def grid(protocol: Protocol) -> list[Cell]:
    """Seed by seed."""
    return [
        Cell("spirals", "spirals", f"alpha{alpha}", model, seed, protocol)
        for seed in SEEDS
        for alpha in ALPHAS
        for model in MODELS
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """``Interpolator(backbone=...)`` by the recipe of the spirals; ContiFormer's controls by its own."""
    options, control = model_options(cell.model)
    own = SPIRALS_OWN_OPTIONS["contiformer"]
    if static := options.get("backbone_options"):
        return train(cell, "contiformer", budget, verbose, backbone_options=own["backbone_options"] | static)
    matched = {name: own[name] for name in ("n_layers", "learning_rate")} if control else {}
    return train(cell, options["backbone"], budget, verbose, **matched)


def train(cell: Cell, backbone: str, budget: Budget, verbose: int, **changes: Any) -> Outcome:
    """Errors in the first half, where points are observed, and in the second, where none are."""
    alpha = float(cell.setting.removeprefix("alpha"))
    model = fit_spirals(backbone, alpha, cell.seed, verbose, **changes, **(QUICK if budget == "quick" else {}))
    errors = spiral_errors(model, spiral_splits(alpha, cell.seed)[2])
    return Outcome(errors, configuration(model), {"validation": model.metrics_["validation"]})


def _run_figure(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    share = float(cell.setting.removeprefix("dropout")) if cell.setting.startswith("dropout") else 0.0
    short = QUICK if budget == "quick" else {}
    model = fit_spirals(cell.model, ALPHA, cell.seed, verbose, **short, dropout=share)
    test = spiral_splits(ALPHA, cell.seed)[2]
    return Outcome(spiral_errors(model, test), configuration(model), {"pictures": _pictures(model, test[:EXAMPLES])})


def _pictures(model: Interpolator, shown: Any) -> list[dict[str, Any]]:
    asked = shown[0].target_times
    times = np.linspace(asked[0], asked[-1], RESOLUTION)
    half = float(np.median(asked))
    return [
        {
            "truth": _rounded(one.target_values),
            "seen": _rounded(one.values),
            "within": _rounded(curve.values[times <= half]),
            "beyond": _rounded(curve.values[times >= half]),
        }
        for one, curve in zip(shown, model.predict(shown, at=times), strict=True)
    ]


def _rounded(values: NDArray[np.floating[Any]]) -> list[list[float]]:
    return [[round(float(x), DIGITS) for x in row] for row in values]


def draw_models(rows: list[dict[str, Any]], path: Path) -> Path:
    """A row of panels for each model, the same spirals in each: the first of the test set, no choice by result."""
    found = {row["model"]: row for row in rows}
    return _draw([(label, found[name]) for name, label in DRAWN.items() if name in found], path)


def draw_dropout(rows: list[dict[str, Any]], path: Path) -> Path:
    """A row of panels for each model and share of dropout."""
    found = {(row["model"], row["setting"]): row for row in rows}
    lines = [
        (f"{label}, dropout {share}", found[name, f"dropout{share}"])
        for name, label in DRAWN_WITH_DROPOUT.items()
        for share in SHARES
        if (name, f"dropout{share}") in found
    ]
    return _draw(lines, path)


def _draw(lines: list[tuple[str, dict[str, Any]]], path: Path) -> Path:
    figure = new_figure(2.6 * EXAMPLES, 2.7 * len(lines) + 0.4)
    panels = figure.subplots(len(lines), EXAMPLES, squeeze=False)
    for line, (label, row) in zip(panels, lines, strict=True):
        inside, beyond = row["metrics"]["interpolation_rmse"], row["metrics"]["extrapolation_rmse"]
        line[0].set_title(f"{label}: RMSE {inside:.4f} inside, {beyond:.4f} beyond", loc="left", fontsize=9)
        for panel, picture in zip(line, row["details"]["pictures"], strict=True):
            panel.plot(*np.transpose(picture["truth"]), color="0.8", linewidth=4, label="true curve")
            panel.plot(*np.transpose(picture["within"]), color=BLUE, linewidth=1.4, label="prediction, observed half")
            panel.plot(*np.transpose(picture["beyond"]), color=ORANGE, linewidth=1.4, label="prediction, beyond")
            panel.scatter(*np.transpose(picture["seen"]), color=INK, s=5, label="observations", zorder=3)
            panel.set_aspect("equal")
            panel.set_axis_off()
    if len(lines):
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return save(figure, path)


def _grid_of_models(protocol: Protocol) -> list[Cell]:
    return [Cell("fig-spirals", "spirals", f"alpha{ALPHA}", model, 0, protocol) for model in DRAWN]


def _grid_of_dropout(protocol: Protocol) -> list[Cell]:
    return [
        Cell("fig-dropout", "spirals", f"dropout{share}", model, 0, protocol)
        for share in SHARES
        for model in DRAWN_WITH_DROPOUT
    ]


EXPERIMENT = Experiment(
    name="spirals",
    title="Spirals: curves filled in and continued",
    metrics=(
        Metric("interpolation_rmse", "RMSE inside", "min", ".5f"),
        Metric("extrapolation_rmse", "RMSE beyond", "min", ".5f"),
        Metric("interpolation_mae", "MAE inside", "min", ".5f"),
        Metric("extrapolation_mae", "MAE beyond", "min", ".5f"),
    ),
    grid=grid,
    run=run,
    note=f"Errors are distances in the plane, curves lie in the unit box, as in the authors' script. {CONTROLS_NOTE}",
)
FIGURE = Experiment(
    name="fig-spirals",
    title="Picture: spirals filled in and continued by three models",
    metrics=EXPERIMENT.metrics,
    grid=_grid_of_models,
    run=_run_figure,
    draw=draw_models,
)
DROPOUT_FIGURE = replace(
    FIGURE,
    name="fig-dropout",
    title="Picture: spirals under dropout",
    grid=_grid_of_dropout,
    draw=draw_dropout,
)
