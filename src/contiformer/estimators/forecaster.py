"""The forecaster: future values of all channels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from contiformer.backbones import backbone_class
from contiformer.data.errors import DataError
from contiformer.data.scaling import Origin, Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.data.windows import cut_windows
from contiformer.estimators.tables import Columns, Form, query_times
from contiformer.estimators.values import ValueEstimator, each_its_own, one_time
from contiformer.tasks.base import Judged
from contiformer.tasks.baselines import BASELINES
from contiformer.tasks.forecasting import Forecasting
from contiformer.tasks.inputs import Inputs

#: With fewer series than this the last stretch of each is what is validated on, otherwise some of the series.
_MANY = 10
#: Seconds.
DAY, YEAR = 86400.0, 365.2425 * 86400.0


@dataclass(kw_only=True, eq=False, repr=False)
class Forecaster(ValueEstimator):
    """Future values of all channels at any times, with quantiles.

    It learns from every moment of the training series, from what is known then and what came after it; or from given
    windows, where a SeriesSet has target series.

    Attributes:
        horizon: number of steps to forecast.
        step: length of a step in time; None: the usual gap between the points of a series.
        history: most points that a forecast is made from; None: four times the horizon, at least 32.
        law: "quantiles": the mean and ``quantiles``; "gaussian"; or "point" for the mean alone.
        quantiles: levels to learn with law="quantiles".
        separate: forecast each channel by itself, with the same weights.
        seasons: periods in time that the future may depend on; None: day, week and year where times are dates, as far
            as the steps and the length of the training series let them be seen.
        scaling: "standard": by mean and standard deviation of the training data; "none": values are taken as they
            come, where they are standardised already.
        (all others): see :class:`~contiformer.estimators.base.Estimator`.

    Example:
        >>> from contiformer import Forecaster, TrainingOptions
        >>> X = [(range(20), [[float(n % 4)] for n in range(20)])]
        >>> fc = Forecaster(horizon=2, training=TrainingOptions(max_epochs=1, verbose=0)).fit(X)
        >>> fc.predict(X)[0].shape
        (2, 1)
    """

    d_model: int = 32
    window: int = 2
    horizon: int = 24
    step: float | None = None
    history: int | None = None
    law: Literal["quantiles", "gaussian", "point"] = "quantiles"
    quantiles: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    separate: bool = True
    seasons: tuple[float, ...] | None = None
    scaling: Literal["standard", "none"] = "standard"  # type: ignore[assignment]
    time_origin: Origin = "global"

    task_name: ClassVar[str] = "forecasting"
    training_defaults: ClassVar[Mapping[str, Any]] = {
        **ValueEstimator.training_defaults,
        "epochs": 8,
        "keep": "auto",
        "patience": 1.0,
        "validation_limit": 256,
    }
    unused_options: ClassVar[frozenset[str]] = frozenset()

    def _parse(
        self, X: Any, y: Any, columns: Columns, validation_data: Any, **how: Any
    ) -> tuple[SeriesSet, Columns, SeriesSet | None]:
        if self.horizon < 1:
            raise ValueError(f"horizon must be 1 step or more, got {self.horizon}")
        data, columns, held_out = super()._parse(X, y, columns, validation_data, **how)
        self.step_ = self.step or _usual_gap(data, of_targets=bool(data.schema.targets))
        return data, columns, held_out

    @property
    def _history(self) -> int:
        return self.history or max(32, 4 * self.horizon)

    def _fit_scaling(self, data: SeriesSet) -> Scaling:
        scaling = Scaling.fit(data, origin=self.time_origin)
        mean, std = scaling.mean, scaling.std
        if self.scaling == "none":
            mean, std = tuple(0.0 for _ in mean), tuple(1.0 for _ in std)
        # the model's clock measures a window, not the whole series
        unit = self._history * self.step_
        return replace(scaling, mean=mean, std=std, target_mean=mean, target_std=std, unit=unit)

    def _backbone_options(self) -> dict[str, Any]:
        fixed = self.backbone not in BASELINES and backbone_class(self.backbone).fixed_window
        sizes = {"history": self._history, "horizon": self.horizon} if fixed else {}
        return {**sizes, **super()._backbone_options()}

    def _augmentation(self) -> dict[str, Any]:
        # a window with points left out is no regular grid
        given = super()._augmentation()
        return given if self._capabilities().irregular else {"noise": given["noise"]}

    def _reach(self) -> float:
        return self.horizon * self.step_ * (1 + 1e-6)

    def _parts(self, data: SeriesSet, member: int) -> tuple[SeriesSet, SeriesSet]:
        several = len(data) >= _MANY
        if not data.schema.targets:
            self._refuse_short(data, 1 if several else 2)
        if data.schema.targets or several:
            training, held_out = super()._parts(data, member)
            return self._cut(training), self._cut(held_out)
        share = self.training_options().validation
        if not 0 < share < 1:
            raise ValueError(f"validation must be a share between 0 and 1, got {share}")
        ends = [one.times[-1] if len(one) else 0.0 for one in data]
        borders = [end - share * one.span for end, one in zip(ends, data, strict=True)]
        before = [(-np.inf, border) for border in borders]
        after = [(border, np.inf) for border in borders]
        return self._cut(data, before), self._cut(data, after)

    def _refuse_short(self, data: SeriesSet, windows: int) -> None:
        """Refuse series none of which has so many windows, of two points and the whole horizon."""
        longest, needed = max(one.span for one in data) / self.step_, windows * (self.horizon + 1)
        if longest < needed * (1 - 1e-6):
            known = f"the longest series lasts {longest:.4g} steps of {self.step_:g}"
            which = "a window" if windows == 1 else "two windows, one to validate on,"
            problem = f"{known}, fewer than the {needed} of {which} of {self.horizon} steps"
            raise DataError(problem, remedy="give longer series, or a smaller horizon or step")

    def _cut(self, data: SeriesSet, between: list[tuple[float, float]] | None = None) -> SeriesSet:
        if data.schema.targets:
            return data
        windows = cut_windows(data, self._history, self._reach(), least=2, between=between)
        if not len(windows):
            raise DataError(
                f"no series is long enough to learn {self.horizon} steps of {self.step_:g} ahead from 2 points",
                remedy="give longer series, or a smaller horizon, step or validation",
            )
        return windows

    def _examples(self, data: SeriesSet) -> SeriesSet:
        return self._cut(data)

    def _seasons(self, training: SeriesSet) -> list[float]:
        if self.seasons is not None or not training.schema.dates or self.time_origin == "first":
            return list(self.seasons or ())
        starts = [one.times[0] for one in training if len(one)]
        ends = [one.times[-1] for one in training if len(one)]
        longest = max(ends) - min(starts)
        return [period for period in (DAY, 7 * DAY, YEAR) if 2 * self.step_ <= period <= longest / 2]

    def _input_options(self) -> dict[str, Any]:
        return {"channels": 1} if self.separate and self.backbone not in BASELINES else {}

    def _validation_form(self, data: SeriesSet) -> SeriesSet:
        limit = self.training_options().validation_limit
        if limit is None or len(data) <= limit:
            return data
        return data.select(np.linspace(0, len(data) - 1, limit).round().astype(int))

    def _describe_task(self, training: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        return {
            "outputs": 1 if self.separate else len(training.channels),
            "separate": self.separate,
            "seasons": self._seasons(training),
            "start": 0.0 if scaling.origin == "first" else scaling.start,
            "unit": scaling.unit,
            "past": self._history - 1,
            "law": self.law,
            "quantiles": list(self.quantiles) if self.law == "quantiles" else [],
            "reach": self._reach() / scaling.unit,
            "step": self.step_,
            "augmentation": self._augmentation(),
        }

    def _make_task(self, config: dict[str, Any], inputs: Inputs) -> Forecasting:
        options = dict(config["task"])
        options.pop("step")
        options["quantiles"] = tuple(options["quantiles"])
        return Forecasting(self._new_backbone(config, inputs), inputs, **options)

    def _after_loading(self) -> None:
        self.step_ = float(self.config_["task"]["step"])

    def predict(
        self,
        X: Any,
        at: Any = None,
        *,
        return_std: bool = False,
        quantiles: Sequence[float] | None = None,
        channels: Sequence[str] | None = None,
    ) -> Any:
        """Future values, in the form of X.

        Args:
            X: what is known; the last ``history`` points of each series are used.
            at: times after the last point, see :meth:`Interpolator.predict`; None: the next ``horizon`` steps. Beyond
                the horizon there is a warning, beyond twice the horizon a DataError.
            return_std: also the standard deviation, as a second value; for law="gaussian".
            quantiles: levels; instead of the mean one column for each channel and level, called as in ``pH_q0.9``.
            channels: only these.
        """
        bare, _, form = self._read(X)
        seen = self._visible(bare)
        times = self._future(at, seen, form)
        said = self._predict_at(seen, self.scaling_.apply(seen), times, quantiles)
        how: dict[str, Any] = {"return_std": return_std, "quantiles": quantiles, "channels": channels}
        return self._answer(said, bare, times, form, X, **how)

    def _visible(self, data: SeriesSet) -> SeriesSet:
        return data.map(lambda one: one.points(slice(max(0, len(one) - self._history), None)))

    def _future(self, at: Any, data: SeriesSet, form: Form) -> list[NDArray[np.float64]]:
        for n, one in enumerate(data):
            if not len(one):
                raise DataError(f"series {n if one.id is None else one.id!r} has no points", remedy="leave it out")
        if at is None:
            return [one.times[-1] + self.step_ * np.arange(1, self.horizon + 1) for one in data]
        times = query_times(at, data, form, self.columns_, self.schema_.kind)
        far = 0.0
        for n, (one, asked) in enumerate(zip(data, times, strict=True)):
            name = n if one.id is None else repr(one.id)
            if len(asked) and asked.min() <= one.times[-1]:
                raise DataError(
                    f"at has the time {asked.min():g}, and series {name} is known until {one.times[-1]:g}",
                    remedy="ask for later times, or use Interpolator for times within the data",
                )
            ahead = (asked.max(initial=-np.inf) - one.times[-1]) / self._reach()
            if ahead > 2:
                problem = f"at asks series {name} for {ahead:.3g} times the horizon of {self.horizon} steps"
                raise DataError(problem, remedy="ask for earlier times, or fit with a larger horizon")
            far = max(far, ahead)
        if far > 1:
            said = (
                f"at reaches {far:.2g} times as far as the horizon of {self.horizon} steps that the model has learned"
            )
            warnings.warn(said, stacklevel=3)
        return times

    def _explained_times(self, at: Any, data: SeriesSet, form: Form) -> list[NDArray[np.float64]]:
        times = self._future(each_its_own(at, len(data)), data, form)
        return [one[:1] for one in times] if at is None else one_time(times)

    def _check_states(self) -> None:
        raise ValueError(
            "a Forecaster has no states of whole series: there is one for each window and channel; "
            "explain has method='occlusion' and 'gradients'"
        )

    def score(self, X: Any, y: None = None) -> float:
        """Minus the mean squared error of the forecasts, in scaled units."""
        return -self.evaluate(X)["mse"]

    def judged(self, X: Any, y: Any = None) -> list[Judged]:
        """Errors in scaled units over all windows of the series, or over given windows."""
        data = self._read_whole(X)
        return self._judge(self.scaling_.apply(self._examples(data)))


def _usual_gap(data: SeriesSet, *, of_targets: bool = False) -> float:
    medians = []
    for n in np.unique(np.linspace(0, len(data) - 1, 500).astype(int)):
        one = data[int(n)]
        wanted = one.target_times if of_targets else None
        gaps = np.diff(one.times if wanted is None or len(wanted) < 2 else wanted)
        if (gaps > 0).any():
            medians.append(np.median(gaps[gaps > 0]))
    if not medians:
        raise DataError("no series has two points at different times", remedy="give longer series, or step=")
    return float(np.median(medians))
