"""Rows of a table at one time of one series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contiformer.data.readers.archive import CELLS_ALLOWED_ANYWAY, MOST_CELLS_PER_VALUE
from contiformer.data.readers.place import Place, first

Policy = Literal["error", "mean", "first", "last", "keep"]
_Keys = tuple[NDArray[np.int64], NDArray[np.float64]]
_REMEDY = 'pass duplicates="mean", "first" or "last"'


@dataclass(frozen=True)
class Rows:
    """Points in the order of (series, time), and how many rows of the table went into others."""

    runs: NDArray[np.int64]
    times: NDArray[np.float64]
    values: NDArray[Any]
    merged: int


def merge_rows(keys: _Keys, values: NDArray[Any], policy: Policy, place: Place, original: Callable[[int], int]) -> Rows:
    """Rows [n, C] sorted by series and time: those at one time become one, as the policy says."""
    runs, times = keys
    again = _same_as_before(runs, times)
    if not again.any() or policy == "keep":
        return Rows(runs, times, values, 0)
    if policy == "error":
        at = first(again)
        raise place.error(
            f"repeats series and time of row {place.row(original(at - 1))}", at=original(at), remedy=_REMEDY
        )
    starts = np.flatnonzero(~again)
    ends = np.append(starts[1:], len(runs)) - 1
    if policy == "mean":
        seen = ~np.isnan(values)
        totals = np.add.reduceat(np.where(seen, values, 0.0), starts, axis=0, dtype=np.float64)
        counts = np.add.reduceat(seen, starts, axis=0, dtype=np.int64)
        merged = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan).astype(values.dtype)
        # one row alone stays exactly what it was
        merged[starts == ends] = values[starts[starts == ends]]
        if np.isinf(merged).any():
            raise place.error("the mean of repeated values is infinite", remedy='pass duplicates="first" or "last"')
    else:
        merged = values[starts if policy == "first" else ends]
    return Rows(runs[starts], times[starts], merged, int(again.sum()))


def scatter(
    keys: _Keys,
    codes: NDArray[np.int64],
    measured: NDArray[Any],
    channels: list[str],
    policy: Policy,
    place: Place,
    original: Callable[[int], int],
) -> Rows:
    """One value per row of the table, sorted by series and time, into points [m, C]."""
    runs, times = keys
    again = _same_as_before(runs, times)
    starts = np.flatnonzero(~again)
    point = np.cumsum(~again) - 1
    if len(starts) * len(channels) > MOST_CELLS_PER_VALUE * len(measured) + CELLS_ALLOWED_ANYWAY:
        raise place.error(
            f"{len(measured):,} values of {len(channels):,} variables at {len(starts):,} times make too large a table",
            remedy="check the column of variables, or choose some of them",
        )
    values = np.full((len(starts), len(channels)), np.nan, measured.dtype)
    cell = point * len(channels) + codes
    count = np.bincount(cell, minlength=values.size)
    repeated = len(cell) - int(np.count_nonzero(count))
    flat = values.reshape(-1)
    if repeated == 0:
        flat[cell] = measured
    elif policy in ("error", "keep"):
        order = np.argsort(cell, kind="stable")
        at = first(np.diff(cell[order]) == 0)
        raise place.error(
            f"repeats series, time and variable {channels[codes[order[at]]]!r} of row "
            f"{place.row(original(int(order[at])))}",
            at=original(int(order[at + 1])),
            remedy=_REMEDY,
        )
    elif policy == "mean":
        seen = ~np.isnan(measured)
        flat[cell] = measured
        several = count > 1
        total = np.bincount(cell[seen], measured[seen], minlength=values.size)
        known = np.bincount(cell[seen], minlength=values.size)
        flat[several] = np.where(known > 0, total / np.maximum(known, 1), np.nan)[several]
    else:
        # of several assignments to one place the last one stays
        forward = slice(None) if policy == "last" else slice(None, None, -1)
        flat[cell[forward]] = measured[forward]
    return Rows(runs[starts], times[starts], values, repeated)


def _same_as_before(runs: NDArray[np.int64], times: NDArray[np.float64]) -> NDArray[np.bool_]:
    again = np.zeros(len(runs), bool)
    again[1:] = (runs[1:] == runs[:-1]) & (times[1:] == times[:-1])
    return again
