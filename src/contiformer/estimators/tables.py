"""Convert user input (frames, arrays, lists) to a SeriesSet, and predictions back to the same form.

Functions on DataFrames are in :mod:`contiformer.estimators.frames`, imported with the first one: polars loads slowly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from contiformer.data.conversion import TimeKind, as_times, plain, refuse_other_kind, time_kind
from contiformer.data.errors import DataError, did_you_mean
from contiformer.data.readers.arrays import from_arrays, from_list
from contiformer.data.readers.duplicates import Policy
from contiformer.data.series import Series
from contiformer.data.series_set import Schema, SeriesSet

Form = Literal["set", "polars", "pandas", "array", "list"]
TABLES = ("polars", "pandas")


@dataclass(frozen=True)
class ColumnRoles:
    """Names of the columns of a table, by what they are for."""

    id: str | None = None
    time: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Back from JSON."""
        roles: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in data.items()}
        return cls(**roles)


@dataclass(frozen=True)
class Columns(ColumnRoles):
    """The columns of a long table of series, as named in ``fit``.

    Attributes:
        id, time, label: names; without an id the table is one series.
        values: the channels; None: all columns without another role, or all variables.
        static: features that do not change in time.
        targets: channels of the series to predict, where there is one.
        variable, value: of a table with one row for each measurement: its name, and the number.
        categorical: columns that hold categories.
        duplicates: policy for two rows of a series at one time.
    """

    values: tuple[str, ...] | None = None
    label: str | None = None
    static: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    variable: str | None = None
    value: str | None = None
    categorical: tuple[str, ...] = ()
    duplicates: Policy = "error"

    def present_in(self, names: Sequence[str], *, answers: bool = True) -> Columns:
        """With the channels filled in; without ``answers``, label and targets only where the table has them."""
        values = self.values
        if values is None and self.variable is None:
            taken = {self.id, self.time, self.label, *self.static, *self.targets}
            values = tuple(name for name in names if name not in taken)
        label = self.label if answers or self.label in names else None
        targets = tuple(name for name in self.targets if answers or name in names or self.variable is not None)
        return replace(self, values=values, label=label, targets=targets)


def frame_functions() -> ModuleType:
    """The functions on DataFrames."""
    from contiformer.estimators import frames  # noqa: PLC0415

    return frames


def frame_library(X: Any) -> Literal["polars", "pandas"] | None:
    """The library of a DataFrame, None for anything else."""
    # without importing polars: a frame of it cannot exist before it is imported
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(X, polars.DataFrame | polars.LazyFrame):
        return "polars"
    return "pandas" if hasattr(X, "columns") and hasattr(X, "iloc") else None


def form_of(X: Any) -> Form:
    """The form of the input."""
    if isinstance(X, SeriesSet):
        return "set"
    library = frame_library(X)
    if library is not None:
        return library
    if isinstance(X, np.ndarray) and X.dtype != object:
        return "array"
    if isinstance(X, Sequence | np.ndarray):
        return "list"
    if hasattr(X, "toarray"):
        raise DataError("X is a sparse matrix", remedy="pass X.toarray()")
    if hasattr(X, "__array__"):
        return "array"
    remedy = "pass a SeriesSet, a DataFrame, an array [n, L, C] or a list of (times, values)"
    raise DataError(f"X is a {type(X).__name__}", remedy=remedy)


def as_id(key: Any) -> Any:
    """An id as the readers of tables have it: 3.0 is 3, and everything but words and whole numbers is a word."""
    key = plain(key)
    if isinstance(key, float) and key.is_integer():
        return int(key)
    return int(key) if isinstance(key, bool) else key if isinstance(key, str | int) else str(key)


def column_of(frame: Any, name: str | None) -> list[Any]:
    """A column of a DataFrame, or a level of the index of one of pandas."""
    frame = frame.collect() if hasattr(frame, "collect") else frame
    column = frame[name] if name in frame.columns else frame.index.get_level_values(name)
    return column.to_list()


def number_of_rows(frame: Any) -> int:
    """The rows of a DataFrame."""
    return len(frame.collect() if hasattr(frame, "collect") else frame)


def read(
    X: Any, columns: Columns, known: Schema | None = None, *, labelled: bool = True, empty: bool = False
) -> tuple[SeriesSet, Form]:
    """The input as a set, series of a table in the order of their ids; labels and targets where the table has them.

    ``known`` is the description of the training data, whose channels are all that is read of a table; None at training
    itself, when a table has to have every column that was named. Unless ``labelled`` the label column is left alone.
    """
    form = form_of(X)
    data: SeriesSet
    if form == "set":
        data = X
    elif form in TABLES:
        data = frame_functions().series_from(X, columns, known, labelled=labelled)
    elif form == "array":
        data = from_arrays(X)
    else:
        data = from_list(list(X))
    if not len(data):
        if empty and known is not None:
            return SeriesSet([], schema=replace(known, classes=None, targets=())), form
        raise DataError("X has no series", remedy="give at least one")
    if known is not None and data.channels != known.channels:
        channels = known.channels
        if form in ("array", "list") and len(data.channels) == len(channels):
            data = data.described(replace(data.schema, channels=channels))
        else:
            problem = f"X has the channels {', '.join(data.channels)}; the model was trained on {', '.join(channels)}"
            raise DataError(problem, remedy="give the same channels in the same order")
    return data, form


