"""Answers at any times: what Interpolator, Forecaster and the Regressor in time share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contiformer.data.batch import Batch
from contiformer.data.errors import DataError
from contiformer.data.loader import Loader
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.base import Estimator, by_length
from contiformer.estimators.limits import refuse_far
from contiformer.tasks.at_times import AtTimes
from contiformer.training.trainer import EVALUATION_BATCH


@dataclass(frozen=True)
class Said:
    """What the members say together, in the units of the data: mean [Q, K], std [Q, K] and quantiles [Q, K, levels]."""

    mean: NDArray[Any]
    std: NDArray[Any] | None
    quantiles: NDArray[Any] | None


class ValueEstimator(Estimator):
    """Predicts channels of ``_outputs`` at any times."""

    @property
    def _outputs(self) -> tuple[str, ...]:
        return self.schema_.targets or self.schema_.channels

    def _undo(self, values: NDArray[Any]) -> NDArray[Any]:
        return self.scaling_.undo_targets(values) if self.schema_.targets else self.scaling_.undo_values(values)

    @torch.no_grad()
    def _say(
        self,
        bare: SeriesSet,
        scaled: SeriesSet,
        times: list[NDArray[np.float64]],
        levels: Sequence[float] | None,
    ) -> list[Said]:
        """The answers for each series at its times."""
        asked = asking(bare, scaled, times, len(self._outputs), self.scaling_)
        asked, back = by_length(asked)
        by_member = [self._said_by(task, asked, levels) for task in self.tasks_]
        return [_together([member[n] for member in by_member]) for n in back]

    def _said_by(self, task: Any, asked: SeriesSet, levels: Sequence[float] | None) -> list[Said]:
        assert isinstance(task, AtTimes)
        unit = self._undo(np.ones(len(self._outputs))) - self._undo(np.zeros(len(self._outputs)))
        said = []
        for batch in Loader(asked, EVALUATION_BATCH, shuffle=False):
            assert isinstance(batch, Batch)
            moved = batch.to(task.device)
            assert moved.target_lengths is not None
            out = task(moved, moved.target_times)
            mean = task.head.location(out).double().cpu().numpy()
            spread = task.head.std(out)
            std = None if spread is None else spread.double().cpu().numpy() * unit
            some = None if levels is None else quantiles_of(task, out, levels)
            for n, count in enumerate(moved.target_lengths.tolist()):
                said.append(
                    Said(
                        self._undo(mean[n, :count]),
                        None if std is None else std[n, :count],
                        None
                        if some is None
                        else np.stack([self._undo(some[n, :count, :, k]) for k in range(some.shape[-1])], axis=-1),
                    )
                )
        return said

    def _judged(self, scaled: SeriesSet) -> dict[str, float]:
        """Errors on scaled series that have targets: the mean of the members' own."""
        scores = [task.evaluate(Loader(scaled, EVALUATION_BATCH, shuffle=False)) for task in self.tasks_]
        return {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}


def asking(
    bare: SeriesSet, scaled: SeriesSet, times: list[NDArray[np.float64]], outputs: int, scaling: Any
) -> SeriesSet:
    """The scaled series with the times to answer for as a target without values."""
    series = []
    for original, one, at in zip(bare, scaled, times, strict=True):
        if not len(original) and scaling.origin == "first":
            raise DataError(f"series {original.id!r} has no points", remedy="leave it out: there is nothing to go by")
        asked = scaling.times(at, original)
        refuse_far(asked, "at")
        series.append(replace(one, target_times=asked, target_values=np.full((len(at), outputs), np.nan, "f4")))
    schema = replace(scaled.schema, targets=tuple(f"target_{n}" for n in range(outputs)))
    return SeriesSet(series, schema=schema)


def quantiles_of(task: AtTimes, out: torch.Tensor, levels: Sequence[float]) -> NDArray[np.float64]:
    """[B, Q, K, levels] in scaled units: from the normal law, or between the quantiles that were learned."""
    wanted = np.asarray(levels, np.float64)
    if wanted.ndim != 1 or not len(wanted) or not ((wanted > 0) & (wanted < 1)).all():
        raise DataError(f"quantiles are {levels}", remedy="pass a list of numbers between 0 and 1")
    std = task.head.std(out)
    if std is not None:
        normal = np.array([NormalDist().inv_cdf(level) for level in wanted])
        mean = task.head.location(out).double().cpu().numpy()
        return mean[..., None] + std.double().cpu().numpy()[..., None] * normal
    known = np.array(task.head.quantiles)
    if not len(known):
        raise DataError(
            "this model predicts values without a distribution", remedy="fit it with law='gaussian' or 'quantiles'"
        )
    if wanted.min() < known[0] - 1e-9 or wanted.max() > known[-1] + 1e-9:
        raise DataError(
            f"quantiles from {wanted.min():g} to {wanted.max():g} were asked for, the model knows {known[0]:g} to "
            f"{known[-1]:g}",
            remedy="fit with a wider list of quantiles",
        )
    learned = out[..., 1:].double().cpu().numpy()
    right = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1) if len(known) > 1 else np.zeros(len(wanted), int)
    left = np.maximum(right - 1, 0)
    gap = known[right] - known[left]
    share = np.where(gap > 0, (wanted - known[left]) / np.where(gap > 0, gap, 1), 0.0)
    return learned[..., left] * (1 - share) + learned[..., right] * share


def _together(said: list[Said]) -> Said:
    """The mixture of the members: means of means and of quantiles, and its standard deviation."""
    if len(said) == 1:
        return said[0]
    means = np.stack([one.mean for one in said])
    mean = means.mean(0)
    std = None
    if said[0].std is not None:
        variances = np.stack([one.std**2 for one in said if one.std is not None])
        std = np.sqrt(variances.mean(0) + means.var(0))
    quantiles = None
    if said[0].quantiles is not None:
        quantiles = np.stack([one.quantiles for one in said if one.quantiles is not None]).mean(0)
    return Said(mean, std, quantiles)
