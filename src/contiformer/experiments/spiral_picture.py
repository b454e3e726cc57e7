"""The picture of the spiral demo: observations, truth, and the continuous prediction."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from contiformer.data.synthetic import Spirals
from contiformer.experiments.spiral_demo import SpiralModel

TRUTH, OBSERVED, WITHIN, BEYOND = "0.8", "0.15", "#0072b2", "#d55e00"
EACH_WAY, RESOLUTION = 2, 1000


def require_matplotlib() -> None:
    """Say what to install when there is nothing to draw with."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError("the picture needs matplotlib, which is an extra: pip install 'contiformer[plot]'")


def examples(spirals: Spirals) -> Spirals:
    """The first few spirals of each direction, counter-clockwise ones first: no choice by result."""
    ways = [torch.nonzero(spirals.clockwise == way).squeeze(1)[:EACH_WAY] for way in (False, True)]
    return spirals[torch.cat(ways)]


def draw(model: SpiralModel, spirals: Spirals, path: Path) -> None:
    """Write a PNG with one panel for each spiral."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    half = spirals.times[0, spirals.times.shape[1] // 2 - 1]
    times = torch.linspace(0, 1, RESOLUTION)
    curves = model.curves(spirals, times.expand(len(spirals), -1))
    within = times <= half

    figure = Figure(figsize=(3 * len(spirals), 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(spirals), squeeze=False)[0]
    for panel, clean, seen, curve in zip(panels, spirals.clean, spirals.observed_values, curves, strict=True):
        # a wide band under the thin prediction: where they part, it shows
        panel.plot(*clean.T, color=TRUTH, linewidth=5, solid_capstyle="round", label="true curve")
        panel.plot(*curve[within].T, color=WITHIN, linewidth=1.6, label="prediction, observed half")
        panel.plot(*curve[~within].T, color=BEYOND, linewidth=1.6, label="prediction, beyond all observations")
        panel.scatter(
            *seen.T, color=OBSERVED, s=14, edgecolors="white", linewidths=0.5, label="noisy observations", zorder=3
        )
        panel.set_aspect("equal")
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
