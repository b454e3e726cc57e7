"""Attention over continuous time, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from contiformer.estimators.explain import Explanation

#: More channels than this make no picture.
_LINES = 8


def draw(explanation: Explanation, series: int) -> Any:
    """Observations above, weights [times, points] below, and the pooling between them where there is one."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModuleNotFoundError("plots need matplotlib, which is an extra: pip install 'contiformer[plot]'") from None
    if not 0 <= series < len(explanation.weights):
        raise ValueError(f"series must be from 0 to {len(explanation.weights) - 1}, got {series}")
    pooling = None if explanation.pooling is None else explanation.pooling[series]
    ratios = [2, 1, 3] if pooling is not None else [2, 3]
    figure = Figure(figsize=(8, 1.4 * sum(ratios)), layout="constrained")
    axes = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
    points = explanation.axis(explanation.points[series])
    _observations(axes[0], points, explanation.values[series], explanation.channels)
    name = explanation.ids[series]
    axes[0].set_title(f"series {series if name is None else name}: what the model looks at", loc="left")
    if pooling is not None:
        _pooling(axes[1], points, pooling)
    _attention(figure, axes[-1], explanation, series)
    axes[-1].set_xlabel("time of the observation")
    return figure


def _observations(axis: Any, points: Any, values: Any, channels: tuple[str, ...]) -> None:
    for n, name in enumerate(channels[:_LINES]):
        seen = ~np.isnan(values[:, n])
        axis.plot(points[seen], values[seen, n], "o-", markersize=3, linewidth=0.8, label=name)
    more = f" (first {_LINES} of {len(channels)} channels)" if len(channels) > _LINES else ""
    axis.set_ylabel(f"observed{more}")
    axis.legend(loc="best", fontsize=8, framealpha=0.6)


def _pooling(axis: Any, points: Any, weights: Any) -> None:
    if len(points):
        axis.vlines(points, 0, weights.mean(0), linewidth=2, color="0.3")
    axis.set_ylim(bottom=0)
    axis.set_ylabel("counts for\nthe answer")


def _attention(figure: Any, axis: Any, explanation: Explanation, series: int) -> None:
    """Mean over the heads. A cell reaches halfway to its neighbours, so gaps in time are seen as gaps."""
    weights = explanation.weights[series].mean(0)
    order = np.argsort(explanation.times[series], kind="stable")
    when = np.unique(explanation.times[series])
    where = np.unique(explanation.points[series])
    axis.set_ylabel("time of the question")
    if not len(when) or not len(where):
        return
    # points and questions at one time share a cell
    rows = np.searchsorted(when, explanation.times[series][order])
    columns = np.searchsorted(where, explanation.points[series])
    cells = np.zeros((len(when), len(where)))
    np.add.at(cells, (rows[:, None], columns[None]), weights[order])
    cells /= np.bincount(rows, minlength=len(when))[:, None]
    x, y = explanation.axis(_edges(where)), explanation.axis(_edges(when))
    mesh = axis.pcolormesh(x, y, cells, cmap="magma_r", vmin=0, rasterized=True)
    figure.colorbar(mesh, ax=axis, label="attention")


def _edges(times: Any) -> Any:
    if len(times) == 1:
        return np.array([times[0] - 0.5, times[0] + 0.5])
    middle = (times[1:] + times[:-1]) / 2
    return np.concatenate([[2 * times[0] - middle[0]], middle, [2 * times[-1] - middle[-1]]])
