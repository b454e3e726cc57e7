"""A trained estimator as one module of tensors: scaling, backbone, head, calibration and the mean over members."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from contiformer.data.batch import Batch
from contiformer.data.scaling import Scaling
from contiformer.nn.attention import ContinuousAttention, FixedShapes
from contiformer.tasks.at_times import AtTimes
from contiformer.tasks.base import SeriesTask
from contiformer.tasks.classification import Classification
from contiformer.tasks.forecasting import Forecasting
from contiformer.tasks.regression import Regression

#: Rows of padding behind every series: then no series is too short for a graph whose length is free.
PADDING = 2


class Standardize(nn.Module):
    """``(x - mean) / std`` of the last dimension in float64, and its limit."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], limit: float | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float64))
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        """The scaled numbers."""
        scaled = (x - self.mean) / self.std
        return scaled if self.limit is None else scaled.clamp(-self.limit, self.limit)

    def undo(self, x: Tensor) -> Tensor:
        """Scaled numbers [..., K] back in their units, in float64."""
        return x.double() * self.std + self.mean

    def undo_spread(self, x: Tensor) -> Tensor:
        """Scaled differences [..., K] back in their units, in float64."""
        return x.double() * self.std


class NormalScores(nn.Module):
    """Piecewise linear maps of the last dimension, held beyond their knots: ``y_0 + Σ_j rise_j · clamp(share_j)``."""

    start: Tensor
    knots: Tensor
    widths: Tensor
    rises: Tensor

    def __init__(self, scores: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]) -> None:
        super().__init__()
        cells = max(1, *(len(knots) - 1 for knots, _ in scores))
        knots, widths = np.zeros((cells, len(scores))), np.ones((cells, len(scores)))
        rises = np.zeros_like(knots)
        for channel, (x, y) in enumerate(scores):
            count = len(x) - 1
            knots[:count, channel], widths[:count, channel] = x[:-1], np.diff(x)
            rises[:count, channel] = np.diff(y)
        self.register_buffer("start", torch.tensor([y[0] for _, y in scores], dtype=torch.float64))
        for name, table in (("knots", knots), ("widths", widths), ("rises", rises)):
            self.register_buffer(name, torch.from_numpy(table))

    def forward(self, x: Tensor) -> Tensor:
        """The scores; NaN stays NaN."""
        total = self.start.expand_as(x)
        for knot, width, rise in zip(self.knots, self.widths, self.rises, strict=True):
            total = total + rise * ((x - knot) / width).clamp(0, 1)
        return total


