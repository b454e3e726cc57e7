"""Series from and to tables of pandas or polars, and the description that our own files carry.

Two layouts are read:

- wide, one column for each channel: ``id, time, heart_rate, pH, ...``, empty where not observed;
- long, one row for each value: ``id, time, variable, value``.

Rows may come in any order. Series come out in the order of their ids.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.conversion import DATES, as_datetimes, as_times, taken
from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.categories import categories_in, expanded
from contiformer.data.readers.columns import Place, as_polars, first, numbers, pick, times, words
from contiformer.data.readers.duplicates import Points, Policy, merge_rows, scatter
from contiformer.data.series import Label, Series
from contiformer.data.series_set import Schema, SeriesSet

Order = Literal["id", "appearance"]
#: Key of the description in a Parquet file, and start of the comment line in a CSV file.
KEY = "contiformer"
_FORMAT = 1
_NOT_STATIC = "a static feature is the same in all rows; name it in values= instead"
_NO_NUMBER = (
    "leave it empty if unknown; name columns of numbers in values=, of categories in categorical=, and if each row is "
    "one measurement those of its name and value in variable= and value="
)
_TYPES: dict[str, Any] = {"str": pl.String, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}


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
    categorical: Sequence[str] | Mapping[str, Sequence[str]] = (),
    duplicates: Policy = "error",
    order: Order = "id",
    place: Place | None = None,
) -> SeriesSet:
    """Series from a table; a DataError names row and column of what is wrong.

    Args:
        frame: of polars or pandas, an Arrow table, or a dict of columns.
        time: column of the times: numbers, dates, or text that is one of them.
        id: column that tells which series a row belongs to; None: all rows are one series.
        values: columns of the channels; by default all that have no other role. With ``variable``: the channels to
            read, all others are ignored.
        variable, value: columns with the channel's name and its value.
        channels: with ``variable``, the names that can occur and their order; by default those that do, sorted.
        label: column with the label, the same in all rows of a series. Words, whole numbers, true and false are
            classes. A series whose rows are all empty has none.
        static: columns of features that are the same in all rows of a series, or empty.
        categorical: columns among ``values`` and ``static`` that hold categories, beside those whose type says so: each
            category becomes a channel or feature of 0 and 1, called as in ``ward=ICU``. Or a mapping from columns to
            the categories that count, all others being none of them.
        duplicates: rows of one series at one time (for ``variable``: also of one channel): "error", or take their
            "mean", the "first", the "last", or "keep" them all (not with ``variable``).
        order: of the series: by "id", or of their first "appearance".
        place: file and first row, for errors.

    Example:
        >>> from contiformer.data import from_frame
        >>> from_frame({"who": ["b", "a", "a"], "t": [0, 2, 1], "x": [1.0, 3.0, 2.0]}, id="who", time="t")[0].times
        array([1., 2.])
    """
    place = place or Place()
    table = as_polars(frame)
    if duplicates not in get_args(Policy):
        raise DataError(f"duplicates={duplicates!r} is unknown", remedy=f"use one of {', '.join(get_args(Policy))}")
    if order not in get_args(Order):
        raise DataError(f"order={order!r} is unknown", remedy=f"use one of {', '.join(get_args(Order))}")
    if (variable is None) != (value is None):
        raise DataError("variable and value belong together", remedy="pass both variable= and value=, or none of them")
    if table.height == 0:
        raise place.error("the table has no rows")
    stamps, kind = times(pick(table, time, place), place)
    names, runs = _series_of(table, id, place)
    rows = _Rows(names, runs, stamps, _sorting(runs, stamps), place)
    several = "" if id is not None else "; name the column that tells series apart in id= if there are several"
    labels, classes = _labels(table, label, rows)
    known = categories_in(frame, categorical)
    unchanging, found = expanded(table, static, known, place)
    features = [rows.constant(numbers(column, place, _NO_NUMBER), column.name) for column in unchanging]
    together = np.stack(features, axis=1) if features else None
    if variable is not None and value is not None:
        wanted = channels if values is None else values
        what = _numbered(words(pick(table, variable, place), place), wanted, place, others=values is not None)
        rows, names_here, points = _from_long(pick(table, value, place), *what, rows, duplicates, several)
    else:
        roles = {time, id, label, *static}
        asked = list(values) if values is not None else [name for name in table.columns if name not in roles]
        if not asked:
            raise place.error("there is no column with values", remedy="name them in values=")
        shown, more = expanded(table, asked, known, place)
        found |= more
        names_here = [column.name for column in shown]
        columns = [numbers(column, place, _NO_NUMBER + several) for column in shown]
        points = _from_wide(columns, rows, duplicates, several)
    unused = next((name for name in categorical if name not in found), None)
    if unused is not None:
        raise DataError(f"categorical= names {unused!r}", remedy="name it in values= or static= as well")
    edges = np.searchsorted(rows.runs[points.first], np.arange(len(names) + 1))
    at, fixed = rows.stamps[points.first], [None] * len(names) if together is None else together
    series = [
        Series(at[a:b], points.values[a:b], static=fixed[n], label=labels[n], id=names[n])
        for n, (a, b) in enumerate(itertools.pairwise(edges))
    ]
    if order == "id" and id is not None:
        series = [series[n] for n in sorted(range(len(names)), key=names.__getitem__)]
    schema = Schema(
        tuple(names_here),
        static=tuple(column.name for column in unchanging),
        classes=classes,
        dates=kind in DATES,
        time_kind=kind,
        categories=tuple(found.items()),
    )
    return SeriesSet(series, schema=schema, notes={f"rows merged at equal times, by {duplicates}": points.merged})


def _from_wide(columns: list[NDArray[Any]], rows: _Rows, duplicates: Policy, several: str) -> Points:
    """Points from one column for each channel."""
    narrow = all(column.dtype == np.float32 for column in columns)
    matrix = np.empty((len(rows.runs), len(columns)), np.float32 if narrow else np.float64)
    for n, column in enumerate(columns):
        matrix[:, n] = rows.sorted(column)
    complain = partial(rows.repeated, lambda _: "series and time", several)
    return merge_rows((rows.runs, rows.stamps), matrix, duplicates, complain)


def _from_long(
    column: pl.Series, names: list[str], codes: NDArray[np.int64], rows: _Rows, duplicates: Policy, several: str
) -> tuple[_Rows, list[str], Points]:
    """The rows that are read, the channels, and points from one row for each value."""
    read = codes >= 0
    cells = column.to_frame().select(pl.when(pl.Series(read)).then(pl.col(column.name)))
    remedy = "leave it empty if unknown, or name the variables to read in values="
    measured = numbers(cells.to_series(), rows.place, remedy)
    # a series without any of the channels stays a series, of one empty point
    lacking = np.setdiff1d(rows.runs, rows.runs[rows.sorted(read)])
    heads = np.searchsorted(rows.runs, lacking)
    read[heads if rows.order is None else rows.order[heads]] = True
    rows = rows if read.all() else rows.only(read)
    which = np.maximum(rows.sorted(codes), 0)
    complain = partial(rows.repeated, lambda at: f"series, time and variable {names[which[at]]!r}", several)
    keys = (rows.runs, rows.stamps)
    return rows, names, scatter(keys, which, rows.sorted(measured), len(names), duplicates, complain)


class _Rows:
    """Rows of a table sorted by series and time: ``runs`` has the number of the series of each, ``stamps`` its time."""

    def __init__(
        self,
        names: list[Any],
        runs: NDArray[np.int64],
        stamps: NDArray[np.float64],
        order: NDArray[np.int64] | None,
        place: Place,
    ) -> None:
        self.names, self.order, self.place = names, order, place
        self.runs, self.stamps = taken(runs, order), taken(stamps, order)

    def only(self, used: NDArray[np.bool_]) -> _Rows:
        """Some of the rows of the table."""
        kept = self.sorted(used)
        fewer = _Rows(self.names, self.runs[kept], self.stamps[kept], None, self.place)
        fewer.order = np.flatnonzero(kept) if self.order is None else self.order[kept]
        return fewer

    def sorted(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column of the table in the order of the rows."""
        return taken(column, self.order)

    def original(self, at: int) -> int:
        """The position in the table."""
        return at if self.order is None else int(self.order[at])

    def repeated(self, what: Callable[[int], str], several: str, a: int, b: int) -> DataError:
        """The error for duplicates at two positions."""
        (file, row), here = self.place.of_row(self.original(a)), self.place.of_row(self.original(b))[0]
        problem = f"repeats {what(a)} of row {row}" + ("" if file == here else f" of {file}")
        remedy = f'pass duplicates="mean", "first" or "last"{several}'
        return self.place.error(problem, at=self.original(b), remedy=remedy)

    def constant(self, column: NDArray[Any], name: str, remedy: str = _NOT_STATIC) -> NDArray[Any]:
        """The one number of each series, NaN where all its rows are empty."""
        values = self.sorted(column)
        known = ~np.isnan(values)
        which, at = np.unique(self.runs[known], return_index=True)
        result = np.full(len(self.names), np.nan, column.dtype)
        result[which] = values[known][at]
        differs = known & (values != result[self.runs])
        if differs.any():
            position = first(differs)
            problem = f"changes within series {self.names[self.runs[position]]!r}"
            raise self.place.error(problem, at=self.original(position), column=name, remedy=remedy)
        return result


