"""Scaling of values and times with statistics of the training data, for series and for event sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet, as_tuples

_FORMAT = 1
_Numbers = tuple[float, ...]
Origin = Literal["first", "global"]
ScalingLaw = Literal["standard", "normal scores"]
#: Values and the normal scores that they get, for one channel.
_Scores = tuple[_Numbers, _Numbers]
_KNOTS = 33
#: Values of a channel that its quantiles are taken from, at most.
_SAMPLE = 2_000_000
#: Levels of the stored quantiles of waiting times.
LEVELS = tuple(np.linspace(0.0, 1.0, 65).tolist())
#: Standard deviations beyond which outliers are looked for, and between the 1 % and 99 % quantiles of a normal law.
_USUAL, _WIDTH_98 = 5.0, 4.652695748


@dataclass(frozen=True)
class Scaling:
    """``(value - mean) / std`` for each channel, and ``(time - origin) / unit``, in float64.

    Attributes:
        channels: their names; a set with others is refused.
        mean, std: one number for each channel; one that never varies has std 1 (or 1e-6 of a large mean), one
            never observed mean 0.
        origin: "first": every series starts at time 0. "global": all are moved by the same ``start``.
        start: the earliest training time.
        unit: what becomes 1; by default the 95 % quantile of the spans of the training series.
        static_mean, static_std, target_mean, target_std: the same for static features and target series.
        scores, static_scores: with the law "normal scores", for each channel quantiles and their normal scores: values
            become standard normal, outliers are clipped, and there is no way back.
        limit: values farther than so many standard deviations from the mean, such as typing errors, count as that far;
            what is as far from the median by the 1 % and 99 % quantiles does not enter mean and std. None: no limit.

    Example:
        >>> from contiformer.data import Scaling, Series, SeriesSet
        >>> train = SeriesSet([Series.of([10, 20], [[0.0], [4.0]])])
        >>> scaling = Scaling.fit(train)
        >>> scaled = scaling.apply(train)[0]
        >>> scaled.times.tolist(), scaled.values.ravel().tolist()
        ([0.0, 1.0], [-1.0, 1.0])
    """

    channels: tuple[str, ...]
    mean: _Numbers
    std: _Numbers
    origin: Origin
    start: float
    unit: float
    static_mean: _Numbers = ()
    static_std: _Numbers = ()
    target_mean: _Numbers = ()
    target_std: _Numbers = ()
    scores: tuple[_Scores, ...] = ()
    static_scores: tuple[_Scores, ...] = ()
    limit: float | None = None

    @classmethod
    def fit(
        cls,
        train: SeriesSet,
        *,
        origin: Origin = "first",
        unit: float | None = None,
        law: ScalingLaw = "standard",
        limit: float | None = None,
    ) -> Scaling:
        """Compute the statistics of the training series."""
        if law not in get_args(ScalingLaw):
            raise DataError(f"law={law!r} is unknown", remedy="pass 'standard' or 'normal scores'")
        if origin not in ("first", "global"):
            raise DataError(f"origin={origin!r} is unknown", remedy="pass 'first' or 'global'")
        values, static, target = (_Moments(len(n)) for n in (train.channels, train.schema.static, train.schema.targets))
        starts, spans = [], []
        for series in train:
            values.add(series.values)
            if series.static is not None:
                static.add(series.static[None])
            if series.target_values is not None:
                target.add(series.target_values)
            if len(series):
                starts.append(series.times[0])
                spans.append(series.span)
        start = float(min(starts, default=0.0))
        if unit is None:
            longest = float(np.quantile(spans, 0.95)) if spans else 0.0
            unit = longest if longest > 0 else max(spans, default=0.0) or 1.0
        if not (np.isfinite(unit) and unit > 0):
            raise DataError(f"unit must be positive and finite, got {unit}")
        if limit is not None:
            values = _without_outliers(values, limit, lambda: (one.values for one in train))
            target = _without_outliers(target, limit, lambda: (one.target_values for one in train))
        moments = (*values.result(), origin, start, float(unit), *static.result(), *target.result())
        scores = _all_scores(train) if law == "normal scores" else ((), ())
        return cls(train.channels, *moments, *scores, limit)

    def outliers(self, data: SeriesSet) -> dict[str, tuple[int, Any, float]]:
        """Outliers by channel: the number of values beyond the limit, and series and value of the farthest one."""
        found: dict[str, tuple[int, Any, float]] = {}
        if self.limit is None:
            return found
        farthest = np.zeros(len(self.mean))
        for number, series in enumerate(data):
            distance = np.nan_to_num(np.abs(_scaled(series.values.astype(np.float64), self.mean, self.std)))
            for n in np.flatnonzero((distance > self.limit).any(0)):
                row = int(distance[:, n].argmax())
                count, *known = found.get(self.channels[n], (0, None, 0.0))
                if distance[row, n] > farthest[n]:
                    farthest[n] = distance[row, n]
                    known = [number if series.id is None else series.id, float(series.values[row, n])]
                found[self.channels[n]] = (count + int((distance[:, n] > self.limit).sum()), known[0], known[1])
        return found

    def origin_of(self, series: Series) -> float:
        """The time that becomes 0 in this series."""
        return self.start if self.origin == "global" or not len(series) else float(series.times[0])

    def times(self, times: NDArray[np.float64], series: Series) -> NDArray[np.float64]:
        """Scale any times of a series."""
        return (np.asarray(times, np.float64) - self.origin_of(series)) / self.unit

    def apply_to(self, series: Series) -> Series:
        """Scale one series."""
        values, static, targets = series.values, series.static, series.target_values
        given = (series.channels, 0 if static is None else len(static), 0 if targets is None else targets.shape[1])
        known = (len(self.mean), len(self.static_mean), len(self.target_mean))
        if given[0] != known[0] or given[1] not in (0, known[1]) or given[2] not in (0, known[2]):
            problem = f"channels, static features and targets are {given}, the scaling knows {known}"
            raise DataError(problem, remedy="fit it on data of the same kind")
        if static is not None:
            scores, mean, std = self.static_scores, self.static_mean, self.static_std
            static = _scored(static[None], scores)[0] if scores else _scaled(static, mean, std)
        return replace(
            series,
            times=self.times(series.times, series),
            values=_scored(values, self.scores) if self.scores else self._limited(values, self.mean, self.std),
            static=static,
            target_times=None if series.target_times is None else self.times(series.target_times, series),
            target_values=None if targets is None else self._limited(targets, self.target_mean, self.target_std),
        )

    def _limited(self, values: NDArray[Any], mean: _Numbers, std: _Numbers) -> NDArray[Any]:
        scaled = _scaled(values, mean, std)
        return scaled if self.limit is None else np.clip(scaled, -self.limit, self.limit)

    def apply(self, data: SeriesSet) -> SeriesSet:
        """Scale all series; the result has numbers for dates, and no units."""
        if data.channels != self.channels:
            problem = f"the data have the channels {data.channels}, the scaling was fitted on {self.channels}"
            raise DataError(problem, remedy="give the same channels in the same order")
        return data.map(self.apply_to).described(
            replace(data.schema, dates=False, time_unit=None, time_kind=None, units=())
        )

    def undo_values(self, values: NDArray[Any]) -> NDArray[Any]:
        """Turn scaled values [..., C] back to the units of the data."""
        if self.scores:
            raise DataError(
                "normal scores cannot be turned back into values", remedy="fit the scaling with law='standard'"
            )
        return _unscaled(values, self.mean, self.std)

    def undo_targets(self, values: NDArray[Any]) -> NDArray[Any]:
        """Turn scaled targets [..., K] back to their units."""
        return _unscaled(values, self.target_mean, self.target_std)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which holds every number exactly."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Scaling:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        try:
            data = {**saved}
            version = data.pop("format")
            if version != _FORMAT:
                problem = f"the scaling was saved in format {version}, this version reads {_FORMAT}"
                raise DataError(problem, remedy="upgrade contiformer, or fit it again")
            if data["origin"] not in ("first", "global") or not data["unit"] > 0:
                raise TypeError("origin or unit")
            return cls(**{name: as_tuples(value) for name, value in data.items()})
        except (KeyError, TypeError, RecursionError) as error:
            raise DataError(f"not a saved scaling ({error})", remedy="fit it again") from None


def _all_scores(train: SeriesSet) -> tuple[tuple[_Scores, ...], tuple[_Scores, ...]]:
    """Normal scores of the channels, and of the static features."""
    stride = max(1, int(train.lengths.sum()) // _SAMPLE)
    some = [train[n] for n in range(0, len(train), stride)]
    values = np.concatenate([one.values for one in some]) if some else np.zeros((0, len(train.channels)))
    static = np.stack([one.static for one in some if one.static is not None]) if train.schema.static else None
    return tuple(map(_scores, values.T)), () if static is None else tuple(map(_scores, static.T))


def _scores(column: NDArray[Any]) -> _Scores:
    """Quantiles of a column, and the normal scores of their levels; equal quantiles share the mean of theirs."""
    known = column[~np.isnan(column)].astype(np.float64)
    if not len(known):
        return (0.0,), (0.0,)
    levels = np.clip(np.linspace(0, 1, _KNOTS), 1e-3, 1 - 1e-3)
    normal = np.array([NormalDist().inv_cdf(level) for level in levels])
    knots, which = np.unique(np.quantile(known, levels), return_inverse=True)
    mean = np.bincount(which, normal) / np.bincount(which)
    return tuple(knots.tolist()), tuple(mean.tolist())


def _scored(values: NDArray[Any], scores: tuple[_Scores, ...]) -> NDArray[Any]:
    columns = [np.interp(values[:, n], *one) for n, one in enumerate(scores)]
    return np.where(np.isnan(values), np.nan, np.stack(columns, axis=1)).astype(values.dtype)


class _Moments:
    """Mean and standard deviation of columns with gaps, block by block, without cancellation (Chan's update)."""

    def __init__(self, columns: int) -> None:
        self.count, self.mean, self.squares = np.zeros(columns), np.zeros(columns), np.zeros(columns)
        self.low, self.high = np.full(columns, np.inf), np.full(columns, -np.inf)

    def add(self, values: NDArray[Any]) -> None:
        seen = ~np.isnan(values)
        count = seen.sum(0)
        if not count.any():
            return
        block = np.where(seen, values, 0.0).astype(np.float64)
        mean = block.sum(0) / np.maximum(count, 1)
        squares = (np.where(seen, values - mean, 0.0).astype(np.float64) ** 2).sum(0)
        self.low = np.fmin(self.low, np.where(seen, values, np.inf).min(0))
        self.high = np.fmax(self.high, np.where(seen, values, -np.inf).max(0))
        total = np.maximum(self.count + count, 1)
        difference = mean - self.mean
        self.squares += squares + difference**2 * self.count * count / total
        self.mean += np.where(count > 0, difference * count / total, 0.0)
        self.count += count

    def result(self) -> tuple[_Numbers, _Numbers]:
        variance = self.squares / np.maximum(self.count, 1)
        # what varies by rounding only is constant
        varies = variance > (1e-12 * np.abs(self.mean)) ** 2
        # where a large number is constant, its rounding must not count as a distance
        constant = np.maximum(1.0, 1e-6 * np.abs(self.mean))
        return tuple(self.mean.tolist()), tuple(np.where(varies, np.sqrt(variance), constant).tolist())


def _without_outliers(moments: _Moments, limit: float, blocks: Callable[[], Iterable[Any]]) -> _Moments:
    """Moments of the values within ``limit`` robust standard deviations of the median, where channels have outliers."""
    mean, std = map(np.asarray, moments.result())
    suspected = np.flatnonzero(
        (moments.count > 0) & (np.maximum(moments.high - mean, mean - moments.low) > _USUAL * std)
    )
    if not len(suspected):
        return moments
    stride = max(1, int(moments.count.max()) // _SAMPLE)
    some = np.concatenate([block[::stride, suspected] for block in blocks() if block is not None])
    centre, reach = np.zeros(len(mean)), np.full(len(mean), np.inf)
    for n, column in zip(suspected, some.T, strict=True):
        known = column[~np.isnan(column)].astype(np.float64)
        low, middle, high = np.quantile(known, [0.01, 0.5, 0.99]) if len(known) else (0.0, 0.0, 0.0)
        # a rare event in a channel that is constant otherwise is no error
        centre[n], reach[n] = middle, limit * (high - low) / _WIDTH_98 or np.inf
    inner = _Moments(len(mean))
    for block in blocks():
        if block is not None:
            inner.add(np.where(np.abs(block - centre) > reach, np.nan, block))
    cleaned = (reach < np.inf) & (inner.low < inner.high) & (inner.count < moments.count)
    for name in vars(moments):
        setattr(moments, name, np.where(cleaned, getattr(inner, name), getattr(moments, name)))
    return moments


def _unscaled(values: NDArray[Any], mean: _Numbers, std: _Numbers) -> NDArray[Any]:
    kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    return (values * np.asarray(std) + np.asarray(mean)).astype(kind)


def _scaled(values: NDArray[Any], mean: _Numbers, std: _Numbers) -> NDArray[Any]:
    return ((values - np.asarray(mean)) / np.asarray(std)).astype(values.dtype)


@dataclass(frozen=True)
class EventScaling:
    """Scaling of event times, and statistics of waits and types of the training sequences.

    Times become ``(t - t_first) / unit``: the first event of a sequence is at 0, and the mean wait is 1. A
    log-likelihood per event is less by ``log unit`` in the data's unit.

    Attributes:
        unit: the mean time from an event to the next.
        span: how long the longest sequence is, in units.
        waits: quantiles of the waits at :data:`LEVELS`, in units.
        counts: events of each type that are not the first of their sequence.
        feature_mean, feature_std: of further features of events.

    Example:
        >>> from contiformer.data import EventScaling, EventSequence, EventSet
        >>> EventScaling.fit(EventSet([EventSequence.of([0, 1, 4], [0, 1, 0])])).unit
        2.0
    """

    unit: float
    span: float
    waits: tuple[float, ...]
    counts: tuple[int, ...]
    feature_mean: tuple[float, ...] = ()
    feature_std: tuple[float, ...] = ()

    @classmethod
    def fit(cls, data: EventSet) -> EventScaling:
        """Statistics of the training sequences; a DataError where no time passes between events."""
        waits = [np.diff(sequence.times) for sequence in data]
        every = np.concatenate(waits) if waits else np.zeros(0)
        if not len(every):
            problem = "no sequence has two events, so there is nothing to learn about waiting"
            raise DataError(problem, remedy="give longer sequences")
        unit = float(every.mean())
        if not 0 < unit < np.inf:
            problem = f"the mean time between events is {unit:g}"
            raise DataError(problem, remedy="give times that differ, and that are not too large")
        spans = [float(wait.sum()) for wait in waits if len(wait)]
        counts = np.zeros(data.num_types, np.int64)
        for sequence in data:
            np.add.at(counts, sequence.types[1:], 1)
        return cls(
            unit=unit,
            span=max(1.0, max(spans) / unit),
            waits=tuple((np.quantile(every, LEVELS) / unit).tolist()),
            counts=tuple(counts.tolist()),
            **_feature_statistics(data),
        )

    def apply(self, data: EventSet) -> EventSet:
        """All sequences, scaled."""
        return data.map(self.apply_to)

    def apply_to(self, sequence: EventSequence) -> EventSequence:
        """One sequence, scaled; a DataError where its features differ from those of the training sequences."""
        times = (sequence.times - sequence.times[:1]) / self.unit
        if not self.feature_mean:
            return replace(sequence, times=times, features=None)
        found = 0 if sequence.features is None else sequence.features.shape[1]
        if sequence.features is None or found != len(self.feature_mean):
            name = "" if sequence.id is None else f" {sequence.id!r}"
            count = len(self.feature_mean)
            problem = f"sequence{name} has {found} features of events, others in the training have {count}"
            raise DataError(problem, remedy="give all sequences the same features, NaN where unknown")
        return replace(sequence, times=times, features=(sequence.features - self.feature_mean) / self.feature_std)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> EventScaling:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        return cls(**{name: as_tuples(value) for name, value in saved.items()})


def _feature_statistics(data: EventSet) -> dict[str, tuple[float, ...]]:
    known = [sequence.features for sequence in data if sequence.features is not None and len(sequence)]
    if not known:
        return {}
    widths = sorted({features.shape[1] for features in known})
    if len(widths) > 1:
        problem = f"sequences with {widths[0]} and with {widths[-1]} features of events"
        raise DataError(problem, remedy="give all sequences the same features, NaN where unknown")
    every = np.concatenate(known).astype(np.float64)
    observed = np.isfinite(every)
    count = np.maximum(1, observed.sum(0))
    mean = np.where(observed, every, 0).sum(0) / count
    std = np.sqrt((np.where(observed, every - mean, 0) ** 2).sum(0) / count)
    return {"feature_mean": tuple(mean.tolist()), "feature_std": tuple(np.where(std > 0, std, 1.0).tolist())}
