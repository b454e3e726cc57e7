"""Backbone states and attention weights over continuous time, as arrays and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from contiformer.data.series_set import SeriesSet
from contiformer.estimators.tables import Form, query_times
from contiformer.estimators.values import asking
from contiformer.plots.figures import new_figure, time_axis
from contiformer.tasks.pooling import Pooling

if TYPE_CHECKING:
    from contiformer.estimators.base import Estimator
    from contiformer.tasks.base import SeriesTask

#: Channels that a picture can show apart.
_LINES = 8


@dataclass(frozen=True)
class Explanation:
    """Attention weights of a model over the observations of each series, in the times and units of the data.

    Attributes:
        ids: names of the series.
        times: query times [Q] of each series.
        points: times of the observations [N] of each series.
        values: observations [N, C] of each series, NaN where a channel is missing.
        weights: attention weights of the last layer [heads, Q, N] of each series; they sum to 1 over the points.
        pooling: pooling weights [queries, N] of each series, which sum to 1 over the points; None for a model that
            answers at query times and pools nothing.
        channels: their names.
        dates: times are seconds since 1970.
    """

    ids: list[Any]
    times: list[NDArray[np.float64]]
    points: list[NDArray[np.float64]]
    values: list[NDArray[np.floating[Any]]]
    weights: list[Float[np.ndarray, "heads _query _points"]]
    pooling: list[Float[np.ndarray, "queries _points"]] | None
    channels: tuple[str, ...]
    dates: bool = False

    def plot(self, path: str | Path | None = None, *, series: int = 0) -> Any:
        """Draw the observations of one series, and the attention weights of all query times below them.

        Args:
            path: file to write, of a type that matplotlib knows; None: only the figure is returned.
            series: its position.
        """
        figure = _draw(self, series)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


@torch.no_grad()
def states(
    estimator: Estimator, X: Any, at: Any = None, member: int = 0
) -> tuple[list[NDArray[np.float32]], SeriesSet, list[NDArray[np.float64]], Form]:
    """States of a member's backbone [Q, d_model] of each series, with the series, the times and the form of X."""
    found: list[NDArray[np.float32]] = []
    task, asked, bare, times, form = _asked(estimator, X, at, member)
    for batch in estimator._batches(asked):
        assert batch.target_lengths is not None
        out = task.states(batch, batch.target_times).float().cpu().numpy()
        found += [one[:count] for one, count in zip(out, batch.target_lengths.tolist(), strict=True)]
    return found, bare, times, form


@torch.no_grad()
def explain(estimator: Estimator, X: Any, at: Any = None, member: int = 0) -> Explanation:
    """Attention weights of a member's backbone at the query times ``at``, by default the times of each series.

    Raises:
        ValueError: the backbone has no such attention.
    """
    task, asked, bare, times, _ = _asked(estimator, X, at, member)
    pooling = getattr(task.head, "pooling", None)
    weights, pooled = [], []
    for batch in estimator._batches(asked):
        assert batch.target_lengths is not None
        lengths, counts = batch.lengths.tolist(), batch.target_lengths.tolist()
        shown = task.inputs(batch)
        found = task.backbone.attention_weights(shown, batch.target_times)
        if found is None:
            problem = f"the backbone {estimator.config_['backbone']!r} has no continuous attention to explain"
            raise ValueError(f"{problem}: use 'contiformer', or embed()")
        weights += [x[:, :q, :n] for x, q, n in zip(found.float().cpu().numpy(), counts, lengths, strict=True)]
        if isinstance(pooling, Pooling):
            shares = pooling.weights(task.backbone(shown), shown.observed.any(-1)).float().cpu().numpy()
            pooled += [one[:, :n] for one, n in zip(shares, lengths, strict=True)]
    return Explanation(
        ids=[one.id for one in bare],
        times=times,
        points=[one.times for one in bare],
        values=[one.values for one in bare],
        weights=weights,
        pooling=pooled if isinstance(pooling, Pooling) else None,
        channels=bare.channels,
        dates=bare.schema.dates,
    )


def _asked(
    estimator: Estimator, X: Any, at: Any, member: int
) -> tuple[SeriesTask, Any, SeriesSet, list[NDArray[np.float64]], Form]:
    bare, scaled, form = estimator._read(X)
    if not 0 <= member < len(estimator.tasks_):
        raise ValueError(f"member must be from 0 to {len(estimator.tasks_) - 1}, got {member}")
    times = query_times(at, bare, form, estimator.columns_, estimator.schema_.kind)
    return estimator.tasks_[member], asking(bare, scaled, times, 1, estimator.scaling_), bare, times, form


def _draw(explanation: Explanation, series: int) -> Any:
    """Observations above, weights [times, points] below, and the pooling between them where there is one."""
    if not 0 <= series < len(explanation.weights):
        raise ValueError(f"series must be from 0 to {len(explanation.weights) - 1}, got {series}")
    ratios = [2, 3] if explanation.pooling is None else [2, 1, 3]
    figure = new_figure(8, 1.4 * sum(ratios))
    axes = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
    points = time_axis(explanation.points[series], explanation.dates)
    values, channels, name = explanation.values[series], explanation.channels, explanation.ids[series]
    for n, channel in enumerate(channels[:_LINES]):
        seen = ~np.isnan(values[:, n])
        axes[0].plot(points[seen], values[seen, n], "o-", markersize=3, linewidth=0.8, label=channel)
    more = f" (first {_LINES} of {len(channels)} channels)" if len(channels) > _LINES else ""
    axes[0].set_ylabel(f"observed{more}")
    axes[0].legend(loc="best", fontsize=8, framealpha=0.6)
    axes[0].set_title(f"series {series if name is None else name}: attention of the model", loc="left")
    if explanation.pooling is not None:
        if len(points):
            axes[1].vlines(points, 0, explanation.pooling[series].mean(0), linewidth=2, color="0.3")
        axes[1].set_ylim(bottom=0)
        axes[1].set_ylabel("pooling\nweight")
    _draw_weights(figure, axes[-1], explanation, series)
    axes[-1].set(xlabel="time of the observation", ylabel="query time")
    return figure


def _draw_weights(figure: Any, axis: Any, explanation: Explanation, series: int) -> None:
    """Mean over the heads. A cell reaches halfway to its neighbours, so gaps in time are seen as gaps."""
    # points and queries at one time share a cell
    when, rows = np.unique(explanation.times[series], return_inverse=True)
    where, columns = np.unique(explanation.points[series], return_inverse=True)
    if not len(when) or not len(where):
        return
    cells = np.zeros((len(when), len(where)))
    np.add.at(cells, (rows[:, None], columns[None]), explanation.weights[series].mean(0))
    cells /= np.bincount(rows, minlength=len(when))[:, None]
    x, y = (time_axis(_edges(times), explanation.dates) for times in (where, when))
    mesh = axis.pcolormesh(x, y, cells, cmap="magma_r", vmin=0, rasterized=True)
    figure.colorbar(mesh, ax=axis, label="attention")


def _edges(times: Any) -> Any:
    if len(times) == 1:
        return np.array([times[0] - 0.5, times[0] + 0.5])
    middle = (times[1:] + times[:-1]) / 2
    return np.concatenate([[2 * times[0] - middle[0]], middle, [2 * times[-1] - middle[-1]]])
