"""What a model looks at: states and attention weights over continuous time, as arrays and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from contiformer.data.batch import Batch
from contiformer.data.loader import Loader
from contiformer.data.times import as_datetimes
from contiformer.estimators.tables import query_times
from contiformer.nn.attention import ContinuousAttention
from contiformer.tasks.pooling import Pooling
from contiformer.training.trainer import EVALUATION_BATCH

if TYPE_CHECKING:
    from contiformer.estimators.base import Estimator
    from contiformer.tasks.base import SeriesTask


@dataclass(frozen=True)
class Explanation:
    """Where a model looks, series by series, in the times and units of the data.

    Attributes:
        ids: names of the series.
        times: [Q] of each series, when it was asked.
        points: [N] of each series, when it was observed.
        values: [N, C] of each series, what was observed, NaN where nothing was.
        weights: [heads, Q, N] of each series: how much the last attention layer, asked at ``times``, takes from each
            point. The sum over the points is 1.
        pooling: [queries, N] of each series: how much each point counts for the answer, the sum over the points being
            1; None where the model answers at times and pools nothing.
        channels: their names.
        dates: times are seconds since 1970.
    """

    ids: list[Any]
    times: list[NDArray[np.float64]]
    points: list[NDArray[np.float64]]
    values: list[NDArray[np.floating[Any]]]
    weights: list[Float[np.ndarray, "heads query points"]]
    pooling: list[Float[np.ndarray, "queries points"]] | None
    channels: tuple[str, ...]
    dates: bool = False

    def plot(self, path: str | Path | None = None, *, series: int = 0) -> Any:
        """Draw the observations of one series, and below them who looks at them from where.

        Args:
            path: file to write, of a type that matplotlib knows; None: none.
            series: its position.

        Returns:
            The figure of matplotlib, which is an extra: ``pip install 'contiformer[plot]'``.
        """
        from contiformer.estimators.explain_picture import draw  # noqa: PLC0415

        figure = draw(self, series)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def axis(self, times: NDArray[np.float64]) -> NDArray[Any]:
        """Times as they are drawn."""
        return as_datetimes(times) if self.dates else times


@torch.no_grad()
def states(estimator: Estimator, X: Any, at: Any = None, member: int = 0) -> list[NDArray[np.float32]]:
    """States of a member's backbone [Q, d_model] of each series, at its own times or at any others."""
    found: list[NDArray[np.float32]] = []
    task, asked, _, _ = _asked(estimator, X, at, member)
    for batch in _batches(asked, task):
        assert batch.target_lengths is not None
        out = task.states(batch, batch.target_times).float().cpu().numpy()
        found += [one[:count] for one, count in zip(out, batch.target_lengths.tolist(), strict=True)]
    return found


@torch.no_grad()
def explain(estimator: Estimator, X: Any, at: Any = None, member: int = 0) -> Explanation:
    """Attention weights of a member over continuous time.

    Args:
        estimator: fitted, with continuous attention in its backbone.
        X: series in any of the forms.
        at: when to ask, as for ``Interpolator.predict``; None: at the times of each series.
        member: which of the models.

    Raises:
        ValueError: the backbone has no such attention.
    """
    task, asked, bare, times = _asked(estimator, X, at, member)
    attention = _last_attention(task, estimator.config_["backbone"])
    pooling = getattr(task.head, "pooling", None)
    weights: list[Any] = []
    pooled: list[Any] = []
    for batch in _batches(asked, task):
        assert batch.target_lengths is not None
        lengths, counts = batch.lengths.tolist(), batch.target_lengths.tolist()
        looks = _weights_of(attention, task, batch).float().cpu().numpy()
        weights += [one[:, :count, :n] for one, count, n in zip(looks, counts, lengths, strict=True)]
        if isinstance(pooling, Pooling):
            shown = task.inputs(batch)
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
) -> tuple[SeriesTask, Any, Any, list[NDArray[np.float64]]]:
    from contiformer.estimators.values import asking  # noqa: PLC0415

    bare, scaled, _ = estimator._read(X)
    if not 0 <= member < len(estimator.tasks_):
        raise ValueError(f"member must be from 0 to {len(estimator.tasks_) - 1}, got {member}")
    times = query_times(at, bare)
    return estimator.tasks_[member], asking(bare, scaled, times, 1, estimator.scaling_), bare, times


def _batches(asked: Any, task: SeriesTask) -> Any:
    for batch in Loader(asked, EVALUATION_BATCH, shuffle=False):
        assert isinstance(batch, Batch)
        yield batch.to(task.device)


def _last_attention(task: SeriesTask, name: str) -> ContinuousAttention:
    found = [module for module in task.backbone.modules() if isinstance(module, ContinuousAttention)]
    if not found:
        raise ValueError(f"the backbone {name!r} has no continuous attention to explain: use 'contiformer', or embed()")
    return found[-1]


def _weights_of(
    attention: ContinuousAttention, task: SeriesTask, batch: Batch
) -> Float[Tensor, "batch heads query points"]:
    """The weights, from a second look at what the layer is given while the backbone runs."""
    given: list[tuple[Any, ...]] = []

    def keep(module: nn.Module, args: tuple[Any, ...]) -> None:
        given.append(args)

    hook = attention.register_forward_pre_hook(keep)
    try:
        task.states(batch, batch.target_times)
    finally:
        hook.remove()
    return attention(*given[-1], return_weights=True)[1]
