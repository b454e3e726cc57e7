"""What a model says about events, and whether it can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contiformer.data.times import as_datetimes
from contiformer.reports.figures import BLUE, GREEN, GREY, INK, ORANGE, new_figure, quiet, save

#: Of the types that are told apart; others are grey.
_COLOURS = (ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#f0e442")
_WIDE = 100.0
_MOST_POINTS = 5000
#: Of the Kolmogorov distribution: beyond it a distance of n residuals is told from chance at the level of 5 %.
_FIVE_PERCENT = 1.358


@dataclass(frozen=True)
class Intensity:
    """One panel: a sequence.

    Attributes:
        title: of the panel.
        times, total: where the intensity of all types together was asked for, and what it is.
        events, kinds: when something happened, and of which type.
    """

    title: str
    times: NDArray[Any]
    total: NDArray[Any]
    events: NDArray[Any]
    kinds: NDArray[Any]


def draw_intensities(
    rows: Sequence[Intensity], names: Sequence[str], path: Path, *, title: str, dates: bool = False
) -> Path:
    """The intensity over time, and the events as marks below it in the colours of the most frequent types."""

    def when(times: NDArray[Any]) -> NDArray[Any]:
        return as_datetimes(times) if dates else times

    figure = new_figure(8.0, 1.9 * len(rows) + 0.9)
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    count = np.bincount(np.concatenate([row.kinds for row in rows]), minlength=len(names))
    frequent = [int(k) for k in np.argsort(-count, kind="stable")[: len(_COLOURS)] if count[k]]
    handles: dict[str, Any] = {}
    for row, panel in zip(rows, panels, strict=True):
        panel.plot(when(row.times), row.total, color=BLUE, linewidth=1.2, label="intensity")
        panel.set_ylim(bottom=-0.12 * max(float(row.total.max(initial=0.0)), 1e-300))
        shown = [(names[k], row.kinds == k, colour) for k, colour in zip(frequent, _COLOURS, strict=False)]
        shown.append(("other types", ~np.isin(row.kinds, frequent), GREY))
        for name, which, colour in shown:
            if which.any():
                panel.vlines(
                    when(row.events[which]), 0, 0.1, transform=panel.get_xaxis_transform(), color=colour, label=name
                )
        panel.set_title(row.title, fontsize=9)
        panel.tick_params(labelsize=8)
        quiet(panel)
        handles |= {label: handle for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    if not dates:
        panels[-1].set_xlabel("time")
    figure.suptitle(title, fontsize=10)
    order = ["intensity", *(names[k] for k in frequent), "other types"]
    known = [name for name in order if name in handles]
    figure.legend(
        [handles[name] for name in known], known, loc="outside lower center", ncols=8, frameon=False, fontsize=8
    )
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
    figure = new_figure(4.4, 4.4)
    panel = figure.subplots()
    ends = [float(min(wait.min(), expected.min())), float(max(wait.max(), expected.max()))]
    panel.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
    panel.plot(wait, expected, "o", color=BLUE, markersize=2.5, alpha=0.35, markeredgewidth=0)
    if wide:
        panel.set(xscale="log", yscale="log")
    panel.set(xlabel="true time to the next event", ylabel="expected time")
    panel.set_title(title, fontsize=10)
    quiet(panel)
    return save(figure, path)


def exponential_distance(residuals: NDArray[Any]) -> float:
    """Kolmogorov and Smirnov's distance between residuals and the unit exponential law, ``sup_x |F_n(x) - F(x)|``.

    Example:
        >>> round(exponential_distance(-np.log1p(-(np.arange(100) + 0.5) / 100)), 6)
        0.005
    """
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
    panel.plot(
        [0, expected[-1]], [0, expected[-1]], color=GREY, linewidth=1, linestyle="--", label="a model that is right"
    )
    panel.plot(expected[some], found[some], ".", color=BLUE, markersize=3, label="this model")
    panel.set(xlabel="quantile of the unit exponential law", ylabel="integrated intensity between events")
    distance = exponential_distance(residuals)
    panel.set_title(
        f"{title}\nKS distance {distance:.3f} (by chance up to {_FIVE_PERCENT / count**0.5:.3f})",
        fontsize=10,
        color=INK,
    )
    panel.legend(frameon=False, fontsize=8, loc="upper left")
    quiet(panel)
    return save(figure, path)
