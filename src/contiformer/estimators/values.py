"""Predictions at any times: the base of Interpolator, Forecaster and Regressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from contiformer.data.batch import Batch
from contiformer.data.errors import DataError
from contiformer.data.loader import Loader
from contiformer.data.readers.duplicates import Policy
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.base import Estimator, by_length, columns_of
from contiformer.estimators.input_checks import refuse_far, refuse_non_finite
from contiformer.estimators.labels import MissingLabels
from contiformer.estimators.tables import Form, answer, query_times, without_labels
from contiformer.tasks.at_times import ValueTask
from contiformer.tasks.base import Judged
from contiformer.training.options import EVALUATION_BATCH


@dataclass(frozen=True)
class Prediction:
    """For one series, in the units of the data: mean [Q, K], std [Q, K] and quantiles [Q, K, levels]."""

    mean: NDArray[Any]
    std: NDArray[Any] | None
    quantiles: NDArray[Any] | None


class ValueEstimator(Estimator):
    """Predicts channels of ``_outputs`` at any times."""

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        id: str | None = None,
        time: str | None = None,
        values: Sequence[str] | None = None,
        variable: str | None = None,
        value: str | None = None,
        static: Sequence[str] = (),
        categorical: Sequence[str] = (),
        duplicates: Policy = "error",
        sample_weight: Any = None,
        validation_data: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: a SeriesSet, a DataFrame, an array [n, L, C] with NaN, or a list of (times, values); whole series,
                or a SeriesSet with target series.
            y: not used; scikit-learn passes it.
            id, time, values, variable, value, static, categorical, duplicates: columns of a DataFrame, see
                :func:`contiformer.data.from_frame`.
            sample_weight: how much each series counts in the loss: by id, or one for each series of a list.
            validation_data: of the same kind as X, to choose by, instead of a part of X.
        """
        held_out = None if validation_data is None else (validation_data, None)
        columns = columns_of(id, time, values, None, static, (), variable, value, categorical, duplicates)
        return self._fit(*self._parse(X, None, columns, held_out, sample_weight=sample_weight))

    def _answered(self, data: SeriesSet, y: list[Any] | None, missing: MissingLabels = "drop") -> SeriesSet:
        return without_labels(data)

    @property
    def _outputs(self) -> tuple[str, ...]:
        return self.schema_.targets or self.schema_.channels

    def _query_times(self, X: Any, at: Any, data: SeriesSet, form: Form) -> list[NDArray[np.float64]]:
        """See :func:`query_times`; by default all times of an array, also of series that end earlier."""
        every = at is None and form == "array"
        return query_times(np.arange(np.shape(X)[1]) if every else at, data, form, self.columns_, self.schema_.kind)

    def _explained_times(self, at: Any, data: SeriesSet, form: Form) -> list[NDArray[np.float64]]:
        """The time of each series whose prediction is explained."""
        if at is None:
            raise ValueError("at must be the time of the prediction to explain, which is missing: pass at=")
        return one_time(query_times(each_its_own(at, len(data)), data, form, self.columns_, self.schema_.kind))

    def _undo(self, values: NDArray[Any]) -> NDArray[Any]:
        return self.scaling_.undo_targets(values) if self.schema_.targets else self.scaling_.undo_values(values)

    @torch.no_grad()
    def _predict_at(
        self, bare: SeriesSet, scaled: SeriesSet, times: list[NDArray[np.float64]], levels: Sequence[float] | None
    ) -> list[Prediction]:
        """Predictions for each series at its times."""
        asked = asking(bare, scaled, times, len(self._outputs), self.scaling_)
        asked, back = by_length(asked)
        by_member = [self._predict_by(task, asked, levels) for task in self.tasks_]
        return [_together([member[n] for member in by_member]) for n in back]

    def _predict_by(self, task: Any, asked: SeriesSet, levels: Sequence[float] | None) -> list[Prediction]:
        assert isinstance(task, ValueTask)
        unit = self._undo(np.ones(len(self._outputs))) - self._undo(np.zeros(len(self._outputs)))
        said: list[Prediction] = []
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
                refuse_non_finite(mean[n, :count], asked[len(said)])
                said.append(
                    Prediction(
                        self._undo(mean[n, :count]),
                        None if std is None else std[n, :count],
                        None
                        if some is None
                        else np.stack([self._undo(some[n, :count, :, k]) for k in range(some.shape[-1])], axis=-1),
                    )
                )
        return said

    def _answer(
        self,
        said: list[Prediction],
        data: SeriesSet,
        times: list[NDArray[np.float64]],
        form: Form,
        X: Any,
        *,
        return_std: bool = False,
        quantiles: Sequence[float] | None = None,
        channels: Sequence[str] | None = None,
    ) -> Any:
        """Means, means and standard deviations, or quantiles, in the form of X."""
        names = list(self._outputs if channels is None else channels)
        for name in names:
            if name not in self._outputs:
                raise DataError(f"there is no channel {name!r}", remedy=f"choose among {', '.join(self._outputs)}")
        which = [self._outputs.index(name) for name in names]

        def out(values: list[NDArray[Any]], names: list[str]) -> Any:
            return answer(form, data, times, values, names, self.columns_, X)

        if quantiles is not None:
            if return_std:
                raise ValueError("return_std and quantiles exclude each other: pass one of them")
            columns = [f"{name}_q{level:g}" for name in names for level in quantiles]
            levels = [one.quantiles[:, which] for one in said if one.quantiles is not None]
            return out([one.reshape(len(one), -1) for one in levels], columns)
        mean = out([one.mean[:, which] for one in said], names)
        if not return_std:
            return mean
        if said and said[0].std is None:
            raise ValueError("this model has no standard deviation: fit it with law='gaussian'")
        return mean, out([one.std[:, which] for one in said if one.std is not None], names)

    def metric_meanings(self) -> dict[str, str]:
        """Meanings of the metrics: errors count in standard deviations of each channel in training."""
        plain = self.scaling == "none"
        unit = "the data's units" if plain else "standard deviations of the channel"
        return {
            **super().metric_meanings(),
            "score": "loss by which epochs are compared",
            "nll": f"mean negative log-likelihood, in nats of {unit}",
            "mse": f"mean squared error, in {unit} squared",
            "rmse": f"root mean squared error, in {unit}",
            "mae": f"mean absolute error of the mean, in {unit}",
            "coverage90": "share of values within the 90 % intervals",
        }

    def _judge(self, scaled: SeriesSet) -> list[Judged]:
        """Sums of errors for each of the scaled series, which have targets, and channel; of each member."""
        return [task.judged(Loader(scaled, EVALUATION_BATCH, shuffle=False)) for task in self.tasks_]


def each_its_own(at: Any, count: int) -> Any:
    """``at`` for :func:`query_times`: of a list of as many times as there are series, each series gets one."""
    listed = isinstance(at, Sequence | np.ndarray) and not isinstance(at, str) and np.ndim(at) == 1
    return [[one] for one in at] if listed and len(at) == count else at


def one_time(times: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The query times, if there is one for each series."""
    for n, one in enumerate(times):
        if len(one) != 1:
            raise DataError(f"at has {len(one)} times for series {n}", remedy="explain one time of each series at once")
    return times


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


def quantiles_of(task: ValueTask, out: torch.Tensor, levels: Sequence[float]) -> NDArray[np.float64]:
    """[B, Q, K, levels] in scaled units: from the normal law, or between the quantiles that were learned."""
    wanted = np.asarray(levels, np.float64)
    if wanted.ndim != 1 or not len(wanted) or not ((wanted > 0) & (wanted < 1)).all():
        problem = f"quantiles must be a list of numbers between 0 and 1, got {levels}"
        raise DataError(problem, remedy="pass for example [0.1, 0.5, 0.9]")
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


def _together(said: list[Prediction]) -> Prediction:
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
    return Prediction(mean, std, quantiles)