def with_targets(data: SeriesSet, count: int) -> SeriesSet:
    """The last ``count`` channels as the target, at the times at which one of them is known."""
    if not count:
        return data
    width = len(data.channels) - count

    def divided(one: Series) -> Series:
        wanted = one.values[:, width:]
        known = ~np.isnan(wanted).all(1)
        targets = {"target_times": one.times[known], "target_values": wanted[known]}
        return replace(one, values=one.values[:, :width], **targets)

    schema = replace(data.schema, channels=data.channels[:width], targets=data.channels[width:], units=())
    return SeriesSet([divided(one) for one in data], schema=schema, notes=data.notes)


def without_labels(data: SeriesSet) -> SeriesSet:
    """The series, targets included, but no labels."""
    schema = replace(data.schema, classes=None)
    return SeriesSet([replace(one, label=None) for one in data], schema=schema, notes=data.notes)


def without_answers(data: SeriesSet) -> SeriesSet:
    """The series without labels and targets: a model must not be able to look."""
    schema = replace(data.schema, classes=None, targets=())
    series = [replace(one, label=None, target_times=None, target_values=None) for one in data]
    return SeriesSet(series, schema=schema, notes=data.notes)


def query_times(
    at: Any, data: SeriesSet, form: Form, columns: ColumnRoles, trained: TimeKind
) -> list[NDArray[np.float64]]:
    """Query times of each series.

    Args:
        at: None: the times of the series; a flat list of times for all of them; a list of such lists, one for each
            series; a dictionary from ids to lists; or a table with the columns of the id and of the time.
        data: the series.
        form: of the input. In a set times are numbers already, of dates the seconds since 1970.
        columns: of a table ``at``.
        trained: the kind of the times of the model.
    """
    if at is None:
        return [one.times for one in data]

    parsed = partial(asked_times, trained=trained, plain=form == "set")
    if frame_library(at) is not None:
        at = _asked_in(at, data, columns)
    if isinstance(at, Mapping):
        for one in data:
            if one.id not in at:
                raise DataError(f"at has no times for the series {one.id!r}", remedy="give a list for every id")
        return [parsed(at[one.id], f"at[{one.id!r}]") for one in data]
    if not (_is_list(at) and len(at) > 0 and all(_is_list(item) for item in at)):
        return [parsed(at, "at")] * len(data)
    if len(at) != len(data):
        raise DataError(f"at has {len(at)} lists of times for {len(data)} series", remedy="give one for each")
    return [parsed(item, f"at[{n}]") for n, item in enumerate(at)]


def _asked_in(at: Any, data: SeriesSet, columns: ColumnRoles) -> Any:
    """The times of each id in a table; those that it does not have are not asked for."""
    at = at.collect() if hasattr(at, "collect") else at
    time = columns.time or "time"
    for name in (time, columns.id):
        if name is not None and name not in at.columns:
            advice = did_you_mean(name, map(str, at.columns))
            raise DataError(f"at has no column {name!r}", remedy=f"give the columns of fit; {advice}")
    times = column_of(at, time)
    if columns.id is None:
        return times
    found: dict[Any, list[Any]] = {name: [] for name in data.ids}
    for row, (name, one) in enumerate(zip(column_of(at, columns.id), times, strict=True), 1):
        if as_id(name) not in found:
            raise DataError(
                f"at asks for {name!r}, which X does not have", row=row, remedy="give its series in X as well"
            )
        found[as_id(name)].append(one)
    return found


def asked_times(at: Any, name: str, trained: TimeKind, *, plain: bool = False) -> NDArray[np.float64]:
    """Numbers, dates, durations, or words that are one of them, of the kind that a model was trained on.

    Where ``plain``, numbers do as well: the times of a set are numbers, of dates the seconds since 1970.
    """
    listed = list(at) if _is_list(at) else [at]
    if not listed:
        return np.zeros(0)
    times: NDArray[np.float64] | None = None
    kind = time_kind(listed)
    if all(isinstance(time, str) for time in listed):
        times, kind = frame_functions().times_from_words(listed, name)
    refuse_other_kind(None if plain and kind == "numbers" else kind, trained, f"{name} has")
    return as_times(at if isinstance(at, np.ndarray) and at.ndim else listed, name) if times is None else times


def _is_list(item: Any) -> bool:
    """Not one time: a date of pandas has no length."""
    return hasattr(item, "__len__") and not isinstance(item, str | Mapping) and getattr(item, "ndim", 1) > 0


def answer(
    form: Form,
    data: SeriesSet,
    times: list[NDArray[np.float64]],
    values: list[NDArray[Any]],
    names: Sequence[str],
    columns: Columns,
    like: Any = None,
) -> Any:
    """Predicted values [Q, K] of each series in the form of the input.

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
    frames = frame_functions()
    frame = frames.frame_of(data, times, values, names, columns)
    return (frames.typed if form == "polars" else frames.as_pandas)(frame, columns, like)


def per_series(
    form: Form, data: Iterable[Any], values: NDArray[Any], names: Any, columns: ColumnRoles, like: Any = None
) -> Any:
    """One answer [n], or several [n, K], for each series: of a table indexed by id, otherwise as they are.

    pandas gets a Series or a DataFrame whose index are the ids, polars a DataFrame with the column of the ids in front;
    ``names`` are of the answer, or of each of several, and ``like`` is the input.
    """
    if form not in TABLES:
        return values
    return frame_functions().indexed(form, data, values, names, columns, None if frame_library(like) is None else like)


def names_of(data: Iterable[Any]) -> list[Any]:
    """The id of each series or sequence, or else its number; as words where some are: a column holds one type."""
    names = [n if one.id is None else one.id for n, one in enumerate(data)]
    return names if len({type(name) for name in names}) < 2 else [str(name) for name in names]
