"""Forecasting windows: a history of points and the following points as target, cut at every possible time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from contiformer.data.collection import LazyItems
from contiformer.data.errors import DataError
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

_Range = tuple[float, float]


def cut_windows(
    data: SeriesSet, history: int, reach: float, *, least: int = 2, between: list[_Range] | None = None
) -> SeriesSet:
    """Windows of up to ``history`` points, with the points of the following ``reach`` of time as their target.

    A window ends at each point that has ``least`` points up to it and one or more after it within reach. Windows are
    made on access. ``between``: (start, end) for each series; only windows with targets in ``start < t <= end``.

    Example:
        >>> from contiformer.data import Series, SeriesSet, cut_windows
        >>> data = SeriesSet([Series.of(range(6), range(6))])
        >>> [(w.times.tolist(), w.target_times.tolist()) for w in cut_windows(data, history=3, reach=2)][-2:]
        [([1.0, 2.0, 3.0], [4.0, 5.0]), ([2.0, 3.0, 4.0], [5.0])]
    """
    if history < 1 or least < 1 or not reach > 0:
        raise DataError(f"history, least and reach must be positive, got {history}, {least} and {reach}")
    which, cuts, ends = [], [], []
    for number, series in enumerate(data):
        times = series.times
        low, high = (-np.inf, np.inf) if between is None else between[number]
        stop = np.searchsorted(times, np.minimum(times + reach, high), side="right")
        # a window ends after all points of one time: what happens at once is seen at once
        cut = np.searchsorted(times, times, side="right")
        at = np.unique(cut)
        limit = stop[at - 1]
        good = (at >= least) & (limit > at)
        if np.isfinite(low):
            good &= times[np.minimum(at, len(times) - 1)] > low
        which.append(np.full(int(good.sum()), number))
        cuts.append(at[good])
        ends.append(limit[good])
    places = np.stack([np.concatenate(which), np.concatenate(cuts), np.concatenate(ends)], axis=1)
    make = partial(_window, data, places, history)
    schema = Schema(**{**vars(data.schema), "targets": data.channels, "classes": None})
    return SeriesSet(
        LazyItems(np.minimum(places[:, 1], history).astype(np.int64), make), schema=schema, notes=data.notes
    )


def _window(data: SeriesSet, places: NDArray[np.int64], history: int, index: int) -> Series:
    number, cut, end = places[index].tolist()
    series = data[number]
    seen, wanted = series.points(slice(max(0, cut - history), cut)), series.points(slice(cut, end))
    target = {"target_times": wanted.times, "target_values": wanted.values}
    return replace(seen, label=None, **target, id=f"{series.id}@{cut}")
