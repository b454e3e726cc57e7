"""Convert user input (frames, arrays, lists) to a SeriesSet, and predictions back to the same form.

Functions on DataFrames are in :mod:`contiformer.estimators.frames`, imported with the first one: polars loads slowly.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from contiformer.data.conversion import as_times, plain
from contiformer.data.errors import DataError
from contiformer.data.readers.arrays import from_arrays, from_list
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
        values: the channels; None: all columns without another role.
        static: features that do not change in time.
        targets: channels of the series to predict, where there is one.
    """

    values: tuple[str, ...] | None = None
    label: str | None = None
    static: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def present_in(self, names: Sequence[str], *, answers: bool = True) -> Columns:
        """With the channels filled in; without ``answers``, label and targets only where the table has them."""
        values = self.values
        if values is None:
            taken = {self.id, self.time, self.label, *self.static, *self.targets}
            values = tuple(name for name in names if name not in taken)
        label = self.label if answers or self.label in names else None
        targets = tuple(name for name in self.targets if answers or name in names)
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
    data: SeriesSet
    if form == "set":
        data = X
    elif form in TABLES:
        data = frame_functions().series_from(X, columns, channels, by_id=by_id)
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
            problem = f"X has the channels {', '.join(data.channels)}; the model was trained on {', '.join(channels)}"
            raise DataError(problem, remedy="give the same channels in the same order")
    return data, form


def with_labels(data: SeriesSet, y: Any, *, classes: bool) -> SeriesSet:
    """The series with the labels ``y``, one for each in their order, or with their own where y is None.

    Raises:
        DataError: a label is missing, or not a class or number.
    """
    labels: list[Any] = [one.label for one in data] if y is None else _listed(y)
    if len(labels) != len(data):
        raise DataError(f"{len(labels)} labels for {len(data)} series", remedy="give one label for each series")
    for n, label in enumerate(labels):
        if label is None or (isinstance(label, float) and not np.isfinite(label)):
            name = n if data[n].id is None else repr(data[n].id)
            remedy = "pass y, or name the column in label=; leave out series without one"
            raise DataError(f"series {name} has no label", remedy=remedy)
        if not isinstance(label, str | int | float):
            problem = f"the label {label!r} is a {type(label).__name__}"
            raise DataError(problem, remedy="use words or numbers, and no gaps")
    known = None
    if classes:
        if len({isinstance(label, str) for label in labels}) > 1:
            raise DataError("some labels are words and some numbers", remedy="use one kind")
        broken = next((label for label in labels if isinstance(label, float) and not label.is_integer()), None)
        if broken is not None:
            raise DataError(f"Unknown label type: {broken!r} is no class", remedy="use Regressor for numbers")
        known = tuple(sorted(set(labels)))
    else:
        try:
            labels = [float(label) for label in labels]
        except (TypeError, ValueError, OverflowError):
            raise DataError("labels are words, not numbers", remedy="use Classifier for classes") from None
    series = [replace(one, label=label) for one, label in zip(data, labels, strict=True)]
    return SeriesSet(series, schema=replace(data.schema, classes=known), notes=data.notes)


def _listed(y: Any) -> list[Any]:
    # a list is not made an array: words beside NaN would become words
    given = y if isinstance(y, list | tuple) else np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    shape = np.shape(given)
    if not shape:
        raise DataError(f"y is {y!r}", remedy="pass one label for each series; name a column of a table in label=")
    if len(shape) == 2 and shape[1] == 1:
        given = np.asarray(given)[:, 0]
    elif len(shape) != 1:
        raise DataError(f"y has shape {shape}", remedy="pass one label for each series")
    return [plain(label) for label in given]


def in_order_of(data: SeriesSet, y: Any) -> Any:
    """Labels in the order of the series, where they have an index of ids, as those of pandas may."""
    index = getattr(y, "index", None)
    if index is None or callable(index):
        return y
    ids = [one.id for one in data]
    known = set(index)
    if not known & set(ids) or known == set(range(len(ids))):
        return y
    missing = next((name for name in ids if name not in known), None)
    if missing is not None or len(known) < len(index):
        problem = "y has two labels for one id" if missing is None else f"y has no label for {missing!r}"
        raise DataError(problem, remedy="give one for each id, or a list in the order of the series")
    return y.loc[ids]


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


def query_times(at: Any, data: SeriesSet) -> list[NDArray[np.float64]]:
    """Query times of each series.

    Args:
        at: None: the times of the series; a flat list of times for all of them; a list of such lists, one for each
            series; or a dictionary from ids to lists.
        data: the series.
    """
    if at is None:
        return [one.times for one in data]
    if isinstance(at, Mapping):
        for one in data:
            if one.id not in at:
                raise DataError(f"at has no times for the series {one.id!r}", remedy="give a list for every id")
        return [_parsed(at[one.id], f"at[{one.id!r}]", data) for one in data]
    if hasattr(at, "to_numpy"):
        at = at.to_numpy()
    listed = isinstance(at, Sequence) and not isinstance(at, str)
    nested = (listed and len(at) > 0 and all(_is_list(item) for item in at)) or (
        isinstance(at, np.ndarray) and at.ndim == 2
    )
    if not nested:
        return [_parsed(at if listed else np.atleast_1d(at), "at", data)] * len(data)
    if len(at) != len(data):
        raise DataError(f"at has {len(at)} lists of times for {len(data)} series", remedy="give one for each")
    return [_parsed(item, f"at[{n}]", data) for n, item in enumerate(at)]


def _parsed(at: Any, name: str, data: SeriesSet) -> NDArray[np.float64]:
    """Numbers, dates or words that are one of them; dates only where the times of the data are dates."""
    listed = list(at)
    times: NDArray[np.float64]
    if listed and all(isinstance(time, str) for time in listed):
        times, dates = frame_functions().times_from_words(listed, name)
    else:
        times = as_times(at.to_numpy() if hasattr(at, "to_numpy") else at, name)
        dates = bool(listed) and isinstance(listed[0], dt.date | np.datetime64)
    if dates and not data.schema.dates:
        remedy = "give numbers (a SeriesSet made from dates needs schema=Schema(dates=True) to know)"
        raise DataError(f"{name} has dates, and the times of X are numbers", remedy=remedy)
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


def names_of(data: Iterable[Any]) -> list[Any]:
    """The id of each series or sequence, or else its number; as words where some are: a column holds one type."""
    names = [n if one.id is None else one.id for n, one in enumerate(data)]
    return names if len({type(name) for name in names}) < 2 else [str(name) for name in names]
