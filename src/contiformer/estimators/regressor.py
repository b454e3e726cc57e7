"""The regressor: a number for each series, or numbers at every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from contiformer.data.errors import DataError
from contiformer.data.readers.duplicates import Policy
from contiformer.data.scaling import Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.base import columns_of, has_gaps
from contiformer.estimators.labels import MissingLabels, weights_of, with_labels
from contiformer.estimators.tables import per_series, without_labels
from contiformer.estimators.values import ValueEstimator
from contiformer.tasks.at_times import AtTimes
from contiformer.tasks.base import Judged, SeriesTask
from contiformer.tasks.inputs import Inputs
from contiformer.tasks.regression import Regression
from contiformer.training.options import TrainingOptions

#: Series of pictures in a step, unless ``batch_size`` says otherwise.
FRAMES_BATCH = 8
#: Times of the target series that a step asks for, at most.
ASK = 64


@dataclass(kw_only=True, eq=False, repr=False)
class Regressor(ValueEstimator):
    """A number for each series, or numbers at every time.

    Given ``y`` (or a column ``label``) it learns one number for each series. Given target series, by a SeriesSet that
    has them or by the columns ``targets``, it learns those channels at any time.

    Attributes:
        pooling: pooling of the states of a series: "learned", "mean" or "last".
        summaries: show summary statistics of each channel to the head, see
            :class:`~contiformer.tasks.pooling.PooledHead`; None: where channels are missing at some points.
        law: for target series: "point" or "gaussian".
        frames: (height, width) when the channels are the pixels of pictures; the default batch size is 8 then.
        (all others): see :class:`~contiformer.estimators.base.Estimator`.

    Example:
        >>> from contiformer import Regressor, TrainingOptions
        >>> X = [([0, 0.4, 1.0], [[n], [2 * n], [n]]) for n in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]
        >>> quick = TrainingOptions(max_epochs=1, validation=0.5, verbose=0)
        >>> Regressor(training=quick).fit(X, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).predict(X).shape
        (6,)
    """

    scaling: Literal["auto", "standard", "normal scores"] = "auto"
    pooling: Literal["learned", "mean", "last"] = "learned"
    summaries: bool | None = None
    law: Literal["point", "gaussian"] = "point"
    frames: tuple[int, int] | None = None
    window: int = 2

    task_name: ClassVar[str] = "regression"
    training_defaults: ClassVar[Mapping[str, Any]] = {
        **ValueEstimator.training_defaults,
        "keep_points": 1.0,
        "epochs": 40,
    }

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        id: str | None = None,
        time: str | None = None,
        values: Sequence[str] | None = None,
        variable: str | None = None,
        value: str | None = None,
        label: str | None = None,
        static: Sequence[str] = (),
        targets: Sequence[str] = (),
        categorical: Sequence[str] = (),
        duplicates: Policy = "error",
        sample_weight: Any = None,
        missing_labels: MissingLabels = "drop",
        validation_data: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: a SeriesSet, a DataFrame, an array [n, L, C] with NaN, or a list of (times, values).
            y: a number for each series, given as in :meth:`Classifier.fit`; None: the label of the set or the column
                ``label``, or target series.
            id, time, values, variable, value, label, static, categorical, duplicates: columns of a DataFrame, see
                :func:`contiformer.data.from_frame`.
            targets: columns (or variables) to predict at any time.
            sample_weight: how much each series counts in the loss, given like ``y``.
            missing_labels: "drop": series without a label (None, NaN) are left out with a warning; "error".
            validation_data: (X, y), or a SeriesSet or DataFrame with answers, to choose by.
        """
        columns = columns_of(id, time, values, label, static, targets, variable, value, categorical, duplicates)
        how: dict[str, Any] = {"sample_weight": sample_weight, "missing_labels": missing_labels}
        return self._fit(*self._parse(X, y, columns, validation_data, **how))

    def _answered(self, data: SeriesSet, y: list[Any] | None, missing: MissingLabels = "drop") -> SeriesSet:
        if y is None and data.schema.targets:
            return without_labels(data)
        return with_labels(data, y, classes=False, missing=missing)

    def _input_options(self) -> dict[str, Any]:
        if self.frames is None:
            return {}
        height, width = self.frames
        if height * width != len(self.schema_.channels):
            raise ValueError(
                f"frames of {height} x {width} have {height * width} pixels, the series {len(self.schema_.channels)} "
                "channels"
            )
        return {"frames": (height, width), "frame_features": self.d_model}

    def training_options(self) -> TrainingOptions:
        """All options, with the defaults of the estimator; of pictures, smaller batches."""
        options = super().training_options()
        if self.frames is None or options.batch_size is not None:
            return options
        # every picture is an example for the encoder, so a few series are many examples: what is short is steps
        return replace(options, batch_size=FRAMES_BATCH)

    def _describe_task(self, training: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        if training.schema.targets:
            return {
                "outputs": len(training.schema.targets),
                "law": self.law,
                "ask": ASK,
                "augmentation": self._augmentation(),
            }
        labels = np.array(training.labels, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(labels.std())
        if not np.isfinite(spread):
            raise DataError("the labels in y are too large", remedy="give them in a larger unit")
        return {
            "mean": float(labels.mean()),
            "std": spread if spread > 0 else 1.0,
            "pooling": self.pooling,
            "summaries": has_gaps(training) if self.summaries is None else self.summaries,
            "dropout": self.dropout,
            "augmentation": self._augmentation(),
        }

    def _make_task(self, config: dict[str, Any], inputs: Inputs) -> SeriesTask:
        backbone = self._new_backbone(config, inputs)
        if "outputs" in config["task"]:
            return AtTimes(backbone, inputs, **config["task"])
        return Regression(backbone, inputs, **config["task"])

    def __sklearn_tags__(self) -> Any:
        """A regressor, for scikit-learn."""
        from sklearn.utils import RegressorTags  # noqa: PLC0415

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.regressor_tags, tags.target_tags.required = "regressor", RegressorTags(), True
        return tags

    @property
    def _in_time(self) -> bool:
        self._check_fitted()
        return "outputs" in self.config_["task"]

    @property
    def _per_series(self) -> bool:
        return not self._in_time

    def predict(self, X: Any, at: Any = None, *, return_std: bool = False) -> Any:
        """Numbers [n], of a DataFrame by id; or, where target series were learned, values at any times, as X came.

        Args:
            X: the series.
            at: times to answer for, see :meth:`Interpolator.predict`; only where target series were learned.
            return_std: also the standard deviation; only for target series with law="gaussian".
        """
        bare, scaled, form = self._read(X)
        if not self._in_time:
            if at is not None or return_std:
                raise ValueError("leave out at and return_std: this model predicts one number for each series")
            numbers = self._mean_over_members(scaled, "values")
            return per_series(form, bare, numbers, self.columns_.label or "prediction", self.columns_, X)
        times = self._query_times(X, at, bare, form)
        return self._answer(self._predict_at(bare, scaled, times, None), bare, times, form, X, return_std=return_std)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R² of numbers; for target series minus the mean squared error in scaled units."""
        if self._in_time:
            if sample_weight is not None:
                raise ValueError("leave out sample_weight: this model predicts numbers at times")
            return -self.evaluate(X, y)["mse"]
        from sklearn.metrics import r2_score  # noqa: PLC0415  imports scipy.stats

        data, scaled = self._read_answered(X, y, sample_weight)
        predicted = self._mean_over_members(scaled, "values")
        return float(r2_score(np.array(data.labels, np.float64), predicted, sample_weight=weights_of(data)))

    def metric_meanings(self) -> dict[str, str]:
        """Meanings of the metrics, in the unit of the labels, or for target series in standard deviations."""
        if self._in_time:
            return super().metric_meanings()
        units = {
            "mse": "mean squared error, in the label's unit squared",
            "rmse": "root mean squared error, in the label's unit",
            "mae": "mean absolute error, in the label's unit",
        }
        return super().metric_meanings() | units

    def judged(self, X: Any, y: Any = None) -> list[Judged]:
        """Errors and labels [n] of numbers; of target series sums of errors in scaled units.

        The metrics are MSE, RMSE and MAE, and R² for numbers.
        """
        self._check_fitted()
        if self._in_time:
            data = self._read_whole(X)
            if not data.schema.targets:
                raise DataError("X has no targets to compare with", remedy="give a SeriesSet or a table with them")
            return self._judge(self.scaling_.apply(without_labels(data)))
        data, scaled = self._read_answered(X, y)
        truth = np.array(data.labels, np.float64)
        return [{"miss": self._mean_over_members(scaled, "values") - truth, "label": truth}]
