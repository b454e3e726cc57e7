"""Tables with one row per measurement, of pandas or polars.

Two forms are read:

- one column for each channel: ``id, time, heart_rate, pH, ...``, empty where not observed;
- one row for each value: ``id, time, variable, value``.

Rows may come in any order. Series come out in the order of their ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.readers.columns import as_polars, numbers, pick, times, words
from contiformer.data.readers.merging import Policy, merge_rows, scatter
from contiformer.data.readers.place import Place, first
from contiformer.data.series import Label, Series
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.data.times import as_datetimes, as_times

Order = Literal["id", "appearance"]


def from_frame(
    frame: Any,
    *,
    time: str,
    id: str | None = None,
    values: Sequence[str] | None = None,
    variable: str | None = None,
    value: str | None = None,
    label: str | None = None,
    static: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    duplicates: Policy = "error",
    order: Order = "id",
    place: Place | None = None,
) -> SeriesSet:
    """Series from a table.

    Args:
        frame: of polars or pandas, an Arrow table, or a dict of columns.
        time: column of the times: numbers, dates, or text that is one of them.
        id: column that tells which series a row belongs to; None: all rows are one series.
        values: columns of the channels; by default all that have no other role.
        variable, value: columns with the channel's name and its value, instead of ``values``.
        channels: with ``variable``, the names that can occur and their order; by default those that do, sorted.
        label: column with the label, the same in all rows of a series. Words and whole numbers are classes.
        static: columns of features that are the same in all rows of a series, or empty.
        duplicates: rows of one series at one time (for ``variable``: also of one channel): "error", or take their
            "mean", the "first", the "last", or "keep" them all (not with ``variable``).
        order: of the series: by "id", or of their first "appearance".
        place: file and first row, for errors.

    Example:
        >>> from_frame({"who": ["b", "a", "a"], "t": [0, 2, 1], "x": [1.0, 3.0, 2.0]}, id="who", time="t")[0].times
        array([1., 2.])

    Raises:
        DataError: with the row and column of what is wrong.
    """
    place = place or Place()
    table = as_polars(frame)
    if duplicates not in get_args(Policy):
        raise DataError(f"duplicates={duplicates!r} is unknown", remedy=f"use one of {', '.join(get_args(Policy))}")
    if order not in get_args(Order):
        raise DataError(f"order={order!r} is unknown", remedy=f"use one of {', '.join(get_args(Order))}")
    if (variable is None) != (value is None) or (variable is not None and values is not None):
        raise DataError("one of variable and value, or values as well", remedy="pass both, or values alone")
    if table.height == 0:
        raise place.error("the table has no rows")
    stamps, dates = times(pick(table, time, place), place)
    names, runs = _series_of(table, id, place)
    sort = _sorting(runs, stamps)
    if sort is not None:
        runs, stamps = runs[sort], stamps[sort]

    def original(at: int) -> int:
        return at if sort is None else int(sort[at])

    notes: dict[str, int] = {}
    if variable is not None and value is not None:
        names_here, codes = _numbered(words(pick(table, variable, place), place), channels, place)
        measured = numbers(pick(table, value, place), place)
        if sort is not None:
            codes, measured = codes[sort], measured[sort]
        rows = scatter((runs, stamps), codes, measured, names_here, duplicates, place, original)
    else:
        taken = {time, id, label, *static}
        names_here = list(values) if values is not None else [name for name in table.columns if name not in taken]
        if not names_here:
            raise place.error("there is no column with values", remedy="name them in values=")
        columns = [numbers(pick(table, name, place), place) for name in names_here]
        narrow = all(column.dtype == np.float32 for column in columns)
        matrix = np.empty((len(stamps), len(columns)), np.float32 if narrow else np.float64)
        for n, column in enumerate(columns):
            matrix[:, n] = column if sort is None else column[sort]
        rows = merge_rows((runs, stamps), matrix, duplicates, place, original)
    if rows.merged:
        notes[f"rows merged at equal times, by {duplicates}"] = rows.merged
    labels, classes = _labels(table, label, runs, sort, len(names), names, place)
    features = [_constant(numbers(pick(table, name, place), place), name, runs, sort, names, place) for name in static]
    together = np.stack(features, axis=1) if features else None
    edges = np.searchsorted(rows.runs, np.arange(len(names) + 1))
    series = [
        Series(
            rows.times[a:b],
            rows.values[a:b],
            static=None if together is None else together[n],
            label=labels[n],
            id=names[n],
        )
        for n, (a, b) in enumerate(itertools.pairwise(edges))
    ]
    if order == "id" and id is not None:
        by_name = pl.Series(names).arg_sort().to_list()
        series = [series[n] for n in by_name]
    schema = Schema(tuple(names_here), static=tuple(static), classes=classes, dates=dates)
    return SeriesSet(series, schema=schema, notes=notes)


def _series_of(table: pl.DataFrame, name: str | None, place: Place) -> tuple[list[Any], NDArray[np.int64]]:
    """Ids in the order of their first appearance, and for each row the number of its own."""
    if name is None:
        return [None], np.zeros(table.height, np.int64)
    column = words(pick(table, name, place), place)
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        column = whole if whole.null_count() == 0 and bool((whole == column).all()) else column.cast(pl.String)
    runs = column.rle_id().to_numpy().astype(np.int64)
    starts = np.flatnonzero(np.diff(runs, prepend=-1))
    heads = column.gather(starts)
    unique = heads.unique(maintain_order=True)
    if len(unique) < len(heads):
        # an id comes back after others: runs of the same id get the same number
        number = {key: n for n, key in enumerate(unique.to_list())}
        runs = np.array([number[key] for key in heads.to_list()], np.int64)[runs]
    return unique.to_list(), runs


def _sorting(runs: NDArray[np.int64], stamps: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """What sorts by series, then time, rows of one time in their order; None when they are sorted."""
    step = np.diff(runs)
    if np.all((step > 0) | ((step == 0) & (np.diff(stamps) >= 0))):
        return None
    return np.lexsort((stamps, runs))


def _numbered(column: pl.Series, channels: Sequence[str] | None, place: Place) -> tuple[list[str], NDArray[np.int64]]:
    """The channels, and the number of each row's."""
    text = column.cast(pl.String)
    known = text.unique().sort() if channels is None else pl.Series(list(channels), dtype=pl.String)
    strange = ~text.is_in(known.to_list()).to_numpy()
    if strange.any():
        at = first(strange)
        raise place.error(
            f"{text[at]!r} is none of the channels", at=at, column=column.name, remedy="name it in channels="
        )
    codes = text.cast(pl.Enum(known)).to_physical().to_numpy().astype(np.int64)
    return known.to_list(), codes


