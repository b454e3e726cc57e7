"""The picture of the spiral demo: observations, truth, and the continuous prediction."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.data.synthetic import Spirals
from contiformer.reports.figures import BLUE, INK, ORANGE, new_figure, save

TRUTH = "0.8"
EACH_WAY, RESOLUTION = 2, 1000


def examples(spirals: Spirals) -> list[int]:
    """The first few spirals of each direction, counter-clockwise ones first: no choice by result."""
    ways = [torch.nonzero(spirals.clockwise == way).squeeze(1)[:EACH_WAY] for way in (False, True)]
    return torch.cat(ways).tolist()


def times() -> Float[Tensor, " query"]:
    """At which the curves are drawn: none of them is special to the model."""
    return torch.linspace(0, 1, RESOLUTION)


def draw(spirals: Spirals, curves: Float[Tensor, "n query 2"], path: Path) -> None:
    """Write a PNG with one panel for each spiral and its curve at :func:`times`."""
    half = spirals.times[0, spirals.times.shape[1] // 2 - 1]
    within = times() <= half
    figure = new_figure(3 * len(spirals), 3.5)
    panels = figure.subplots(1, len(spirals), squeeze=False)[0]
    for panel, clean, seen, curve in zip(panels, spirals.clean, spirals.observed_values, curves, strict=True):
        # a wide band under the thin prediction: where they part, it shows
        panel.plot(*clean.T, color=TRUTH, linewidth=5, solid_capstyle="round", label="true curve")
        panel.plot(*curve[within].T, color=BLUE, linewidth=1.6, label="prediction, observed half")
        panel.plot(*curve[~within].T, color=ORANGE, linewidth=1.6, label="prediction, beyond all observations")
        panel.scatter(
            *seen.T, color=INK, s=14, edgecolors="white", linewidths=0.5, label="noisy observations", zorder=3
        )
        panel.set_aspect("equal")
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, path)
