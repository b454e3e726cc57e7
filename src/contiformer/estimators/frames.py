"""DataFrames of polars and pandas: series and event sequences from them, predictions to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.conversion import ZONED, TimeKind, shown_times
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.readers.categories import columns_behind
from contiformer.data.readers.columns import Place, as_polars, first, numbers, pick, times, words
from contiformer.data.readers.frames import from_frame
from contiformer.data.series_set import Schema, SeriesSet
from contiformer.estimators.event_tables import EventColumns, unknown_type
from contiformer.estimators.tables import ColumnRoles, Columns, Form, names_of, with_targets

Roles = TypeVar("Roles", bound=ColumnRoles)


def series_from(
    frame: Any,
    columns: Columns,
    known: Schema | None,
    *,
    labelled: bool = True,
    place: Place | None = None,
) -> SeriesSet:
    """The series of a table; the arguments are those of :func:`contiformer.estimators.tables.read`."""
    frame, columns = located(frame.collect() if isinstance(frame, pl.LazyFrame) else frame, columns)
    if columns.time is None:
        raise DataError("the time column is not named", remedy="name it: fit(df, id=..., time=..., values=[...])")
    roles = columns.present_in([str(name) for name in frame.columns], answers=known is None)
    values = roles.values
    if known is not None:
        values = tuple(columns_behind(known.channels, known.categories))
    if values is None and roles.targets:
        raise DataError("targets= is given, and values= is not", remedy="name the input channels in values=")
    wanted = None if values is None else [*values, *roles.targets]
    if known is not None and not len(frame):
        of_values = [columns.variable, columns.value] if columns.variable is not None else wanted or []
        _check_columns(as_polars(frame), columns.time, columns.id, *columns.static, *of_values)
        return SeriesSet([])
    data = from_frame(
        frame,
        time=columns.time,
        id=columns.id,
        values=wanted,
        variable=columns.variable,
        value=columns.value,
        label=roles.label if labelled else None,
        static=columns.static,
        categorical=columns.categorical if known is None else dict(known.categories),
        duplicates=columns.duplicates,
        place=place,
    )
    return with_targets(data, len(roles.targets))


def _check_columns(frame: pl.DataFrame, *names: str | None) -> None:
    for name in names:
        if name is not None:
            pick(frame, name, Place())


def located(frame: Any, columns: Roles) -> tuple[Any, Roles]:
    """A frame of pandas with the levels of its index that are asked for as columns; dates in it are the time."""
    if not hasattr(frame, "index"):
        return frame, columns
    levels = [frame.index.get_level_values(n) for n in range(frame.index.nlevels)]
    dated = [str(level.name or "time") for level in levels if level.dtype.kind == "M"]
    if columns.time is None and len(dated) == 1:
        columns = replace(columns, time=dated[0])
    for level in levels:
        name = str(level.name or ("time" if level.dtype.kind == "M" else ""))
        if name in (columns.id, columns.time) and name not in frame.columns:
            frame = frame.assign(**{name: level})
    return frame, columns


def times_from_words(times_as_text: Sequence[str], name: str) -> tuple[NDArray[np.float64], TimeKind]:
    """Times written as text, and their kind."""
    return times(pl.Series(name, list(times_as_text)), Place())


def frame_of(
    data: SeriesSet,
    at: Sequence[NDArray[np.float64]],
    values: Sequence[NDArray[Any]],
    names: Sequence[str],
    columns: Columns,
) -> pl.DataFrame:
    """Values [Q, K] of each series at the times [Q], one under the other, with the id and the time in front."""
    stamps = np.concatenate(at) if len(at) else np.zeros(0)
    table: dict[str, Any] = {}
    if columns.id is not None:
        table[columns.id] = pl.Series(names_of(data)).gather(np.repeat(np.arange(len(data)), [len(t) for t in at]))
    table[columns.time or "time"] = _as_given(stamps, data.schema.kind)
    stacked = np.concatenate(values) if len(values) else np.zeros((0, len(names)))
    return pl.DataFrame(table | {name: stacked[:, n] for n, name in enumerate(names)})


def _as_given(stamps: NDArray[np.float64], kind: TimeKind) -> pl.Series:
    """Times as they came: dates without a zone or in UTC, durations, or numbers."""
    times = pl.Series(shown_times(stamps, "dates" if kind == ZONED else kind))
    return times.dt.replace_time_zone("UTC") if kind == ZONED else times


def zone_of(frame: Any, time: str) -> Any:
    """The time zone of a column, None where it has none."""
    kind = frame.collect_schema().get(time) if isinstance(frame, pl.DataFrame | pl.LazyFrame) else frame[time].dtype
    return getattr(kind, "time_zone", None) or getattr(kind, "tz", None)


def in_zone(frame: Any, times: Sequence[str], zone: Any) -> Any:
    """The frame with these times, which are in UTC, in another time zone."""
    if zone is None:
        return frame
    if isinstance(frame, pl.DataFrame):
        return frame.with_columns(pl.col(times).dt.convert_time_zone(zone))
    return frame.assign(**{name: frame[name].dt.tz_convert(zone) for name in times})


def typed(frame: pl.DataFrame, columns: ColumnRoles, like: Any = None) -> pl.DataFrame:
    """With ids of the type, and dates in the zone, that they have in ``like``."""
    if like is None:
        return frame
    time = columns.time or "time"
    frame = in_zone(frame, [time], zone_of(like, time) if time in frame.columns else None)
    if columns.id is None:
        return frame
    kind, ids = like.collect_schema()[columns.id], pl.col(columns.id)
    if kind.is_temporal():
        # dates as ids were read as words
        known = like.lazy().select(ids.unique()).collect().to_series()
        return frame.with_columns(ids.replace_strict(known.cast(pl.String), known, return_dtype=kind))
    return frame.with_columns(ids.cast(kind))


def as_pandas(frame: pl.DataFrame, columns: ColumnRoles | None = None, like: Any = None) -> Any:
    """Convert to a pandas DataFrame, with the index and the types of ids and dates of ``like``."""
    import pandas as pd  # noqa: PLC0415

    table = pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
    for name, kind in frame.schema.items():
        if getattr(kind, "time_zone", None) is not None:
            table[name] = table[name].dt.tz_localize("UTC")
    if like is None or columns is None:
        return table
    levels = [name for name in (columns.id, columns.time) if name in table.columns and name not in like.columns]
    like = located(like, Columns(columns.id, columns.time))[0]
    if columns.time is not None and columns.time in table.columns:
        table = in_zone(table, [columns.time], zone_of(like, columns.time))
    if columns.id is not None:
        table[columns.id] = table[columns.id].astype(like[columns.id].dtype)
    return table.set_index(levels) if levels else table


def indexed(form: Form, data: Iterable[Any], values: NDArray[Any], names: Any, columns: ColumnRoles, like: Any) -> Any:
    """Answers of each series, see :func:`contiformer.estimators.tables.per_series`."""
    if form == "polars":
        wide = values if values.ndim == 2 else values[:, None]
        named = list(names) if values.ndim == 2 else [names]
        ids = {} if columns.id is None else {columns.id: names_of(data)}
        return typed(pl.DataFrame(ids | {str(name): wide[:, n] for n, name in enumerate(named)}), columns, like)
    import pandas as pd  # noqa: PLC0415

    index = pd.Index(names_of(data), name=columns.id)
    if columns.id is not None and like is not None:
        index = index.astype(located(like, Columns(columns.id))[0][columns.id].dtype)
    if values.ndim == 2:
        return pd.DataFrame(values, index=index, columns=list(names))
    return pd.Series(values, index=index, name=names)


# Events


def events_from(
    given: Any,
    columns: EventColumns,
    type_names: Sequence[str] | None,
    place: Place | None = None,
) -> tuple[EventSet, TimeKind | None, Any, Any]:
    """The sequences of a table with a row for each event, kind and time zone of its times, and the type of its types.

    The last is None where types are words.
    """
    given, columns = located(given, columns)
    frame, place = as_polars(given), place or Place()
    if columns.time is None:
        remedy = "pass time=, id= if there are several sequences, type= if several types"
        raise place.error("the time column is not named", remedy=remedy)
    if not frame.height:
        if type_names is None:
            raise place.error("there are no rows", remedy="give at least one event")
        _check_columns(frame, columns.time, columns.id, columns.type)
        return EventSet([], type_names=type_names), None, None, None
    stamps, kind = times(pick(frame, columns.time, place), place)
    types, found = _types(frame, columns, type_names, place)
    ids = words(pick(frame, columns.id, place), place).to_list() if columns.id is not None else [None] * frame.height
    extra = [numbers(pick(frame, name, place), place) for name in columns.features]
    features = np.stack(extra, 1).astype(np.float64) if extra else None
    rows: dict[Any, list[int]] = {}
    for row, name in enumerate(ids):
        rows.setdefault(name, []).append(row)
    sequences = [
        EventSequence.of(stamps[which], types[which], features=None if features is None else features[which], id=name)
        for name, which in sorted(rows.items())
    ]
    kinds = None if columns.type is None else frame[columns.type].dtype
    plain = kinds is not None and (kinds.is_integer() or kinds == pl.Boolean)
    return EventSet(sequences, type_names=found), kind, zone_of(given, columns.time), kinds if plain else None


def _types(
    frame: pl.DataFrame, columns: EventColumns, names: Sequence[str] | None, place: Place
) -> tuple[NDArray[np.int64], list[str]]:
    if columns.type is None:
        return np.zeros(frame.height, np.int64), list(names or ["event"])
    column = words(pick(frame, columns.type, place), place)
    if column.dtype.is_float() and bool((column == column.floor()).all()):
        # whole numbers that were stored as others are the same types
        column = column.cast(pl.Int64)
    if names is None:
        # numbers in the order of numbers, not of words
        names = [str(name) for name in column.unique().sort().to_list()]
    number_of = {name: n for n, name in enumerate(names)}
    types = np.array([number_of.get(word, -1) for word in column.cast(pl.String).to_list()], np.int64)
    if (types < 0).any():
        at = first(types < 0)
        raise unknown_type(str(column[at]), names, place.error, at=at, column=columns.type)
    return types, list(names)


def event_frame(
    table: dict[str, Any], times: Sequence[str], kind: TimeKind, types: str = "type", like: Any = None
) -> pl.DataFrame:
    """Predictions by column; those in ``times`` are of the kind of the input's, and ``types`` of the type ``like``."""
    named = {name: _as_given(np.asarray(x), kind) if name in times else x for name, x in table.items()}
    if like is not None and types in named:
        named[types] = pl.Series(named[types], dtype=pl.String).cast(pl.Int64).cast(like)
    return pl.DataFrame(named)


def stacked(parts: Sequence[Any]) -> Any:
    """Tables one under the other."""
    if isinstance(parts[0], pl.DataFrame):
        return pl.concat(parts, how="vertical_relaxed")
    import pandas as pd  # noqa: PLC0415

    return pd.concat(parts, ignore_index=True)