def _constant(
    column: NDArray[Any],
    name: str,
    runs: NDArray[np.int64],
    sort: NDArray[np.int64] | None,
    names: list[Any],
    place: Place,
) -> NDArray[Any]:
    """The one number of each series, NaN where all its rows are empty."""
    sorted_column = column if sort is None else column[sort]
    known = ~np.isnan(sorted_column)
    which, at = np.unique(runs[known], return_index=True)
    result = np.full(len(names), np.nan, column.dtype)
    result[which] = sorted_column[known][at]
    differs = known & (sorted_column != result[runs])
    if differs.any():
        position = first(differs)
        raise place.error(
            f"changes within series {names[runs[position]]!r}",
            at=position if sort is None else int(sort[position]),
            column=name,
            remedy="a static feature is the same in all rows; name it in values= instead",
        )
    return result


def _labels(
    table: pl.DataFrame,
    name: str | None,
    runs: NDArray[np.int64],
    sort: NDArray[np.int64] | None,
    count: int,
    names: list[Any],
    place: Place,
) -> tuple[list[Label | None], tuple[Label, ...] | None]:
    """One label for each series, and the classes unless the labels are numbers with a fraction."""
    if name is None:
        return [None] * count, None
    column = words(pick(table, name, place), place)
    codes = column.rank("dense").to_numpy().astype(np.float64)
    own = _constant(codes, name, runs, sort, names, place)
    known = column.unique().sort().to_list()
    labels: list[Label | None] = [known[int(code) - 1] for code in own]
    return labels, None if column.dtype.is_float() else tuple(known)


def to_frame(data: SeriesSet) -> pl.DataFrame:
    """One row per point: ``id, time``, the channels, and ``label`` and the static features where there are some.

    Series without an id get their position. What a table cannot hold (series without points, targets) is refused.
    """
    series = list(data)
    if not series or not data.channels:
        raise DataError("there is nothing to write", remedy="give series with channels")
    for n, one in enumerate(series):
        if one.target_values is not None or not len(one):
            what = "no points" if not len(one) else "a target series"
            raise DataError(f"series {n} has {what}, which a table has no place for", remedy="leave it out")
    lengths = [len(one) for one in series]
    ids = [n if one.id is None else one.id for n, one in enumerate(series)]
    if len({type(name) for name in ids}) > 1 or len(set(ids)) < len(ids):
        raise DataError("ids are of different types or not unique", remedy="give every series an id of its own")
    named = [*data.channels, *data.schema.static, "id", "time", "label"]
    twice = next((name for n, name in enumerate(named) if name in named[:n]), None)
    if twice is not None:
        raise DataError(f"two columns of the table would be called {twice!r}", remedy="rename a channel or feature")
    stamps = np.concatenate([one.times for one in series]) if series else np.zeros(0)
    columns: dict[str, Any] = {
        "id": pl.Series(ids).gather(np.repeat(np.arange(len(ids)), lengths)),
        "time": _as_dates(stamps) if data.schema.dates else stamps,
    }
    stacked = np.concatenate([one.values for one in series]) if series else np.zeros((0, len(data.channels)))
    columns |= {name: pl.Series(stacked[:, n], nan_to_null=True) for n, name in enumerate(data.channels)}
    if any(one.label is not None for one in series):
        columns["label"] = pl.Series([one.label for one in series]).gather(np.repeat(np.arange(len(ids)), lengths))
    for n, name in enumerate(data.schema.static):
        fixed = np.array([one.static[n] for one in series if one.static is not None])
        columns[name] = pl.Series(np.repeat(fixed, lengths), nan_to_null=True)
    return pl.DataFrame(columns)


def _as_dates(stamps: NDArray[np.float64]) -> NDArray[Any]:
    """Dates where they hold the times exactly, seconds otherwise."""
    dates = as_datetimes(stamps)
    return dates if np.array_equal(as_times(dates), stamps) else stamps
