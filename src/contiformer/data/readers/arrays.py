"""Series from and to arrays [n, L, C] and lists of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contiformer.data.conversion import DATES, TimeKind, as_matrix, as_times, only_kind, plain, time_kind
from contiformer.data.errors import DataError
from contiformer.data.series import Label, Series
from contiformer.data.series_set import Schema, SeriesSet


def from_arrays(
    values: ArrayLike,
    times: ArrayLike | None = None,
    *,
    labels: Sequence[Label] | None = None,
    lengths: Sequence[int] | None = None,
    channels: Sequence[str] | None = None,
) -> SeriesSet:
    """Series from an array with NaN where nothing was observed.

    Args:
        values: [n, L, C], or [n, L] for one channel.
        times: [L] for all, or [n, L]; by default 0, 1, 2, ...
        lengths: points of each series, the rest is padding; by default trailing points without a value are padding.

    Example:
        >>> from contiformer.data import from_arrays
        >>> from_arrays([[[1.0], [2.0], [float("nan")]]])[0].times
        array([0., 1.])
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError("values are ragged", remedy="pass [n, L, C] with NaN, or use from_list") from None
    if array.dtype == object or array.dtype.kind in "USc" or array.ndim not in (2, 3):
        raise DataError(f"values have shape {array.shape} and type {array.dtype}", remedy="pass numbers [n, L, C]")
    array = array[..., None] if array.ndim == 2 else array
    count, length = array.shape[:2]
    try:
        given = None if times is None else np.asarray(times)
    except ValueError:
        raise DataError("times are ragged", remedy="pass [L] or [n, L]") from None
    if given is not None and given.shape not in ((length,), (count, length)):
        raise DataError(f"times have shape {given.shape}", remedy=f"pass ({length},) or ({count}, {length})")
    if labels is not None and len(labels) != count:
        raise DataError(f"{len(labels)} labels for {count} series", remedy="give one for each")
    if lengths is not None and (
        len(lengths) != count or not all(isinstance(n, int | np.integer) and 0 <= n <= length for n in lengths)
    ):
        raise DataError("lengths do not fit the array", remedy=f"give {count} numbers from 0 to {length}")
    series, padding = [], 0
    for n in range(count):
        matrix = as_matrix(array[n], f"values of series {n}")
        end = int(lengths[n]) if lengths is not None else _last_seen(matrix)
        padding += 0 if lengths is not None else length - end
        own = np.arange(length, dtype=np.float64) if given is None else given if given.ndim == 1 else given[n]
        series.append(Series.of(own[:end], matrix[:end], label=None if labels is None else plain(labels[n]), id=n))
    notes = {"trailing points without a value, taken as padding": padding}
    schema = _schema(None if given is None else time_kind(given.reshape(-1)))
    return SeriesSet(series, channels=channels, classes=_classes(series), schema=schema, notes=notes)


def from_list(
    items: Sequence[Any], *, labels: Sequence[Label] | None = None, channels: Sequence[str] | None = None
) -> SeriesSet:
    """Series from a list of (times, values), of values alone (times 0, 1, 2, ...), or of Series.

    Example:
        >>> from contiformer.data import from_list
        >>> data = from_list([([0, 0.5, 2], [1.0, 2.0, 3.0]), ([0, 1], [4.0, 5.0])], labels=["a", "b"], channels=["x"])
        >>> len(data), data.lengths.tolist()
        (2, [3, 2])
    """
    if labels is not None and len(labels) != len(items):
        raise DataError(f"{len(labels)} labels for {len(items)} series", remedy="give one for each")
    series = []
    kinds: dict[TimeKind, int] = {}
    for n, item in enumerate(items):
        label = None if labels is None else plain(labels[n])
        if isinstance(item, Series):
            series.append(item if label is None else Series(**{**vars(item), "label": label}))
            continue
        pair = isinstance(item, tuple) and len(item) == 2
        matrix = as_matrix(item[1] if pair else item, f"values of series {n}")
        own = as_times(item[0], f"times of series {n}") if pair else np.arange(len(matrix), dtype=np.float64)
        series.append(Series.of(own, matrix, label=label, id=n))
        if len(own):
            kinds.setdefault(time_kind(item[0]) if pair else "numbers", n)
    schema = _schema(only_kind(kinds))
    return SeriesSet(series, channels=channels, classes=_classes(series), schema=schema)


def to_arrays(data: SeriesSet) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.int64]]:
    """values [n, L, C] and times [n, L], NaN in the padding, and lengths [n].

    Example:
        >>> from contiformer.data import from_list, to_arrays
        >>> values, times, lengths = to_arrays(from_list([([0, 2], [1.0, 2.0]), ([1], [3.0])]))
        >>> times.tolist(), lengths.tolist()
        ([[0.0, 2.0], [1.0, nan]], [2, 1])
    """
    lengths = data.lengths
    shape = (len(data), int(lengths.max(initial=0)))
    wide = np.result_type(np.float32, *(one.values.dtype for one in data))
    values, times = np.full((*shape, len(data.channels)), np.nan, wide), np.full(shape, np.nan)
    for n, one in enumerate(data):
        values[n, : len(one)], times[n, : len(one)] = one.values, one.times
    return values, times, lengths


def _schema(kind: TimeKind | None) -> Schema:
    return Schema(dates=kind in DATES, time_kind=kind)


def _classes(series: Sequence[Series]) -> list[Label] | None:
    """Words and whole numbers are classes, other numbers are values."""
    labels = {one.label for one in series}
    if not labels or None in labels or any(isinstance(label, float) for label in labels):
        return None
    return sorted(labels, key=lambda label: (isinstance(label, str), label))  # type: ignore[arg-type]


def _last_seen(matrix: NDArray[Any]) -> int:
    seen = np.flatnonzero(~np.isnan(matrix).all(axis=1))
    return int(seen[-1]) + 1 if len(seen) else 0
