"""Explanations: observations coloured by their attribution, and attention weights over time."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np

from contiformer.plots.figures import GREY, INK, ORANGE, new_figure, plain_text, quiet, time_axis

#: Channels that one panel can show apart.
_LINES = 8
_DIVERGING = "RdBu_r"


def draw_attributions(told: Any, n: int, most: int) -> Any:
    """A panel for each channel, the largest total |attribution| first; one range of colours, symmetric around 0."""
    found = np.broadcast_to(told.attributions[n], told.values[n].shape)
    found = np.where(np.isnan(told.values[n]), np.nan, found)
    ranked = np.argsort(-np.nansum(np.abs(found), 0), kind="stable").tolist()
    order = [c for c in ranked if not np.isnan(found[:, c]).all()][:most] or [0]
    largest = float(np.nanmax(np.abs(found), initial=0.0)) or 1.0
    height = 0.55 if told.events else 1.25
    figure = new_figure(8, 1.3 + height * len(order))
    panels = figure.subplots(len(order), 1, sharex=True, squeeze=False)[:, 0]
    mesh = None
    for panel, c in zip(panels, order, strict=True):
        seen = ~np.isnan(told.values[n][:, c])
        times, values = time_axis(told.points[n][seen], told.dates), told.values[n][seen, c]
        if not told.events:
            panel.plot(times, values, color=GREY, linewidth=0.8, zorder=1)
        marks = {"s": 26, "edgecolors": INK, "linewidths": 0.4, "zorder": 2}
        mesh = panel.scatter(times, values, c=found[seen, c], cmap=_DIVERGING, vmin=-largest, vmax=largest, **marks)
        unit = told.channel_units[c] if any(told.channel_units) else None
        label = told.channel_names[c] + (f"\n({unit})" if unit else "")
        panel.set_ylabel(label, fontsize=8, rotation=0, ha="right", va="center")
        if told.at is not None:
            panel.axvline(time_axis(np.array([told.at[n]]), told.dates)[0], color=ORANGE, linewidth=1, linestyle="--")
        panel.tick_params(labelsize=8)
        if told.events:
            panel.set_yticks([])
        quiet(panel)
    panels[-1].set_xlabel("" if told.dates else told.names[1])
    bar = figure.colorbar(mesh, ax=list(panels), aspect=40, pad=0.01)
    bar.set_label(fill(f"share in the {told.unit}", 12 + 16 * len(order)), fontsize=8)
    bar.ax.tick_params(labelsize=8)
    there = int((~np.isnan(told.values[n]).all(0)).sum())
    of_class = told.unit.replace("the predicted class", f"{told.targets[n]!r}, the predicted class")
    what = "types" if told.events else "channels"
    more = f", {len(order)} of {there} {what}" if len(order) < there else ""
    title = f"series {told.ids[n]}{more}\n{of_class}: {told.answers[n]:.3g}; attributions by {told.method}"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    plain_text(figure)
    return figure


def draw_attention(told: Any, n: int) -> Any:
    """Observations above, weights [times, points] below, and the pooling between them where there is one."""
    ratios = [2, 3] if told.pooling is None else [2, 1, 3]
    figure = new_figure(8, 1.4 * sum(ratios))
    axes = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
    points, values, names = time_axis(told.points[n], told.dates), told.values[n], told.channel_names
    for c, channel in enumerate(names[:_LINES]):
        seen = ~np.isnan(values[:, c])
        axes[0].plot(points[seen], values[seen, c], "o-", markersize=3, linewidth=0.8, label=channel)
    more = f" (first {_LINES} of {len(names)} channels)" if len(names) > _LINES else ""
    axes[0].set_ylabel(f"observed{more}")
    axes[0].legend(loc="best", fontsize=8, framealpha=0.6)
    axes[0].set_title(f"series {told.ids[n]}: attention of the model", loc="left")
    if told.pooling is not None:
        if len(points):
            axes[1].vlines(points, 0, told.pooling[n].mean(0), linewidth=2, color="0.3")
        axes[1].set_ylim(bottom=0)
        axes[1].set_ylabel("pooling\nweight")
    _draw_weights(figure, axes[-1], told, n)
    axes[-1].set(xlabel="time of the observation", ylabel="query time")
    plain_text(figure)
    return figure


def _draw_weights(figure: Any, axis: Any, told: Any, n: int) -> None:
    """Mean over the heads. A cell reaches halfway to its neighbours, so gaps in time are seen as gaps."""
    # points and queries at one time share a cell
    when, rows = np.unique(told.query_times[n], return_inverse=True)
    where, columns = np.unique(told.points[n], return_inverse=True)
    if not len(when) or not len(where):
        return
    cells = np.zeros((len(when), len(where)))
    np.add.at(cells, (rows[:, None], columns[None]), told.weights[n].mean(0))
    cells /= np.bincount(rows, minlength=len(when))[:, None]
    x, y = (time_axis(_edges(times), told.dates) for times in (where, when))
    mesh = axis.pcolormesh(x, y, cells, cmap="magma_r", vmin=0, rasterized=True)
    figure.colorbar(mesh, ax=axis, label="attention")


def _edges(times: Any) -> Any:
    if len(times) == 1:
        return np.array([times[0] - 0.5, times[0] + 0.5])
    middle = (times[1:] + times[:-1]) / 2
    return np.concatenate([[2 * times[0] - middle[0]], middle, [2 * times[-1] - middle[-1]]])
