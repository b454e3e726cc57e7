"""Series cut into what is known and what is to be forecast, at every possible moment."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

_Range = tuple[float, float]


def cut_windows(
    data: SeriesSet,
    history: int,
    reach: float,
    *,
    least: int = 2,
    between: list[_Range] | None = None,
) -> SeriesSet:
    """Windows of up to ``history`` points, with the points of the following ``reach`` of time as their target.

    A window ends at each point that has ``least`` points up to it and one or more after it within reach. They are
    views, made when asked for.

    Args:
        data: series of any kind, regular or not.
        history: points to see at most.
        reach: how far ahead, in time.
        least: points to see at least.
        between: for each series (start, end): only windows whose targets lie in ``start < t <= end``; what is seen may
            be before it.

    Example:
        >>> data = SeriesSet([Series.of(range(6), range(6))])
        >>> [(w.times.tolist(), w.target_times.tolist()) for w in cut_windows(data, history=3, reach=2)][-2:]
        [([1.0, 2.0, 3.0], [4.0, 5.0]), ([2.0, 3.0, 4.0], [5.0])]
    """
    if history < 1 or least < 1 or not reach > 0:
        raise DataError(
            f"{history} points to see, at least {least}, and {reach} ahead are not possible", remedy="pass more than 0"
        )
    which, cuts, ends = [], [], []
    for number, series in enumerate(data):
        times = series.times
        low, high = (-np.inf, np.inf) if between is None else between[number]
        until = np.minimum(times + reach, high)
        stop = np.searchsorted(times, until, side="right")
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
    windows = _Windows(data, np.concatenate(which), np.concatenate(cuts), np.concatenate(ends), history)
    schema = Schema(**{**vars(data.schema), "targets": data.channels, "classes": None})
    return SeriesSet(windows, schema=schema, notes=data.notes)


@dataclass
class _Windows:
    data: SeriesSet
    which: NDArray[np.int64]
    cuts: NDArray[np.int64]
    ends: NDArray[np.int64]
    history: int

    def __post_init__(self) -> None:
        self.lengths = np.minimum(self.cuts, self.history).astype(np.int64)
        self.blocks = np.zeros(len(self.cuts), np.int64)

    def __len__(self) -> int:
        return len(self.cuts)

    def __getitem__(self, index: int) -> Series:
        series = self.data[int(self.which[index])]
        cut, end = int(self.cuts[index]), int(self.ends[index])
        seen, wanted = slice(max(0, cut - self.history), cut), slice(cut, end)
        return replace(
            series,
            times=series.times[seen],
            values=series.values[seen],
            label=None,
            target_times=series.times[wanted],
            target_values=series.values[wanted],
            id=f"{series.id}@{cut}",
        )
