"""Intensities of event sequences, and checks of a point process: expected waits and residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.plots.curves import draw_agreement
from contiformer.plots.figures import BLUE, GREEN, GREY, INK, ORANGE, legend_below, new_figure, quiet, save, time_axis

#: Colours of the most frequent types; others are grey.
_COLOURS = (ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#f0e442")
_WIDE = 100.0
_MOST_POINTS = 5000
#: Quantile of the Kolmogorov distribution: √n times the distance exceeds it by chance in 5 % of cases.
_FIVE_PERCENT = 1.358


@dataclass(frozen=True)
class IntensityCurve:
    """One panel: a sequence.

    Attributes:
        times, total: query times, and the intensity of all types together there.
        events, types: times and types of the events.
    """

    title: str
    times: NDArray[Any]
    total: NDArray[Any]
    events: NDArray[Any]
    types: NDArray[Any]


def draw_intensities(
    rows: Sequence[IntensityCurve], names: Sequence[str], path: Path, *, title: str, dates: bool = False
) -> Path:
    """The intensity over time, and the events as marks below it in the colours of the most frequent types."""
    figure = new_figure(8.0, 1.9 * len(rows) + 0.9)
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    count = np.bincount(np.concatenate([row.types for row in rows]), minlength=len(names))
    frequent = [int(k) for k in np.argsort(-count, kind="stable")[: len(_COLOURS)] if count[k]]
    for row, panel in zip(rows, panels, strict=True):
        panel.plot(time_axis(row.times, dates), row.total, color=BLUE, linewidth=1.2, label="intensity")
        panel.set_ylim(bottom=-0.12 * max(float(row.total.max(initial=0.0)), 1e-300))
        shown = [(names[k], row.types == k, colour) for k, colour in zip(frequent, _COLOURS, strict=False)]
        shown.append(("other types", ~np.isin(row.types, frequent), GREY))
        for name, which, colour in shown:
            if which.any():
                marks = time_axis(row.events[which], dates)
                panel.vlines(marks, 0, 0.1, transform=panel.get_xaxis_transform(), color=colour, label=name)
        panel.set_title(row.title, fontsize=9)
        panel.tick_params(labelsize=8)
        quiet(panel)
    if not dates:
        panels[-1].set_xlabel("time")
    figure.suptitle(title, fontsize=10)
    legend_below(figure, panels, ["intensity", *(names[k] for k in frequent), "other types"], columns=8)
    return save(figure, path)


def draw_gaps(wait: NDArray[Any], expected: NDArray[Any], path: Path, title: str) -> Path:
    """Expected waits against true ones; on logarithmic axes where they are of different magnitudes."""
    some = np.linspace(0, len(wait) - 1, min(len(wait), _MOST_POINTS)).astype(int)
    wait, expected = wait[some], expected[some]
    positive = (wait > 0) & (expected > 0)
    wide = positive.any() and float(np.ptp(np.log(np.quantile(wait[positive], [0.01, 0.99])))) > np.log(_WIDE)
    if wide:
        # a logarithmic axis has no zero
        wait, expected = wait[positive], expected[positive]
    scale = "log" if wide else "linear"
    axes = {"xscale": scale, "yscale": scale, "xlabel": "true time to the next event", "ylabel": "expected time"}
    return draw_agreement(wait, expected, path, title, axes, markersize=2.5, alpha=0.35)


def exponential_distance(residuals: NDArray[Any]) -> float:
    """Kolmogorov and Smirnov's distance between residuals and the unit exponential law, ``sup_x |F_n(x) - F(x)|``."""
    law = -np.expm1(-np.sort(residuals))
    steps = np.arange(len(law) + 1) / len(law)
    return float(max((steps[1:] - law).max(), (law - steps[:-1]).max()))


def draw_residuals(residuals: NDArray[Any], path: Path, title: str) -> Path:
    """Quantiles of the integrated intensities between events, against those of the unit exponential law."""
    found = np.sort(residuals)
    count = len(found)
    expected = -np.log1p(-(np.arange(count) + 0.5) / count)
    some = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(int))
    figure = new_figure(4.4, 4.4)
    panel = figure.subplots()
    ends = [0, expected[-1]]
    panel.plot(ends, ends, color=GREY, linewidth=1, linestyle="--", label="a model that is right")
    panel.plot(expected[some], found[some], ".", color=BLUE, markersize=3, label="this model")
    panel.set(xlabel="quantile of the unit exponential law", ylabel="integrated intensity between events")
    chance = _FIVE_PERCENT / count**0.5
    text = f"{title}\nKS distance {exponential_distance(residuals):.3f} (by chance up to {chance:.3f})"
    panel.set_title(text, fontsize=10, color=INK)
    panel.legend(frameon=False, fontsize=8, loc="upper left")
    quiet(panel)
    return save(figure, path)
