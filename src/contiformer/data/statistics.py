"""Summary statistics of series: a row of numbers for each, for models that take a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

#: Statistics of each channel, in the order of the columns.
STATISTICS = (
    "count",
    "mean",
    "min",
    "max",
    "first",
    "last",
    "std",
    "slope",
    "time mean",
    "first time",
    "last time",
    "time since last",
)
#: Values of a block of series that are in memory at once.
BLOCK = 4_000_000


def summary_statistics(data: SeriesSet) -> tuple[Float32[np.ndarray, "n features"], list[str]]:
    """Statistics of each channel of each series, and the names of the columns.

    For each channel: count, mean, minimum, maximum, first and last value, standard deviation, slope (least squares over
    time), mean over time (of the straight lines between the observations), times of the first and of the last value,
    and time from the last value to the end of the series. Times count from the first point of the series. Further
    columns: points and span of the series, and its static features. A statistic that does not exist is NaN: all but the
    count of a channel that was never observed, the slope of values at one time.

    Example:
        >>> from contiformer.data import Series, SeriesSet, summary_statistics
        >>> data = SeriesSet([Series.of([1, 2, 5], [[1.0], [3.0], [float("nan")]])], channels=["pH"])
        >>> row, names = summary_statistics(data)
        >>> dict(zip(names, row[0].tolist()))["pH slope"], dict(zip(names, row[0].tolist()))["pH time since last"]
        (2.0, 3.0)
    """
    names = [f"{channel} {name}" for channel in data.channels for name in STATISTICS]
    names += ["points", "span", *data.schema.static]
    rows = [_of_block(block, len(data.channels)) for block in _blocks(data)]
    return np.concatenate(rows) if rows else np.zeros((0, len(names)), np.float32), names


def _blocks(data: SeriesSet) -> Iterator[list[Series]]:
    """Consecutive series that have about ``BLOCK`` values together."""
    block: list[Series] = []
    size = 0
    for one in data:
        block.append(one)
        size += one.values.size
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _of_block(block: list[Series], channels: int) -> NDArray[np.float32]:
    """The rows of some series: observations sorted by series, channel and time, and sums over runs of them."""
    lengths = np.array([len(one) for one in block])
    start = np.array([one.times[0] if len(one) else 0.0 for one in block])
    span = np.array([one.span for one in block])
    owner = np.repeat(np.arange(len(block)), lengths)
    times = np.concatenate([one.times for one in block]) - start[owner]
    values = np.concatenate([one.values for one in block]).astype(np.float64, copy=False)
    row, channel = np.nonzero(~np.isnan(values))
    key = owner[row] * channels + channel
    order = np.argsort(key, kind="stable")
    key, t, x = key[order], times[row[order]], values[row[order], channel[order]]
    found = np.full((len(block) * channels, len(STATISTICS)), np.nan)
    found[:, 0] = 0
    if len(key):
        heads = np.flatnonzero(np.diff(key, prepend=-1))
        found[key[heads]] = _of_runs(t, x, heads, span[key[heads] // channels])
    static = [one.static for one in block if one.static is not None]
    ends: list[NDArray[Any]] = [lengths[:, None], span[:, None], *([np.stack(static)] if static else [])]
    with np.errstate(over="ignore"):
        return np.hstack([found.reshape(len(block), -1), *ends]).astype(np.float32)


def _of_runs(
    t: NDArray[np.float64], x: NDArray[np.float64], heads: NDArray[np.intp], span: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The statistics of each run of observations ``x`` at times ``t`` that starts at one of ``heads``."""
    count = np.diff(heads, append=len(x))
    tails = heads + count - 1
    run = np.repeat(np.arange(len(heads)), count)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(x, heads) / count
        off, late = x - mean[run], t - (np.add.reduceat(t, heads) / count)[run]
        spread = np.sqrt(np.add.reduceat(off**2, heads) / count)
        leverage = np.add.reduceat(late**2, heads)
        first, last = t[heads], t[tails]
        # trapezoids around the mean, so that a large offset costs no digits; none from one run to the next
        areas = np.diff(t, append=0.0) * (off + np.append(off[1:], 0.0)) / 2
        areas[tails] = 0
        extent = last - first
        over_time = mean + np.where(extent > 0, np.add.reduceat(areas, heads) / extent, 0.0)
        slope = np.where(extent > 0, np.add.reduceat(off * late, heads) / leverage, np.nan)
    least, most = np.minimum.reduceat(x, heads), np.maximum.reduceat(x, heads)
    shape = [count, mean, least, most, x[heads], x[tails], spread, slope, over_time, first, last, span - last]
    return np.stack(shape, axis=1)
