"""Learning curves, predicted series with their observations, and agreement of predicted with true numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.plots.figures import BLUE, GREEN, GREY, INK, ORANGE, legend_below, new_figure, quiet, save, time_axis

LearningCurve = Sequence[dict[str, float]]
#: The first of these metrics that a history has gets a panel beside the one that was chosen by.
_ALSO = ("accuracy", "rmse")
#: More marks than that are an image, also in an SVG.
_MOST_DRAWN = 1000


def draw_learning(histories: Sequence[LearningCurve], path: Path, monitor: str, kept: Sequence[int] = ()) -> Path:
    """The training loss, and the validation metric ``monitor``, with the epochs whose weights were kept marked.

    ``histories`` are rows of ``history.csv``, one list for each member; ``kept`` are their kept epochs, counted from 1.
    """
    others = [name for name in _ALSO if name in histories[0][0] and name != monitor][:1]
    shown = list(dict.fromkeys(["train_loss", monitor, *others]))
    figure = new_figure(3.6 * len(shown), 3.0)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, name in zip(panels, shown, strict=True):
        for n, history in enumerate(histories):
            epochs = [row["round"] + 1 for row in history]
            values = [row[name] for row in history]
            marker = "o" if len(epochs) < 30 else None
            panel.plot(epochs, values, color=GREY if n else BLUE, linewidth=1.5, marker=marker, markersize=3)
            if name == "train_loss" or n >= len(kept):
                continue
            best = kept[n] - 1
            panel.plot(epochs[best], values[best], "o", color=ORANGE, markersize=6, zorder=3)
            if name == monitor and len(histories) == 1:
                place = {"xytext": (0.97, 0.95), "textcoords": "axes fraction", "ha": "right", "va": "top"}
                line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.8}
                text = f"kept: epoch {epochs[best]:.0f}, {values[best]:.3g}"
                panel.annotate(text, (epochs[best], values[best]), color=INK, fontsize=8, arrowprops=line, **place)
        metric = name.replace("_", " ").replace("coverage90", "coverage of 90 % intervals")
        panel.set(xlabel="epoch")
        panel.set_title("training loss" if name == "train_loss" else f"validation {metric}", fontsize=10)
        panel.locator_params(axis="x", integer=True)
        numbers = [row[name] for history in histories for row in history]
        if name == "train_loss" and 0 < 10 * min(numbers) < max(numbers):
            panel.set_yscale("log")
        quiet(panel)
    return save(figure, path)


@dataclass(frozen=True)
class Curve:
    """One panel: a channel of a series, and its prediction. Times and values are arrays [*].

    Attributes:
        observed: times and values that the model was shown.
        hidden: times and values that it was not shown.
        dense: whether the hidden values are so dense that they are drawn as a curve.
        times, mean, low, high: the prediction, with its band where there is one.
    """

    title: str
    observed: tuple[NDArray[Any], NDArray[Any]]
    hidden: tuple[NDArray[Any], NDArray[Any]]
    dense: bool
    times: NDArray[Any]
    mean: NDArray[Any]
    low: NDArray[Any] | None = None
    high: NDArray[Any] | None = None


def draw_curves(
    rows: Sequence[Sequence[Curve]], path: Path, *, title: str, time: str = "time", dates: bool = False, band: str = ""
) -> Path:
    """A row of panels for each series, a column for each channel."""
    height, width = len(rows), max(len(row) for row in rows)
    figure = new_figure(max(6.0, 3.7 * width), 1.9 * height + 0.9)
    panels = figure.subplots(height, width, squeeze=False, sharex="row")
    for row, line in zip(rows, panels, strict=True):
        for curve, panel in zip(row, line, strict=False):
            _draw_curve(panel, curve, dates, band)
    for panel in panels[-1]:
        panel.set_xlabel(time)
    figure.suptitle(title, fontsize=10)
    legend_below(figure, panels.flat)
    return save(figure, path)


def _draw_curve(panel: Any, curve: Curve, dates: bool, band: str) -> None:
    at = time_axis(curve.times, dates)
    hidden_at, hidden = curve.hidden
    if curve.dense:
        panel.plot(time_axis(hidden_at, dates), hidden, color=GREY, linewidth=4, alpha=0.8, label="true curve")
    if curve.low is not None and curve.high is not None:
        panel.fill_between(at, curve.low, curve.high, color=BLUE, alpha=0.18, linewidth=0, label=band)
    panel.plot(at, curve.mean, color=BLUE, linewidth=1.4, label="prediction")
    known = ~np.isnan(curve.observed[1])
    seen_at, seen = curve.observed[0][known], curve.observed[1][known]
    forecast = len(curve.times) > 0 and known.any() and curve.times[0] >= seen_at[-1]
    style = {"linewidth": 1.0} if forecast else {"linestyle": "none"}
    panel.plot(time_axis(seen_at, dates), seen, color=INK, marker="o", markersize=2.5, label="observed", **style)
    if not curve.dense:
        there = ~np.isnan(hidden)
        colour, name = (GREEN, "what came") if forecast else (ORANGE, "hidden from the model")
        marks = {"marker": "o", "markersize": 3.5, "markerfacecolor": "none", "linestyle": "none"}
        panel.plot(time_axis(hidden_at[there], dates), hidden[there], color=colour, label=name, **marks)
    panel.set_title(curve.title, fontsize=9)
    panel.tick_params(labelsize=8)
    if dates:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415

        locator = AutoDateLocator(maxticks=6)
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    quiet(panel)


def draw_agreement(
    truth: NDArray[Any], predicted: NDArray[Any], path: Path, title: str, axes: Mapping[str, Any], **marks: float
) -> Path:
    """Predicted numbers against true ones, with settings of the axes and of the marks."""
    figure = new_figure(4.4, 4.4)
    panel = figure.subplots()
    ends = [float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))]
    panel.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
    many = len(truth) > _MOST_DRAWN
    panel.plot(truth, predicted, "o", color=BLUE, markeredgewidth=0, rasterized=many, **marks)
    panel.set(**axes)
    if axes.get("xscale") == "log":
        # the usual labels are formulas, and text is drawn as it is
        panel.xaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
    panel.set_title(title, fontsize=10)
    quiet(panel)
    return save(figure, path)
