"""Cross-validation of each task: how its data are read and divided, and what is judged of a fold.

Whatever is judged has a row for each series (or sequence, or window), so that one resampling of rows serves all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.base import columns_of
from contiformer.estimators.blend import outputs_of
from contiformer.estimators.classifier import Classifier
from contiformer.estimators.event_predictor import EventPredictor
from contiformer.estimators.event_tables import EventColumns, read_events, with_waits
from contiformer.estimators.forecaster import Forecaster
from contiformer.estimators.interpolator import Interpolator
from contiformer.estimators.learner import Learner
from contiformer.estimators.regressor import Regressor
from contiformer.estimators.tables import without_answers
from contiformer.tasks.base import Judged
from contiformer.tasks.events.task import event_scores
from contiformer.tasks.interpolation import hide_observations
from contiformer.tasks.scores import classification_scores, error_scores, regression_scores

#: Share of the observations that an interpolation is asked for.
HIDDEN = 0.3
#: Metrics of which more is better.
LARGER = frozenset({"accuracy", "auroc", "average_precision", "r2", "log_likelihood"})
RIVALS = ("contiformer", "gru_d", "mtan", "transformer")


class CrossValidation:
    """The part of a comparison that depends on the task: classes of whole series.

    Attributes:
        kind: the estimator.
        models: those that are compared by default, the quickest first: what a time budget leaves out are the slow ones.
        preferred: metrics to compare by, the first that there is.
        items: what a row of the judged is.
    """

    kind: ClassVar[type[Learner]] = Classifier
    models: ClassVar[tuple[str, ...]] = ("boosting", "rocket", *RIVALS)
    preferred: ClassVar[tuple[str, ...]] = ("auroc", "accuracy")
    items: str = "series"

    def read(self, first: Any, X: Any, y: Any, columns: Mapping[str, Any]) -> Any:
        """The data as a set; ``first`` is one of the models."""
        data = first._prepare(first._parse(X, y, columns_of(**columns), None)[0])
        if data.schema.targets and self.kind in (Classifier, Regressor):
            raise DataError(
                "models are compared by one answer for each series", remedy="give y, or name the column in label="
            )
        return data

    def prepare(self, model: Any) -> Any:
        """The model, asked the same as all others."""
        return model

    def divide(self, data: Any, folds: int, seed: int) -> list[tuple[Any, Any]]:
        """Pairs of what is trained on and what is judged."""
        return data.k_fold(min(folds, len(data)), seed=seed, stratify=self.kind is Classifier)

    def judge(self, model: Any, fold: Any, data: Any) -> Judged:
        """Arrays with a row for each item of the fold."""
        number = {label: n for n, label in enumerate(data.classes)}
        labels = np.array([number[one.label] for one in fold])
        return {"probability": outputs_of(model, fold, data.classes), "label": labels}

    def metrics(self, judged: Judged) -> dict[str, float]:
        """Over all rows."""
        return classification_scores(judged["probability"], judged["label"])


class Numbers(CrossValidation):
    """Numbers of whole series."""

    kind = Regressor
    preferred = ("rmse",)

    def judge(self, model: Any, fold: Any, data: Any) -> Judged:
        labels = np.array(fold.labels, np.float64)
        return {"miss": outputs_of(model, fold)[:, 0] - labels, "label": labels}

    def metrics(self, judged: Judged) -> dict[str, float]:
        return regression_scores(judged["miss"], judged["label"])


class Values(CrossValidation):
    """Observations that are hidden, in standard deviations of their channel."""

    kind: ClassVar[type[Learner]] = Interpolator
    models: ClassVar[tuple[str, ...]] = ("last-value", "linear", *RIVALS)
    preferred = ("rmse",)

    def divide(self, data: Any, folds: int, seed: int) -> list[tuple[Any, Any]]:
        if data.schema.targets:
            pairs = data.k_fold(min(folds, len(data)), seed=seed)
            return [(rest, (fold, np.arange(len(fold)))) for rest, fold in pairs]
        if len(data) < 2 * folds:
            # few series are cut into stretches of time
            count, self.items = -(-4 * folds // len(data)), "stretches"
            cut = [replace(one.points(slice(*ends)), id=None) for one in data for ends in _ends(len(one), count)]
            data = SeriesSet(cut, schema=data.schema)
        found = []
        for rest, fold in data.k_fold(min(folds, len(data)), seed=seed):
            found.append((rest, (hide_observations(fold, HIDDEN, seed), np.arange(len(fold)))))
        return found

    def judge(self, model: Any, fold: Any, data: Any) -> Judged:
        asked, rows = fold
        some = [n for n, one in enumerate(asked) if len(one) and len(one.target_times)]
        asked, rows = asked.select(some), rows[some]
        said = model.predict(without_answers(asked), at=[one.target_times for one in asked])
        spread = _spread(data)
        sums = np.zeros((3, int(max(fold[1], default=-1)) + 1, len(spread)))
        for one, answer, row in zip(asked, said, rows, strict=True):
            miss = (answer.values - one.target_values) / spread
            sums[:, row] += [np.nansum(miss**2, 0), np.nansum(np.abs(miss), 0), (~np.isnan(miss)).sum(0)]
        return dict(zip(("squares", "absolutes", "count"), sums, strict=True))

    def metrics(self, judged: Judged) -> dict[str, float]:
        return error_scores(judged["squares"], judged["absolutes"], judged["count"])


class Windows(Values):
    """Forecasts of windows that follow each other, each from what came before it.

    Many series are divided into folds; few are divided along time, and models are trained on what came before a fold.
    """

    kind = Forecaster
    models = ("last-value", "linear", "seasonal-naive", *RIVALS)

    def read(self, first: Any, X: Any, y: Any, columns: Mapping[str, Any]) -> Any:
        data = super().read(first, X, y, columns)
        self.history, self.reach, self.horizon, self.step = first._history, first._reach(), first.horizon, first.step_
        return data

    def prepare(self, model: Any) -> Any:
        if model.horizon != self.horizon or model.step not in (None, self.step):
            raise ValueError("models must forecast the same: give all of them the same horizon and step")
        model.step = self.step
        return model

    def divide(self, data: Any, folds: int, seed: int) -> list[tuple[Any, Any]]:
        if data.schema.targets:
            return super().divide(data, folds, seed)
        if len(data) >= 2 * folds:
            pairs = data.k_fold(folds, seed=seed)
            return [
                (rest, self._windows(fold, [(-np.inf, np.inf)] * len(fold), by_series=True)) for rest, fold in pairs
            ]
        found = []
        self.items = "windows"
        for n in range(folds):
            # the second half of each series is judged, fold after fold
            shares = 0.5 + 0.5 * np.array([n, n + 1]) / folds
            edges = [one.times[0] + shares * one.span for one in data]
            rest = [one.between(-np.inf, low) for one, (low, _) in zip(data, edges, strict=True)]
            ends = [(float(low), float(high) if n + 1 < folds else np.inf) for low, high in edges]
            found.append((SeriesSet(rest, schema=data.schema), self._windows(data, ends, by_series=False)))
        return found

    def _windows(
        self, data: SeriesSet, ends: Sequence[tuple[float, float]], *, by_series: bool
    ) -> tuple[SeriesSet, NDArray[np.int64]]:
        """Windows with targets that do not overlap, after the first end and up to the second; and their rows."""
        windows: list[Series] = []
        rows: list[int] = []
        for number, (one, (low, high)) in enumerate(zip(data, ends, strict=True)):
            times, at = one.times, 2
            at = max(at, int(np.searchsorted(times, low, side="right")))
            while at < len(times):
                stop = int(np.searchsorted(times, min(times[at - 1] + self.reach, high), side="right"))
                if stop <= at or times[at] == times[at - 1]:
                    at += 1
                    continue
                seen, wanted = one.points(slice(max(0, at - self.history), at)), one.points(slice(at, stop))
                seen = replace(seen, label=None, target_times=wanted.times, target_values=wanted.values)
                windows.append(replace(seen, id=f"{one.id}@{at}"))
                rows.append(number if by_series else len(rows))
                at = stop
        if not windows:
            raise DataError("no series is long enough to judge a forecast", remedy="give longer ones, or fewer folds")
        schema = replace(data.schema, targets=data.channels, classes=None)
        return SeriesSet(windows, schema=schema), np.array(rows)


class NextEvents(CrossValidation):
    """The next event after each of a sequence, in the data's time."""

    kind = EventPredictor
    models = ("poisson", "renewal", "hp", "contiformer", "thp", "nhp")
    preferred = ("log_likelihood",)
    items = "sequences"

    def read(self, first: Any, X: Any, y: Any, columns: Mapping[str, Any]) -> Any:
        roles = {**columns, "features": tuple(columns.get("features", ()))}
        return with_waits(read_events(X, EventColumns(**roles)).data)

    def divide(self, data: Any, folds: int, seed: int) -> list[tuple[Any, Any]]:
        if len(data) < 2 * folds:
            count, self.items = -(-4 * folds // len(data)), "stretches"
            cut = [one.events(slice(*ends)) for one in data for ends in _ends(len(one), count)]
            data = EventSet(cut, type_names=data.type_names)
        return super().divide(data, folds, seed)

    def judge(self, model: Any, fold: Any, data: Any) -> Judged:
        judged, unit = model.judged(fold)[0], model.scaling_.unit
        scaled = {"squares": judged["squares"] * unit**2, "absolutes": judged["absolutes"] * unit}
        return {**judged, **scaled, "likelihood": judged["likelihood"] - judged["count"] * np.log(unit)}

    def metrics(self, judged: Judged) -> dict[str, float]:
        return event_scores(judged)


TASKS: dict[str, type[CrossValidation]] = {
    one.kind.task_name: one for one in (CrossValidation, Numbers, Values, Windows, NextEvents)
}


def _ends(length: int, count: int) -> list[tuple[int, int]]:
    """Starts and ends of so many pieces, those of two points or more."""
    edges = np.linspace(0, length, count + 1).round().astype(int).tolist()
    return [(start, end) for start, end in pairwise(edges) if end - start > 1]


def _spread(data: SeriesSet) -> NDArray[np.float64]:
    """The standard deviation of each channel that is asked for, 1 where it does not vary."""
    values = np.concatenate([one.target_values if data.schema.targets else one.values for one in data])
    spread = np.nanstd(values, axis=0)
    return np.where(spread > 0, spread, 1.0)
