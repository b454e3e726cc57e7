"""What comes next."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from contiformer.backbones import BACKBONES
from contiformer.backbones.regular import RegularBackbone
from contiformer.data.cuts import cut_windows
from contiformer.data.errors import DataError
from contiformer.data.scaling import Origin, Scaling
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.base import columns_of
from contiformer.estimators.labels import without_labels
from contiformer.estimators.tables import answer, query_times, read
from contiformer.estimators.values import ValueEstimator
from contiformer.tasks.forecasting import Forecasting
from contiformer.tasks.inputs import Inputs
from contiformer.training.options import TrainingOptions

#: With fewer series than this the last stretch of each is what is validated on, otherwise some of the series.
_MANY = 10
#: Seconds.
DAY, YEAR = 86400.0, 365.2425 * 86400.0
#: What the published trainings of regular forecasters do without; their learning rate decays by a schedule alone.
PLAIN_TRAINING: dict[str, Any] = {
    "min_steps": 0,
    "warmup": 0.0,
    "weight_decay": 0.0,
    "gradient_clip": 0.0,
    "averaging": 0.0,
}
PUBLISHED_BATCH = 32
#: Of the variance of a window, where a published model is normalised by it.
PUBLISHED_VARIANCE = 1e-5


@dataclass(kw_only=True, eq=False, repr=False)
class Forecaster(ValueEstimator):
    """Future values of all channels at any times, with quantiles.

    It learns from every moment of the training series, from what is known then and what came after it; or from given
    windows, where a SeriesSet has target series.

    Attributes:
        horizon: how many steps ahead.
        step: what a step is, in time; None: the usual gap between the points of a series.
        history: points to go by, at most; None: four times the horizon, at least 32.
        law: "quantiles": the mean and ``quantiles``; "gaussian"; or "point" for the mean alone.
        quantiles: levels to learn, for that law.
        separate, past: see :class:`~contiformer.tasks.Forecasting`.
        seasons: periods in time that the future may depend on; None: day, week and year where times are dates, as far
            as the steps and the length of the training series let them be seen.
        scaling: "standard": by mean and standard deviation of the training data; "none": values are taken as they
            come, where they are standardised already.
        most_validated: windows that are judged after each epoch, evenly spaced, because neighbouring ones tell nearly
            the same; None: all.
        as_published: train a model of a regular grid as its paper does, by the protocol of Autoformer and its
            successors: all channels together, from full windows of values (and of ``seasons``, where its paper embeds
            the calendar), by squared error over the whole horizon; the answer is the model's own forecast or a linear
            map of its states, normalised by window only where its paper does so; Adam without warm-up, decay, clipping
            or averaging, in batches of 32 unless ``batch_size`` says otherwise. What the parameters law, quantiles,
            separate, past, window, keep_points, most_points, noise, min_steps, warmup, weight_decay, gradient_clip and
            averaging say is not used then. Sizes, learning_rate and max_epochs are: the protocol has 1e-4 and 10.
        (all others): see :class:`~contiformer.estimators.base.Estimator`.

    Example:
        >>> X = [(range(20), [[float(n % 4)] for n in range(20)])]
        >>> fc = Forecaster(horizon=2, max_epochs=1, min_steps=1, verbose=0).fit(X)
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
    past: int | None = None
    seasons: tuple[float, ...] | None = None
    most_validated: int | None = 256
    as_published: bool = False
    scaling: Literal["standard", "none"] = "standard"  # type: ignore[assignment]
    time_origin: Origin = "global"
    max_epochs: int = 8
    keep: Literal["auto", "best", "last"] = "auto"
    patience: float = 1.0

    task_name: ClassVar[str] = "forecasting"

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        id: str | None = None,
        time: str | None = None,
        values: Sequence[str] | None = None,
        static: Sequence[str] = (),
        validation_data: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: a SeriesSet, a long DataFrame, an array [n, L, C] with NaN, or a list of (times, values); whole series,
                or a SeriesSet of windows with targets.
            y: not used; scikit-learn passes it.
            id, time, values, static: columns of a DataFrame.
            validation_data: of the same kind as X, to choose by, instead of a part of X.
        """
        if self.horizon < 1:
            raise ValueError(f"horizon must be 1 step or more, got {self.horizon}")
        if self.most_validated is not None and self.most_validated < 1:
            raise ValueError(f"most_validated must be positive or None, got {self.most_validated}")
        if self.as_published and self.backbone in BACKBONES and self._regular() is None:
            regular = [name for name, kind in BACKBONES.items() if issubclass(kind, RegularBackbone)]
            raise ValueError(
                f"as_published must be False for backbone={self.backbone!r}, which was not published as a forecaster "
                f"of regular series: choose among {', '.join(regular)}, or leave it out"
            )
        columns = columns_of(id, time, values, None, static)
        data = read(X, columns)[0]
        held_out = None if validation_data is None else read(validation_data, columns, data.channels)[0]
        if not data.schema.targets:
            data = without_labels(data)
            self.step_ = self.step or _usual_gap(data)
        else:
            self.step_ = self.step or _usual_gap(data, of_targets=True)
        return self._fit(data, columns, held_out)

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

    def _regular(self) -> type[RegularBackbone] | None:
        kind = BACKBONES.get(self.backbone)
        return kind if kind is not None and issubclass(kind, RegularBackbone) else None

    def _backbone_options(self) -> dict[str, Any]:
        sizes = {} if self._regular() is None else {"history": self._history, "horizon": self.horizon}
        return {**sizes, **super()._backbone_options()}

    def _training_options(self) -> TrainingOptions:
        options = super()._training_options()
        if not self.as_published:
            return options
        return replace(options, **PLAIN_TRAINING, batch_size=options.batch_size or PUBLISHED_BATCH)

    def _view(self) -> dict[str, Any]:
        if self.as_published:
            return {}
        # a window with points left out is no regular grid
        return super()._view() if self._capabilities().irregular else {"noise": self.noise}

    def _reach(self) -> float:
        return self.horizon * self.step_ * (1 + 1e-6)

    def _parts(self, data: SeriesSet, member: int) -> tuple[SeriesSet, SeriesSet]:
        if data.schema.targets or len(data) >= _MANY:
            training, held_out = super()._parts(data, member)
            return self._cut(training), self._cut(held_out)
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be a share between 0 and 1, got {self.validation}")
        ends = [one.times[-1] if len(one) else 0.0 for one in data]
        borders = [end - self.validation * one.span for end, one in zip(ends, data, strict=True)]
        before = [(-np.inf, border) for border in borders]
        after = [(border, np.inf) for border in borders]
        return self._cut(data, before), self._cut(data, after)

    def _cut(self, data: SeriesSet, between: list[tuple[float, float]] | None = None) -> SeriesSet:
        if data.schema.targets:
            return data
        least = self._history if self.as_published else 2
        windows = cut_windows(data, self._history, self._reach(), least=least, between=between)
        if not len(windows):
            raise DataError(
                f"no series is long enough to learn {self.horizon} steps of {self.step_:g} ahead from {least} points",
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
        if self.as_published:
            return {"window": 0}
        return {"channels": 1} if self.separate else {}

    def _validation_form(self, data: SeriesSet) -> SeriesSet:
        if self.most_validated is None or len(data) <= self.most_validated:
            return data
        return data.select(np.linspace(0, len(data) - 1, self.most_validated).round().astype(int))

    def _describe(self, data: SeriesSet) -> dict[str, Any]:
        described = super()._describe(data)
        if described["task"].get("calendar"):
            described["inputs"]["channels"] += 2 * len(described["task"]["seasons"])
        return described

    def _describe_task(self, training: SeriesSet, scaling: Scaling) -> dict[str, Any]:
        return {
            "outputs": 1 if self.separate else len(training.channels),
            "separate": self.separate,
            "seasons": self._seasons(training),
            "start": 0.0 if scaling.origin == "first" else scaling.start,
            "unit": scaling.unit,
            "past": self._history - 1 if self.past is None else self.past,
            "law": self.law,
            "quantiles": list(self.quantiles) if self.law == "quantiles" else [],
            "reach": self._reach() / scaling.unit,
            "step": self.step_,
            "view": self._view(),
            **self._published_form(training),
        }

    def _published_form(self, training: SeriesSet) -> dict[str, Any]:
        kind = self._regular()
        if not self.as_published or kind is None:
            return {}
        return {
            "outputs": len(training.channels),
            "separate": False,
            "seasons": self._seasons(training) if kind.calendar else [],
            "calendar": kind.calendar,
            "past": 0,
            "law": "point",
            "quantiles": [],
            "ask": None,
            "reads": "forecasts" if kind.forecasts else "states",
            "normalize": kind.normalize,
            "smallest_spread": PUBLISHED_VARIANCE**0.5,
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
        quantiles: Sequence[float] | None = None,
        channels: Sequence[str] | None = None,
    ) -> Any:
        """Future values, in the form of X.

        Args:
            X: what is known; the last ``history`` points of each series are used.
            at: times after the last point: one list for all series, one for each, or a dictionary by id; None: the
                next ``horizon`` steps.
            quantiles: levels; instead of the mean one column for each channel and level, called as in ``pH_q0.9``.
            channels: only these.
        """
        bare, _, form = self._read(X)
        seen = bare.map(lambda one: one.points(slice(max(0, len(one) - self._history), None)))
        times = self._future(at, seen)
        said = self._say(seen, self.scaling_.apply(seen), times, quantiles)
        names = list(self._outputs)
        which = list(range(len(names))) if channels is None else [self._number(name) for name in channels]
        wanted = [names[n] for n in which]
        if quantiles is None:
            return answer(form, bare, times, [one.mean[:, which] for one in said], wanted, self.columns_, X)
        columns = [f"{name}_q{level:g}" for name in wanted for level in quantiles]
        tables = [one.quantiles[:, which].reshape(len(one.mean), -1) for one in said if one.quantiles is not None]
        return answer(form, bare, times, tables, columns, self.columns_, X)

    def predict_windows(self, X: SeriesSet) -> list[NDArray[np.float64]]:
        """The mean [Q, C] at the target times of each window: for sets that have target series."""
        if not X.schema.targets:
            raise DataError("the series have no target times", remedy="use predict for series without them")
        bare, scaled, _ = self._read(X)
        times = [one.target_times for one in X if one.target_times is not None]
        return [one.mean for one in self._say(bare, scaled, times, None)]

    def _number(self, name: str) -> int:
        if name not in self._outputs:
            raise DataError(f"there is no channel {name!r}", remedy=f"choose among {', '.join(self._outputs)}")
        return self._outputs.index(name)

    def _future(self, at: Any, data: SeriesSet) -> list[NDArray[np.float64]]:
        for n, one in enumerate(data):
            if not len(one):
                raise DataError(f"series {n if one.id is None else one.id!r} has no points", remedy="leave it out")
        if at is None:
            return [one.times[-1] + self.step_ * np.arange(1, self.horizon + 1) for one in data]
        times = query_times(at, data)
        for n, (one, asked) in enumerate(zip(data, times, strict=True)):
            name = n if one.id is None else repr(one.id)
            if len(asked) and asked.min() <= one.times[-1]:
                raise DataError(
                    f"at has the time {asked.min():g}, and series {name} is known until {one.times[-1]:g}",
                    remedy="ask for later times, or use Interpolator for times within the data",
                )
            if len(asked) and asked.max() > one.times[-1] + self._reach():
                warnings.warn(
                    f"at reaches further than the horizon of {self.horizon} steps that the model has learned",
                    stacklevel=3,
                )
        return times

    def embed(self, X: Any, at: Any = None, *, member: int = 0) -> Any:
        """Not for forecasters: there is a state for each window and channel, not one for each series."""
        self._check_fitted()
        raise ValueError("a Forecaster has no states of whole series: use embed and explain of the other estimators")

    def explain(self, X: Any, at: Any = None, *, member: int = 0) -> Any:
        """Not for forecasters, see :meth:`embed`."""
        return self.embed(X, at)

    def score(self, X: Any, y: None = None) -> float:
        """Minus the mean squared error of the forecasts, in scaled units."""
        return -self.evaluate(X)["mse"]

    def evaluate(self, X: Any, y: Any = None) -> dict[str, float]:
        """Errors in scaled units over all windows of the series, or over given windows."""
        self._check_fitted()
        data = read(X, self.columns_, self.schema_.channels)[0]
        judged = self.scaling_.apply(self._examples(data))
        return self._judged(judged)


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
