"""What users hand in, as a set of series; and answers in the same form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.readers.frames import from_frame
from contiformer.data.readers.wide import from_arrays, from_list
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet
from contiformer.data.times import as_datetimes, as_times

Form = Literal["set", "polars", "pandas", "array", "list"]


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
    raise DataError(
        f"X is a {type(X).__name__}",
        remedy="pass a SeriesSet, a DataFrame, an array [n, L, C] or a list of (times, values)",
    )


def read(X: Any, columns: Columns, channels: tuple[str, ...] | None = None) -> tuple[SeriesSet, Form]:
    """The input as a set, labels and targets where the table has them.

    Args:
        X: any of the forms.
        columns: roles of the columns, for tables.
        channels: names of the channels at training; None at training itself.
    """
    form = form_of(X)
    if form == "set":
        data = X
    elif form in ("polars", "pandas"):
        data = _from_table(X, columns)
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


def _from_table(X: Any, columns: Columns) -> SeriesSet:
    if columns.time is None:
        raise DataError("which column is the time?", remedy="name it: fit(df, id=..., time=..., values=[...])")
    names = set(X.collect_schema().names() if isinstance(X, pl.LazyFrame) else X.columns)
    label = columns.label if columns.label in names else None
    values = columns.values
    targets = tuple(name for name in columns.targets if name in names)
    if values is None:
        taken = {columns.id, columns.time, columns.label, *columns.static, *columns.targets}
        values = tuple(name for name in X.columns if name not in taken)
    read_values = (*values, *targets)
    data = from_frame(
        X, time=columns.time, id=columns.id, values=read_values, label=label, static=columns.static, order="appearance"
    )
    if not targets:
        return data
    width = len(values)

    def divided(series: Series) -> Series:
        wanted = series.values[:, width:]
        known = ~np.isnan(wanted).all(1)
        return replace(
            series,
            values=series.values[:, :width],
            target_times=series.times[known],
            target_values=wanted[known],
        )

    schema = replace(data.schema, channels=values, targets=targets, units=())
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
            lists.append(as_times(at[one.id], f"at[{one.id!r}]"))
        return lists
    if hasattr(at, "to_numpy"):
        at = at.to_numpy()
    nested = (
        isinstance(at, Sequence) and len(at) > 0 and not isinstance(at, str) and all(_is_list(item) for item in at)
    ) or (isinstance(at, np.ndarray) and at.ndim == 2)
    if not nested:
        times = as_times(np.atleast_1d(np.asarray(at)) if not isinstance(at, Sequence) else at, "at")
        return [times] * len(data)
    if len(at) != len(data):
        raise DataError(f"at has {len(at)} lists of times for {len(data)} series", remedy="give one for each")
    return [as_times(item, f"at[{n}]") for n, item in enumerate(at)]


def _is_list(item: Any) -> bool:
    return isinstance(item, Sequence | np.ndarray) and not isinstance(item, str) and np.ndim(item) == 1


def answer(
    form: Form,
    data: SeriesSet,
    times: list[NDArray[np.float64]],
    values: list[NDArray[Any]],
    names: Sequence[str],
    columns: Columns,
) -> Any:
    """Values [Q, K] of each series in the form of the input.

    Tables get the columns id, time and one for each name; arrays [n, Q, K] with NaN where a series has fewer times;
    lists arrays; sets a set.
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
        return SeriesSet(series, channels=list(names))
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
    if form == "polars":
        return frame
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