class SeriesGraph(nn.Module):
    """An estimator of series on plain tensors, in the units of the data.

    Args:
        estimator: a fitted one, on whose tasks it works.
        shapes: sizes of continuous-time attention, which a graph must not choose by values.

    Shapes:
        times [B, N] float64, not decreasing; values [B, N, C] float64, NaN where not observed; lengths [B] int64, rows
        behind them are padding and may be anything; static [B, S] float64, NaN where unknown; query_times [B, Q]
        float64 -> a dictionary of outputs, see :attr:`outputs`.

    Example:
        >>> from contiformer import Classifier, TrainingOptions
        >>> from contiformer.integrations.graph import SeriesGraph
        >>> from contiformer.nn.attention import FixedShapes
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in (1.0, 2.0, -1.0, -2.0)]
        >>> quick = TrainingOptions(max_epochs=1, validation=0.5, verbose=0)
        >>> model = Classifier(d_model=8, training=quick).fit(X, ["up", "up", "down", "down"])
        >>> graph = SeriesGraph(model, FixedShapes())
        >>> graph.inputs, graph.outputs
        (('times', 'values', 'lengths'), ('probabilities',))
    """

    def __init__(self, estimator: Any, shapes: FixedShapes) -> None:
        super().__init__()
        scaling: Scaling = estimator.scaling_
        self.tasks = nn.ModuleList(deepcopy(task).cpu().eval() for task in estimator.tasks_)
        self.requires_grad_(False)
        self.set_shapes(shapes)
        self.origin, self.start, self.unit = scaling.origin, scaling.start, scaling.unit
        self.values_scale: nn.Module = (
            NormalScores(scaling.scores) if scaling.scores else Standardize(scaling.mean, scaling.std, scaling.limit)
        )
        self.static_scale: nn.Module | None = None
        if scaling.static_mean:
            self.static_scale = (
                NormalScores(scaling.static_scores)
                if scaling.static_scores
                else Standardize(scaling.static_mean, scaling.static_std)
            )
        first = self.tasks[0]
        self.asked, self.law = isinstance(first, AtTimes), None
        self.history: int | None = estimator._history if isinstance(first, Forecasting) else None
        if isinstance(first, AtTimes):
            own = (
                (scaling.target_mean, scaling.target_std) if estimator.schema_.targets else (scaling.mean, scaling.std)
            )
            self.target_scale = Standardize(*own)
            self.law = first.head.law

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments of :meth:`forward` that the model has."""
        static = () if self.static_scale is None else ("static",)
        return "times", "values", "lengths", *static, *(("query_times",) if self.asked else ())

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in their order."""
        if isinstance(self.tasks[0], Classification):
            return ("probabilities",)
        if not self.asked:
            return ("prediction",)
        return ("mean", *{"gaussian": ("std",), "quantiles": ("quantiles",)}.get(str(self.law), ()))

    def set_shapes(self, shapes: FixedShapes) -> None:
        """Use these sizes in all attention layers."""
        for module in self.modules():
            if isinstance(module, ContinuousAttention):
                module.shapes = shapes

    def forward(
        self,
        times: Tensor,
        values: Tensor,
        lengths: Tensor,
        static: Tensor | None = None,
        query_times: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The outputs by their names."""
        if self.history is None:
            times = pad(times, (0, PADDING))
            values = pad(values, (0, 0, 0, PADDING), value=torch.nan)
        else:
            times, values, lengths = self._last(times, values, lengths)
        inside = torch.arange(times.shape[1], device=times.device) < lengths.unsqueeze(1)
        origin = torch.where(lengths.unsqueeze(1) > 0, times[:, :1], self.start)
        origin = origin if self.origin == "first" else torch.full_like(origin, self.start)
        clock = (times - origin) / self.unit
        last = clock.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1))
        clock = torch.where(inside, clock, torch.where(lengths.unsqueeze(1) > 0, last, 0.0))
        observed = inside.unsqueeze(2) & ~values.isnan()
        shown = torch.where(observed, self.values_scale(values), 0.0).float()
        fixed: tuple[Tensor | None, Tensor | None] = (None, None)
        if self.static_scale is not None and static is not None:
            known = ~static.isnan()
            fixed = (torch.where(known, self.static_scale(static), 0.0).float(), known)
        batch = Batch(clock, shown, observed, lengths, *fixed)
        if query_times is None:
            return self._whole(batch)
        return self._at_times(batch, (query_times - origin) / self.unit)

    def _last(self, times: Tensor, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The last ``history`` points of each series: a fixed number of rows, the last of them padding."""
        assert self.history is not None
        first = (lengths - self.history).clamp(min=0).unsqueeze(1)
        row = torch.arange(self.history, device=times.device) + first
        row = torch.minimum(row, (lengths - 1).clamp(min=0).unsqueeze(1))
        picked = values.gather(1, row.unsqueeze(2).expand(-1, -1, values.shape[2]))
        return times.gather(1, row), picked, lengths.clamp(max=self.history)

    def _whole(self, batch: Batch) -> dict[str, Tensor]:
        """One answer for each series."""
        tasks = list(self.tasks)
        if isinstance(tasks[0], Classification):
            shares = [task.probabilities(batch).double() for task in tasks if isinstance(task, Classification)]
            mean = torch.stack(shares).mean(0)
            return {"probabilities": (mean / mean.sum(1, keepdim=True)).float()}
        numbers = [task.values(batch) for task in tasks if isinstance(task, Regression)]
        return {"prediction": torch.stack(numbers).mean(0)}

    def _at_times(self, batch: Batch, asked: Tensor) -> dict[str, Tensor]:
        """The mixture of the members at the query times."""
        means, variances, quantiles = [], [], []
        for task in self.tasks:
            assert isinstance(task, AtTimes)
            said = task(batch, asked)
            means.append(self.target_scale.undo(task.head.location(said)))
            std = task.head.std(said)
            if std is not None:
                variances.append(self.target_scale.undo_spread(std).square())
            if task.head.law == "quantiles":
                quantiles.append(self.target_scale.undo(said[..., 1:].transpose(2, 3)).transpose(2, 3))
        stacked = torch.stack(means)
        answers = {"mean": stacked.mean(0)}
        if variances:
            answers["std"] = (torch.stack(variances).mean(0) + stacked.var(0, correction=0)).sqrt()
        if quantiles:
            answers["quantiles"] = torch.stack(quantiles).mean(0)
        return answers


def is_exportable_task(task: Any) -> bool:
    """Whether the graph knows what the task answers."""
    return isinstance(task, SeriesTask) and isinstance(task, Classification | Regression | AtTimes)
