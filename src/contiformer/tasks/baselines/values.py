"""Baselines of values at times: the last value, straight lines, and the value one season ago."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from contiformer.data.batch import Batch
from contiformer.data.loader import Loader
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.nn.local_features import around
from contiformer.tasks.at_times import ValueTask, targets_of
from contiformer.tasks.base import as_float64
from contiformer.tasks.baselines.base import BATCH, DirectTask
from contiformer.tasks.heads import SMALLEST_STD, Distribution, ValueLaw
from contiformer.tasks.interpolation import hide_observations

#: Bins of the distance to the nearest observation, and residuals from which a channel has a law of its own in a bin.
BINS, ENOUGH = 8, 30
#: Series or windows that errors are measured on, and those that a period is chosen by.
MOST, FEWER = 2000, 256

PerQuery = Float[Tensor, "batch query channels"]


class ValueBaseline(DirectTask, ValueTask):
    """A path through the observations of each channel, with the errors that it has at such a distance from them.

    Errors are those on the training series: of target series, or of observations that are hidden. A channel that was
    never observed in a series is at its training mean.

    Args:
        channels, static: the numbers of channels and of static features, which are not used.
        law, quantiles: see :class:`~contiformer.tasks.heads.ValueLaw`.
        hide: share of the observations that are hidden to measure errors, where series have no target.
        step, past, seasons, unit: of a forecast: a step and seasons in the data's time, steps of a window, and the
            data's time in a unit of the model's clock.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"forecasting", "interpolation"})
    described: ClassVar[tuple[str, ...]] = ("law", "quantiles", "hide", "step", "past", "seasons", "unit")
    edges: Tensor
    errors: Tensor

    def __init__(
        self,
        *,
        channels: int,
        static: int = 0,
        law: Distribution = "point",
        quantiles: Sequence[float] = (),
        hide: float = 0.3,
        step: float = 1.0,
        past: int = 31,
        seasons: Sequence[float] = (),
        unit: float = 1.0,
    ) -> None:
        super().__init__()
        self.head = ValueLaw(channels, law=law, quantiles=quantiles)
        self.hide, self.step, self.past, self.seasons, self.unit = hide, step, past, tuple(seasons), unit
        self.register_buffer("edges", torch.zeros(BINS - 1, dtype=torch.float64))
        self.register_buffer("errors", torch.ones(BINS, channels, self.head.numbers - 1))

    @classmethod
    def check(cls, name: str, task: str, schema: Schema) -> None:
        if task not in cls.tasks:
            raise ValueError(f"{name!r} gives values at times: it is a baseline of {' and '.join(sorted(cls.tasks))}")
        if schema.targets and len(schema.targets) != len(schema.channels):
            raise ValueError(f"{name!r} continues the channels, and targets must be the same: {schema.targets}")

    @property
    def device(self) -> torch.device:
        return self.edges.device

    @abstractmethod
    def path(self, batch: Batch, times: Float[Tensor, "batch query"]) -> PerQuery:
        """Each channel at the times."""

    def forward(
        self, batch: Batch, query_times: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch query channels numbers"]:
        location = self.path(batch, query_times)
        rows = torch.searchsorted(self.edges, distances(batch, query_times).contiguous())
        beside = self.errors[rows, torch.arange(location.shape[-1], device=location.device)]
        if self.head.law == "quantiles":
            beside = beside + location.unsqueeze(-1)
        return torch.cat([location.unsqueeze(-1), beside.to(location)], -1)

    @torch.no_grad()
    def fit(self, training: SeriesSet, validation: SeriesSet, *, refit: bool, seed: int) -> dict[str, float]:
        """Measure the errors on the training series, and calibrate them by the validation series."""
        some = evenly(training, MOST)
        asked = some if some.schema.targets else hide_observations(some, self.hide, seed)
        self.choose(evenly(asked, FEWER))
        misses, apart = [], []
        for batch in Loader(asked, BATCH, shuffle=False):
            assert isinstance(batch, Batch)
            times, values, known = targets_of(batch)
            misses.append(
                as_float64(torch.where(known, values - self.path(batch, times), torch.nan)).reshape(
                    -1, self.head.channels
                )
            )
            apart.append(as_float64(distances(batch, times)).reshape(-1, self.head.channels))
        self._keep(np.concatenate(misses), np.concatenate(apart))
        self.calibrate(Loader(validation, BATCH, shuffle=False))
        return self.evaluate(Loader(validation, BATCH, shuffle=False))

    def choose(self, asked: SeriesSet) -> None:
        """Choose what is not given by the errors on series with targets."""

    def _keep(self, miss: NDArray[np.float64], apart: NDArray[np.float64]) -> None:
        """Set the law of the errors [n, channels], NaN where unknown, in bins of the distance."""
        known = ~np.isnan(miss)
        if not known.any():
            return
        edges = np.quantile(
            apart[known & np.isfinite(apart)] if np.isfinite(apart[known]).any() else [1.0], np.arange(1, BINS) / BINS
        )
        self.edges.copy_(torch.from_numpy(edges))
        bins = np.searchsorted(edges, apart)
        for b in range(BINS):
            inside = known & (bins == b)
            common = miss[inside] if inside.sum() >= ENOUGH else miss[known]
            for c in range(self.head.channels):
                own = miss[inside[:, c], c]
                errors = own if len(own) >= ENOUGH else common
                if self.head.law == "gaussian":
                    self.errors[b, c, 0] = max(SMALLEST_STD, float(np.sqrt(np.mean(errors**2))))
                elif self.head.law == "quantiles":
                    self.errors[b, c] = torch.from_numpy(np.quantile(errors, self.head.quantiles))


class LastValue(ValueBaseline):
    """The last observation of each channel; before the first one that."""

    citation: ClassVar[str] = "Last observation carried forward"

    def path(self, batch: Batch, times: Float[Tensor, "batch query"]) -> PerQuery:
        line = around(batch.values, batch.times, batch.observed, times)[0]
        if not batch.times.shape[1]:
            return line
        last = last_observed(batch.observed)
        row = torch.searchsorted(batch.times.contiguous(), times.to(batch.times).contiguous(), right=True) - 1
        index = last.gather(1, row.clamp(min=0).unsqueeze(-1).expand_as(line)).where((row >= 0).unsqueeze(-1), -1)
        return torch.where(index >= 0, batch.values.gather(1, index.clamp(min=0)), line)


class StraightLines(ValueBaseline):
    """Straight lines between observations; beyond them with the slope from the first to the last (drift method)."""

    citation: ClassVar[str] = "Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 2021"

    def path(self, batch: Batch, times: Float[Tensor, "batch query"]) -> PerQuery:
        line, gaps, has = around(batch.values, batch.times, batch.observed, times)
        if not batch.times.shape[1]:
            return line
        rows = batch.observed.shape[1]
        end = last_observed(batch.observed)[:, -1:].clamp(min=0)
        start = rows - 1 - last_observed(batch.observed.flip(1))[:, -1:].clamp(min=0)
        wide = batch.times.unsqueeze(-1).expand_as(batch.observed)
        span = wide.gather(1, end) - wide.gather(1, start)
        rise = batch.values.gather(1, end) - batch.values.gather(1, start)
        slope = torch.where(span > 0, rise / span.where(span > 0, 1.0), 0.0).to(line)
        beyond = torch.where(has[..., 0] & ~has[..., 1], gaps[..., 0], 0.0)
        return line + slope * (beyond - torch.where(has[..., 1] & ~has[..., 0], gaps[..., 1], 0.0))


class SeasonalNaive(ValueBaseline):
    """The value one season ago, on the line between its neighbours; or as many seasons as the lead needs.

    Args:
        period: the season, in the data's time. None: the one with the least error in training, of the forecaster's
            ``seasons``, or else of whole steps that fit into a window.
        (all others): see :class:`ValueBaseline`.
    """

    tasks: ClassVar[frozenset[str]] = frozenset({"forecasting"})
    citation: ClassVar[str] = StraightLines.citation
    period: Tensor

    def __init__(self, *, period: float | None = None, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        if period is not None and not period > 0:
            raise ValueError(f"period must be positive, got {period}")
        self.given = period
        self.register_buffer("period", torch.ones((), dtype=torch.float64))

    def path(self, batch: Batch, times: Float[Tensor, "batch query"]) -> PerQuery:
        if batch.times.shape[1]:
            end = batch.times.gather(1, (batch.lengths - 1).clamp(min=0)[:, None])
            # a lead of a whole season must not be two of them by rounding
            seasons = ((times - end) / self.period - 1e-6).ceil().clamp(min=0)
            times = times - seasons * self.period
        return around(batch.values, batch.times, batch.observed, times)[0]

    def choose(self, asked: SeriesSet) -> None:
        within = [period for period in self.seasons if period < self.past * self.step]
        tried = within or [k * self.step for k in range(2, max(3, min(self.past, FEWER)))]
        errors = []
        for period in tried if self.given is None else [self.given]:
            self.period.fill_(period / self.unit)
            errors.append((self.evaluate(Loader(asked, BATCH, shuffle=False))["mse"], period))
        self.period.fill_(min(errors)[1] / self.unit)


def distances(batch: Batch, times: Float[Tensor, "batch query"]) -> Float[Tensor, "batch query channels"]:
    """Time to the nearest observation of each channel; infinite where there is none."""
    _, gaps, has = around(batch.values, batch.times, batch.observed, times)
    return torch.where(has, gaps.double(), torch.inf).amin(-1)


def last_observed(observed: Tensor) -> Tensor:
    """[B, L, C]: the row of the last observation of a channel up to each row, -1 where there is none."""
    rows = torch.arange(observed.shape[1], device=observed.device)[:, None].expand_as(observed)
    return torch.where(observed, rows, -1).cummax(1).values


def evenly(data: SeriesSet, most: int) -> SeriesSet:
    """At most so many series, evenly taken."""
    return data if len(data) <= most else data.select(np.linspace(0, len(data) - 1, most).round().astype(int))