def _series_of(table: pl.DataFrame, name: str | None, place: Place) -> tuple[list[Any], NDArray[np.int64]]:
    """Ids in the order of their first appearance, and for each row the number of its own."""
    if name is None:
        return [None], np.zeros(table.height, np.int64)
    column = words(pick(table, name, place), place)
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        column = whole if whole.null_count() == 0 and bool((whole == column).all()) else column.cast(pl.String)
    # operators on whole columns only: the expressions of polars cost more than all else in a request of one series
    changes = np.flatnonzero((column[1:] != column[:-1]).to_numpy()) + 1
    starts = np.append(0, changes)
    number: dict[Any, int] = {}
    owners = [number.setdefault(key, len(number)) for key in column[starts.tolist()].to_list()]
    return list(number), np.repeat(np.array(owners, np.int64), np.diff(starts, append=len(column)))


def _sorting(runs: NDArray[np.int64], stamps: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The stable sorting permutation by series, then time; None where rows are sorted."""
    step = np.diff(runs)
    if np.all((step > 0) | ((step == 0) & (np.diff(stamps) >= 0))):
        return None
    return np.lexsort((stamps, runs))


def _numbered(
    column: pl.Series, channels: Sequence[str] | None, place: Place, others: bool
) -> tuple[list[str], NDArray[np.int64]]:
    """The channels, and the number of each row's, -1 of those that are none of them where ``others`` are allowed."""
    text = column.cast(pl.String)
    known = text.unique().sort() if channels is None else pl.Series(list(channels), dtype=pl.String)
    strange = ~text.is_in(known.to_list()).to_numpy()
    if others:
        if strange.all():
            remedy = did_you_mean(known[0] if len(known) else "", text.unique().sort().to_list())
            raise place.error("holds none of the variables of values=", column=column.name, remedy=remedy)
        numbers = text.replace_strict(known, list(range(len(known))), default=-1, return_dtype=pl.Int64)
        return known.to_list(), numbers.to_numpy()
    if strange.any():
        at = first(strange)
        problem = f"{text[at]!r} is none of the channels"
        raise place.error(problem, at=at, column=column.name, remedy="name it in channels=")
    return known.to_list(), text.cast(pl.Enum(known)).to_physical().to_numpy().astype(np.int64)


def _labels(table: pl.DataFrame, name: str | None, rows: _Rows) -> tuple[list[Label | None], tuple[Label, ...] | None]:
    """One label for each series, and the classes unless the labels are numbers with a fraction."""
    if name is None:
        return [None] * len(rows.names), None
    column = words(pick(table, name, rows.place), rows.place, labels=True)
    known = column.drop_nulls().unique().sort()
    codes = column.replace_strict(known, list(range(len(known))), default=None, return_dtype=pl.Float64)
    own = rows.constant(codes.fill_null(float("nan")).to_numpy(), name, "the label is the same in all rows of a series")
    labels: list[Label | None] = [None if np.isnan(code) else known[int(code)] for code in own]
    return labels, None if column.dtype.is_float() else tuple(known.to_list())


def to_frame(data: SeriesSet) -> pl.DataFrame:
    """One row per point: ``id, time``, the channels, and ``label`` and the static features where there are some.

    Series without an id get their position. What a table cannot hold (series without points, targets) is refused.

    Example:
        >>> from contiformer.data import from_list, to_frame
        >>> to_frame(from_list([([0, 2], [1.0, 2.0]), ([1], [3.0])], channels=["x"])).rows()
        [(0, 0.0, 1.0), (0, 2.0, 2.0), (1, 1.0, 3.0)]
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
    stamps, stacked = (np.concatenate(some) for some in zip(*((one.times, one.values) for one in series), strict=True))
    owner = np.repeat(np.arange(len(ids)), lengths)
    columns: dict[str, Any] = {
        "id": pl.Series(ids).gather(owner),
        "time": _as_dates(stamps) if data.schema.dates else stamps,
    }
    columns |= {name: pl.Series(stacked[:, n], nan_to_null=True) for n, name in enumerate(data.channels)}
    if any(one.label is not None for one in series):
        columns["label"] = pl.Series([one.label for one in series]).gather(owner)
    for n, name in enumerate(data.schema.static):
        fixed = np.array([one.static[n] for one in series if one.static is not None])
        columns[name] = pl.Series(fixed[owner], nan_to_null=True)
    return pl.DataFrame(columns)


def _as_dates(stamps: NDArray[np.float64]) -> NDArray[Any]:
    """Dates where they hold the times exactly, seconds otherwise."""
    dates = as_datetimes(stamps)
    return dates if np.array_equal(as_times(dates), stamps) else stamps


def describe(data: SeriesSet) -> str:
    """Description of a written table as JSON: schema, and the types of ids, labels and values."""
    series = list(data)
    ids = {type(one.id).__name__ for one in series if one.id is not None}
    labels = {type(one.label).__name__ for one in series if one.label is not None}
    some_without = any(one.label is None for one in series)
    if labels and (len(labels) > 1 or some_without or not labels <= set(_TYPES)):
        raise DataError("labels are of different types or missing for some series", remedy="label all or none")
    narrow = all(one.values.dtype == np.float32 for one in series) and bool(series)
    fixed = all(one.static is not None and one.static.dtype == np.float32 for one in series) and bool(series)
    if len(ids) > 1 or not ids <= {"str", "int"} or any(one.id in {"", None} for one in series if ids):
        raise DataError("ids are of different types, empty or missing for some", remedy="name all series or none")
    if any(one.label == "" or one.label != one.label for one in series):
        raise DataError("a label is empty or NaN", remedy="label all series or none")
    types = {"id": next(iter(ids), None), "label": next(iter(labels), None)}
    types |= {"values": "float32" if narrow else None, "static": "float32" if fixed else None}
    return json.dumps({"format": _FORMAT, "schema": data.schema.to_dict(), "types": types})


def column_types(text: str) -> dict[str, Any]:
    """Column types from a description, so that they need not be inferred."""
    description = _parsed(text)
    types = {name: _TYPES[kind] for name, kind in description["types"].items() if kind in _TYPES}
    schema = Schema.from_dict(description["schema"])
    return types | dict.fromkeys((*schema.channels, *schema.static), pl.Float64)


def read_described(table: pl.DataFrame, text: str, place: Place) -> SeriesSet:
    """The set that a table with this description was written from."""
    description = _parsed(text)
    schema, types = Schema.from_dict(description["schema"]), description["types"]
    label = "label" if types.get("label") else None
    roles: dict[str, Any] = {"values": schema.channels, "label": label, "static": schema.static}
    try:
        read = from_frame(table, id="id", time="time", **roles, duplicates="keep", order="appearance", place=place)
    except DataError as error:
        if error.remedy is None:
            error.remedy = "write the file again"
        raise

    def restored(series: Series) -> Series:
        named = series if types.get("id") else replace(series, id=None)
        if types.get("values") == "float32":
            named = replace(named, values=named.values.astype(np.float32))
        if types.get("static") == "float32" and named.static is not None:
            named = replace(named, static=named.static.astype(np.float32))
        return named

    return SeriesSet([restored(series) for series in read], schema=schema)


def _parsed(text: str) -> dict[str, Any]:
    try:
        description = json.loads(text)
        if description["format"] != _FORMAT:
            problem = f"the file has format {description['format']}, this version reads {_FORMAT}"
            raise DataError(problem, remedy="upgrade contiformer")
        Schema.from_dict(description["schema"]).check_types()
        if not all(isinstance(kind, str | None) for kind in description["types"].values()):
            raise TypeError("types")
        return description
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"the description of the file is damaged ({error!r})", remedy="write the file again") from None
