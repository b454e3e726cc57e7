"""What users hand in, as a set of series; and answers in the same form."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.readers.columns import times as times_of_column
from contiformer.data.readers.frames import Order, from_frame
from contiformer.data.readers.place import Place
from contiformer.data.readers.wide import from_arrays, from_list
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.data.times import as_datetimes, as_times

Form = Literal["set", "polars", "pandas", "array", "list"]
TABLES = ("polars", "pandas")


@dataclass(frozen=True)
class Columns:
    """The columns of a long table, as named in ``fit``.

    Attributes:
        id, time, label: names; without an id the table is one series.
        values: the channels; None: all columns without another role.
        static: features that do not change in time.
        targets: channels of the series to predict, where there is one.
    """

    id: str | None = None
    time: str | None = None
    values: tuple[str, ...] | None = None
    label: str | None = None
    static: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Columns:
        """Back from JSON."""
        roles: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in data.items()}
        return cls(**roles)


def form_of(X: Any) -> Form:
    """Which kind of input this is."""
    if isinstance(X, SeriesSet):
        return "set"
    if isinstance(X, pl.DataFrame | pl.LazyFrame):
        return "polars"
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        return "pandas"
    if isinstance(X, np.ndarray) and X.dtype != object:
        return "array"
    if isinstance(X, Sequence) or (isinstance(X, np.ndarray) and X.dtype == object):
        return "list"
    if hasattr(X, "toarray"):
        raise DataError("X is a sparse matrix", remedy="pass X.toarray()")
    if hasattr(X, "__array__"):
        return "array"
    raise DataError(
        f"X is a {type(X).__name__}",
        remedy="pass a SeriesSet, a DataFrame, an array [n, L, C] or a list of (times, values)",
    )


def read(
    X: Any, columns: Columns, channels: tuple[str, ...] | None = None, *, by_id: bool = False
) -> tuple[SeriesSet, Form]:
    """The input as a set, labels and targets where the table has them.

    Args:
        X: any of the forms.
        columns: roles of the columns, for tables.
        channels: names of the channels at training, which are all that is read of a table then; None at training
            itself, when a table has to have every column that was named.
        by_id: series of a table in the order of their ids, so that the order of its rows decides nothing; otherwise in
            the order in which they appear, which is the order of labels beside it.
    """
    form = form_of(X)
    if form == "set":
        data = X
    elif form in ("polars", "pandas"):
        data = _from_table(X, columns, channels, by_id)
    elif form == "array":
        data = from_arrays(X)
    else:
        data = from_list(list(X))
    if not len(data):
        raise DataError("X has no series", remedy="give at least one")
    if channels is not None and data.channels != channels:
        if form in ("array", "list") and len(data.channels) == len(channels):
            data = data.described(replace(data.schema, channels=channels))
        else:
            raise DataError(
                f"X has the channels {', '.join(data.channels)}; the model was trained on {', '.join(channels)}",
                remedy="give the same channels in the same order",
            )
    return data, form


def _from_table(X: Any, columns: Columns, channels: tuple[str, ...] | None, by_id: bool) -> SeriesSet:
    if columns.time is None:
        raise DataError("which column is the time?", remedy="name it: fit(df, id=..., time=..., values=[...])")
    names = [str(name) for name in (X.collect_schema().names() if isinstance(X, pl.LazyFrame) else X.columns)]
    training = channels is None
    label = columns.label if training or columns.label in names else None
    values = columns.values if channels is None else channels
    targets = tuple(name for name in columns.targets if training or name in names)
    if values is None:
        taken = {columns.id, columns.time, columns.label, *columns.static, *columns.targets}
        values = tuple(name for name in names if name not in taken)
    read_values = (*values, *targets)
    order: Order = "id" if by_id else "appearance"
    try:
        data = from_frame(
            X, time=columns.time, id=columns.id, values=read_values, label=label, static=columns.static, order=order
        )
    except DataError as error:
        if "duplicates=" not in (error.remedy or ""):
            raise
        # that is an argument of the reader, not of fit
        remedy = "remove or average such rows, or name the column that tells the series apart in id="
        raise DataError(error.problem, row=error.row, column=error.column, remedy=remedy) from None
    return with_targets(data, len(targets))


def with_targets(data: SeriesSet, count: int) -> SeriesSet:
    """The last ``count`` channels as the target, at the times at which one of them is known."""
    if not count:
        return data
    width = len(data.channels) - count

    def divided(series: Series) -> Series:
        wanted = series.values[:, width:]
        known = ~np.isnan(wanted).all(1)
        return replace(
            series,
            values=series.values[:, :width],
            target_times=series.times[known],
            target_values=wanted[known],
        )

    schema = replace(data.schema, channels=data.channels[:width], targets=data.channels[width:], units=())
    return SeriesSet([divided(one) for one in data], schema=schema, notes=data.notes)


def without_answers(data: SeriesSet) -> SeriesSet:
    """The series without labels and targets: a model must not be able to look."""
    schema = replace(data.schema, classes=None, targets=())
    series = [replace(one, label=None, target_times=None, target_values=None) for one in data]
    return SeriesSet(series, schema=schema, notes=data.notes)


def query_times(at: Any, data: SeriesSet) -> list[NDArray[np.float64]]:
    """Times to answer for, for each series.

    Args:
        at: None: the times of the series; a flat list of times for all of them; a list of such lists, one for each
            series; or a dictionary from ids to lists.
        data: the series.
    """
    if at is None:
        return [one.times for one in data]
    if isinstance(at, Mapping):
        lists = []
        for one in data:
            if one.id not in at:
                raise DataError(f"at has no times for the series {one.id!r}", remedy="give a list for every id")
            lists.append(_asked(at[one.id], f"at[{one.id!r}]", data))
        return lists
    if hasattr(at, "to_numpy"):
        at = at.to_numpy()
    nested = (
        isinstance(at, Sequence) and len(at) > 0 and not isinstance(at, str) and all(_is_list(item) for item in at)
    ) or (isinstance(at, np.ndarray) and at.ndim == 2)
    if not nested:
        times = _asked(at if isinstance(at, Sequence) and not isinstance(at, str) else np.atleast_1d(at), "at", data)
        return [times] * len(data)
    if len(at) != len(data):
        raise DataError(f"at has {len(at)} lists of times for {len(data)} series", remedy="give one for each")
    return [_asked(item, f"at[{n}]", data) for n, item in enumerate(at)]


def _asked(at: Any, name: str, data: SeriesSet) -> NDArray[np.float64]:
    """Numbers, dates or words that are one of them; dates only where the times of the data are dates."""
    listed = list(at)
    if listed and all(isinstance(time, str) for time in listed):
        times, dates = times_of_column(pl.Series(name, [str(time) for time in listed]), Place())
    else:
        given = at.to_numpy() if hasattr(at, "to_numpy") else at
        times = as_times(given, name)
        dates = bool(listed) and isinstance(listed[0], dt.date | np.datetime64)
    if dates and not data.schema.dates:
        raise DataError(
            f"{name} has dates, and the times of X are numbers",
            remedy="give numbers (a SeriesSet made from dates needs schema=Schema(dates=True) to know)",
        )
    return times


def _is_list(item: Any) -> bool:
    listed = isinstance(item, Sequence | np.ndarray) or hasattr(item, "to_numpy")
    return listed and not isinstance(item, str) and np.ndim(item) == 1


def answer(
    form: Form,
    data: SeriesSet,
    times: list[NDArray[np.float64]],
    values: list[NDArray[Any]],
    names: Sequence[str],
    columns: Columns,
    like: Any = None,
) -> Any:
    """Values [Q, K] of each series in the form of the input.

    Tables get the columns id, time and one for each name; arrays [n, Q, K] with NaN where a series has fewer times;
    lists arrays; sets a set. Ids and dates of a table are of the types that they have in the table ``like``.
    """
    if form == "list":
        return values
    if form == "array":
        longest = max((len(t) for t in times), default=0)
        out = np.full((len(values), longest, len(names)), np.nan)
        for n, one in enumerate(values):
            out[n, : len(one)] = one
        return out
    if form == "set":
        series = [Series.of(t, v, id=one.id) for one, t, v in zip(data, times, values, strict=True)]
        schema = Schema(tuple(names), dates=data.schema.dates, time_unit=data.schema.time_unit)
        return SeriesSet(series, schema=schema)
    lengths = [len(t) for t in times]
    stamps = np.concatenate(times) if times else np.zeros(0)
    table: dict[str, Any] = {}
    if columns.id is not None:
        ids = pl.Series([one.id for one in data])
        table[columns.id] = ids.gather(np.repeat(np.arange(len(data)), lengths))
    table[columns.time or "time"] = as_datetimes(stamps) if data.schema.dates else stamps
    stacked = np.concatenate(values) if values else np.zeros((0, len(names)))
    table |= {name: stacked[:, n] for n, name in enumerate(names)}
    frame = pl.DataFrame(table)
    return _typed(frame, columns, like) if form == "polars" else _as_pandas(frame, columns, like)


def _typed(frame: pl.DataFrame, columns: Columns, like: Any) -> pl.DataFrame:
    """Ids in their own type, and dates in their own zone."""
    kinds = {} if like is None else dict(like.collect_schema())
    zone = getattr(kinds.get(columns.time), "time_zone", None)
    if zone is not None:
        time = pl.col(columns.time or "time").dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
        frame = frame.with_columns(time)
    if columns.id is None or like is None:
        return frame
    return frame.with_columns(pl.col(columns.id).cast(kinds[columns.id]))


def _as_pandas(frame: pl.DataFrame, columns: Columns, like: Any) -> Any:
    import pandas as pd  # noqa: PLC0415

    table = pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
    if like is not None:
        zone = getattr(like[columns.time].dtype, "tz", None)
        if zone is not None:
            table[columns.time] = table[columns.time].dt.tz_localize("UTC").dt.tz_convert(zone)
        if columns.id is not None:
            table[columns.id] = table[columns.id].astype(like[columns.id].dtype)
    return table
