"""Duplicate observations: the one rule for values of a series at equal times, used by every reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contiformer.data.errors import DataError

#: What to do with duplicates: refuse them, or take their mean, the first, the last, or all of them.
Policy = Literal["error", "mean", "first", "last", "keep"]
#: The error for duplicates at two positions.
Complaint = Callable[[int, int], DataError]
#: A table of all channels at all times may be this much larger than the values that fill it, beyond ten million cells.
MOST_CELLS_PER_VALUE = 256
CELLS_ALLOWED_ANYWAY = 10_000_000


@dataclass(frozen=True)
class Points:
    """Distinct points: the position of the first row of each, values [m, C], and how many rows were merged away."""

    first: NDArray[np.int64]
    values: NDArray[Any]
    merged: int


def starts(*keys: NDArray[Any]) -> NDArray[np.bool_]:
    """True at rows that differ in any key from the row before."""
    changed = np.ones(len(keys[0]), np.bool_)
    changed[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return changed


def merge_rows(keys: Sequence[NDArray[Any]], values: NDArray[Any], policy: Policy, complain: Complaint) -> Points:
    """Merge rows [n, C] with equal keys (series and time); rows are sorted by their keys."""
    new = starts(*keys)
    if new.all() or policy == "keep":
        return Points(np.arange(len(new)), values, 0)
    if policy == "error":
        again = int(np.argmin(new))
        raise complain(again - 1, again)
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1
    if policy == "mean":
        seen = ~np.isnan(values)
        totals = np.add.reduceat(np.where(seen, values, 0.0), first, axis=0, dtype=np.float64)
        counts = np.add.reduceat(seen, first, axis=0, dtype=np.int64)
        merged = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan).astype(values.dtype)
        # a single row keeps its exact values
        merged[first == last] = values[first[first == last]]
        if np.isinf(merged).any():
            raise DataError("the mean of repeated values is infinite", remedy='pass duplicates="first" or "last"')
    else:
        merged = values[first if policy == "first" else last]
    return Points(first, merged, len(new) - len(first))


def scatter(
    keys: Sequence[NDArray[Any]],
    channel: NDArray[np.int64],
    values: NDArray[Any],
    channels: int,
    policy: Policy,
    complain: Complaint,
) -> Points:
    """Put single values into points [m, C], NaN where there is none; values are sorted by their keys (series and time).

    Duplicates are an error under the policies "error" and "keep", and so is a table far larger than its values.
    """
    new = starts(*keys)
    first = np.flatnonzero(new)
    if len(first) * channels > CELLS_ALLOWED_ANYWAY + MOST_CELLS_PER_VALUE * len(values):
        problem = f"{len(values)} values would become a table of {len(first)} times and {channels} channels"
        raise DataError(problem, remedy="leave out channels or series, or bring the times of the channels together")
    table = np.full((len(first), channels), np.nan, values.dtype)
    flat = table.reshape(-1)
    cell = (np.cumsum(new) - 1) * channels + channel
    flat[cell] = values
    order = np.arange(len(cell)) if (cell[1:] >= cell[:-1]).all() else np.argsort(cell, kind="stable")
    again = np.flatnonzero(cell[order[1:]] == cell[order[:-1]]) + 1
    if not len(again):
        return Points(first, table, 0)
    if policy in ("error", "keep"):
        raise complain(int(order[again[0] - 1]), int(order[again[0]]))
    involved = order[np.union1d(again, again - 1)]
    cells, begin, which = np.unique(cell[involved], return_index=True, return_inverse=True)
    if policy == "mean":
        seen = ~np.isnan(values[involved])
        total = np.bincount(which[seen], values[involved][seen], minlength=len(cells))
        count = np.bincount(which[seen], minlength=len(cells))
        flat[cells] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    else:
        end = np.append(begin[1:], len(involved)) - 1
        flat[cells] = values[involved[begin if policy == "first" else end]]
    return Points(first, table, len(again))
