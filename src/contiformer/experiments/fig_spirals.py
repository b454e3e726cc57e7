"""The paper's pictures of spirals: what models make of the same observations, and what dropout does to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.experiments import spirals
from contiformer.experiments.cell import Budget, Cell, Protocol
from contiformer.experiments.experiment import Experiment, Outcome
from contiformer.experiments.recipe import configuration
from contiformer.reports.figures import BLUE, INK, ORANGE, new_figure, save

MODELS = {"latent_ode": "Latent ODE", "transformer": "Transformer", "contiformer": "ContiFormer"}
DROPOUT = {"contiformer": "ContiFormer", "transformer": "Transformer"}
SHARES = ("0", "0.1", "0.3", "0.5")
ALPHA, EXAMPLES, RESOLUTION, DIGITS = 0.02, 4, 300, 4


def _run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    share = float(cell.setting.removeprefix("dropout")) if cell.setting.startswith("dropout") else 0.0
    model = spirals.fit(cell.model, ALPHA, cell.seed, budget, verbose, dropout=share)
    test = spirals.splits(ALPHA, cell.seed)[2]
    said = model.predict(test, at=[one.target_times for one in test])
    miss = np.stack([a.values - b.target_values for a, b in zip(said, test, strict=True)])
    shown = test[:EXAMPLES]
    asked = shown[0].target_times
    assert asked is not None
    times = np.linspace(asked[0], asked[-1], RESOLUTION)
    curves = model.predict(shown, at=times)
    half = float(np.median(asked))
    pictures = [
        {
            "truth": _rounded(one.target_values),
            "seen": _rounded(one.values),
            "within": _rounded(curve.values[times <= half]),
            "beyond": _rounded(curve.values[times >= half]),
        }
        for one, curve in zip(shown, curves, strict=True)
    ]
    return Outcome(spirals.errors(miss), configuration(model), {"pictures": pictures})


def _rounded(values: NDArray[np.floating[Any]] | None) -> list[list[float]]:
    assert values is not None
    return [[round(float(x), DIGITS) for x in row] for row in values]


def draw_models(rows: list[dict[str, Any]], path: Path) -> Path:
    """A row of panels for each model, the same spirals in each: the first of the test set, no choice by result."""
    found = {row["model"]: row for row in rows}
    return _draw([(label, found[name]) for name, label in MODELS.items() if name in found], path)


def draw_dropout(rows: list[dict[str, Any]], path: Path) -> Path:
    """A row of panels for each model and share of dropout."""
    found = {(row["model"], row["setting"]): row for row in rows}
    lines = [
        (f"{label}, dropout {share}", found[name, f"dropout{share}"])
        for name, label in DROPOUT.items()
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
    return [Cell("fig-spirals", "spirals", f"alpha{ALPHA}", model, 0, protocol) for model in MODELS]


def _grid_of_dropout(protocol: Protocol) -> list[Cell]:
    return [
        Cell("fig-dropout", "spirals", f"dropout{share}", model, 0, protocol) for share in SHARES for model in DROPOUT
    ]


EXPERIMENT = Experiment(
    name="fig-spirals",
    title="Picture: spirals filled in and continued by three models",
    metrics=spirals.EXPERIMENT.metrics,
    grid=_grid_of_models,
    run=_run,
    draw=draw_models,
)
DROPOUT_EXPERIMENT = replace(
    EXPERIMENT,
    name="fig-dropout",
    title="Picture: spirals under dropout",
    grid=_grid_of_dropout,
    draw=draw_dropout,
)
