"""Series with what a model says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.data.times import as_datetimes
from contiformer.reports.figures import BLUE, GREEN, GREY, INK, ORANGE, new_figure, quiet, save


@dataclass(frozen=True)
class Curve:
    """One panel: a channel of a series. Times [*], values [*]; the band may be missing, and so may the truth.

    Attributes:
        title: of the panel.
        seen: times and values that the model was shown.
        asked: times and values that it was not shown.
        line: whether those are so dense that they are a curve.
        times, mean, low, high: what it says.
    """

    title: str
    seen: tuple[NDArray[Any], NDArray[Any]]
    asked: tuple[NDArray[Any], NDArray[Any]] | None
    line: bool
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
            _panel(panel, curve, dates, band)
    for panel in panels[-1]:
        panel.set_xlabel(time)
    handles: dict[str, Any] = {}
    for panel in panels.flat:
        handles |= {label: handle for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.suptitle(title, fontsize=10)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8
    )
    return save(figure, path)


def _panel(panel: Any, curve: Curve, dates: bool, band: str) -> None:
    def when(times: NDArray[Any]) -> NDArray[Any]:
        return as_datetimes(times) if dates else times

    if curve.asked is not None and curve.line:
        panel.plot(when(curve.asked[0]), curve.asked[1], color=GREY, linewidth=4, alpha=0.8, label="true curve")
    if curve.low is not None and curve.high is not None:
        panel.fill_between(when(curve.times), curve.low, curve.high, color=BLUE, alpha=0.18, linewidth=0, label=band)
    panel.plot(when(curve.times), curve.mean, color=BLUE, linewidth=1.4, label="prediction")
    known = ~np.isnan(curve.seen[1])
    forecast = len(curve.times) > 0 and known.any() and curve.times[0] >= curve.seen[0][known][-1]
    style = {"linewidth": 1.0} if forecast else {"linestyle": "none"}
    panel.plot(
        when(curve.seen[0][known]),
        curve.seen[1][known],
        color=INK,
        marker="o",
        markersize=2.5,
        label="observed",
        **style,
    )
    if curve.asked is not None and not curve.line:
        there = ~np.isnan(curve.asked[1])
        panel.plot(
            when(curve.asked[0][there]),
            curve.asked[1][there],
            color=GREEN if forecast else ORANGE,
            marker="o",
            markersize=3.5,
            markerfacecolor="none",
            linestyle="none",
            label="what came" if forecast else "hidden from the model",
        )
    panel.set_title(curve.title, fontsize=9)
    panel.tick_params(labelsize=8)
    if dates:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415

        locator = AutoDateLocator(maxticks=6)
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    quiet(panel)


def draw_agreement(truth: NDArray[Any], predicted: NDArray[Any], path: Path, title: str) -> Path:
    """Predicted numbers against true ones."""
    figure = new_figure(4.2, 4.2)
    panel = figure.subplots()
    ends = [float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))]
    panel.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
    panel.plot(truth, predicted, "o", color=BLUE, markersize=3.5, alpha=0.6, markeredgewidth=0)
    panel.set(xlabel="true", ylabel="predicted", aspect="equal")
    panel.set_title(title, fontsize=10)
    quiet(panel)
    return save(figure, path)
