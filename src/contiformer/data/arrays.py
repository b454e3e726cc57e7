"""Checks and comparisons of arrays that every container needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contiformer.data.errors import DataError


def sort_order(times: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """What sorts the times, points at one time in the order given; None when nothing is to do."""
    return None if bool(np.all(times[1:] >= times[:-1])) else np.argsort(times, kind="stable")


def taken(array: NDArray[Any], order: NDArray[np.int64] | None) -> NDArray[Any]:
    """The array in that order."""
    return array if order is None else array[order]


def same(a: object, b: object) -> bool:
    """Equal, with NaN equal to NaN."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


def as_matrix(values: ArrayLike, name: str) -> NDArray[np.floating[Any]]:
    """[L, C] in float32 or float64, NaN where not observed."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cmM":
            raise TypeError(f"of type {array.dtype}")
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{name} are not numbers in equal rows ({error})", remedy="pass an array [L, C] with NaN where missing"
        ) from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise DataError(f"{name} have shape {array.shape}", remedy="pass [L, C], one row per time")
    if np.isinf(array).any():
        row, column = np.argwhere(np.isinf(array))[0]
        raise DataError(
            f"{name} are infinite in row {row} (from 0), channel {column}", remedy="use NaN for what was not observed"
        )
    return array


def plain(value: Any) -> Any:
    """A number or word of numpy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
