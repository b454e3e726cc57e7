"""DataFrames of polars and pandas: series and event sequences from them, predictions to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.conversion import as_datetimes
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.readers.columns import Place, as_polars, first, numbers, pick, times, words
from contiformer.data.readers.frames import from_frame
from contiformer.data.series_set import SeriesSet
from contiformer.estimators.event_tables import EventColumns, shown_times, unknown_type
from contiformer.estimators.tables import Columns, names_of, with_targets


def series_from(frame: Any, columns: Columns, channels: tuple[str, ...] | None, *, by_id: bool) -> SeriesSet:
    """The series of a long table; the arguments are those of :func:`contiformer.estimators.tables.read`."""
    if columns.time is None:
        raise DataError("which column is the time?", remedy="name it: fit(df, id=..., time=..., values=[...])")
    names = frame.collect_schema().names() if isinstance(frame, pl.LazyFrame) else map(str, frame.columns)
    roles = columns.present_in(list(names), answers=channels is None)
    values = roles.values if channels is None else channels
    assert values is not None
    try:
        data = from_frame(
            frame,
            time=columns.time,
            id=columns.id,
            values=(*values, *roles.targets),
            label=roles.label,
            static=columns.static,
            order="id" if by_id else "appearance",
        )
    except DataError as error:
        if "duplicates=" not in (error.remedy or ""):
            raise
        # that is an argument of the reader, not of fit
        remedy = "remove or average such rows, or name the column that tells the series apart in id="
        raise DataError(error.problem, row=error.row, column=error.column, remedy=remedy) from None
    return with_targets(data, len(roles.targets))


def times_from_words(times_as_text: Sequence[str], name: str) -> tuple[NDArray[np.float64], bool]:
    """Times written as text, and whether they are dates."""
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
    table[columns.time or "time"] = as_datetimes(stamps) if data.schema.dates else stamps
    stacked = np.concatenate(values) if len(values) else np.zeros((0, len(names)))
    return pl.DataFrame(table | {name: stacked[:, n] for n, name in enumerate(names)})


def typed(frame: pl.DataFrame, columns: Columns, like: Any = None) -> pl.DataFrame:
    """With ids of the type, and dates in the zone, that they have in ``like``."""
    if like is None:
        return frame
    kinds = dict(like.collect_schema())
    zone = getattr(kinds.get(columns.time), "time_zone", None)
    if zone is not None:
        time = pl.col(columns.time or "time").dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
        frame = frame.with_columns(time)
    return frame if columns.id is None else frame.with_columns(pl.col(columns.id).cast(kinds[columns.id]))


def as_pandas(frame: pl.DataFrame, columns: Columns | None = None, like: Any = None) -> Any:
    """As a DataFrame of pandas, with the types of ids and dates in ``like``."""
    import pandas as pd  # noqa: PLC0415

    table = pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
    if like is not None and columns is not None:
        zone = getattr(like[columns.time].dtype, "tz", None)
        if zone is not None:
            table[columns.time] = table[columns.time].dt.tz_localize("UTC").dt.tz_convert(zone)
        if columns.id is not None:
            table[columns.id] = table[columns.id].astype(like[columns.id].dtype)
    return table


# Events


def events_from(
    given: Any, columns: EventColumns, type_names: Sequence[str] | None, place: Place | None = None
) -> tuple[EventSet, bool]:
    """The sequences of a table with a row for each event, and whether its times are dates."""
    frame, place = as_polars(given), place or Place()
    if columns.time is None:
        remedy = "pass time=, id= if there are several sequences, type= if several types"
        raise place.error("which column is the time?", remedy=remedy)
    if not frame.height:
        raise place.error("there are no rows", remedy="give at least one event")
    stamps, dates = times(pick(frame, columns.time, place), place)
    types, found = _types(frame, columns, type_names, place)
    ids = words(pick(frame, columns.id, place), place).to_list() if columns.id is not None else [None] * frame.height
    extra = [numbers(pick(frame, name, place), place) for name in columns.features]
    features = np.stack(extra, 1).astype(np.float64) if extra else None
    rows: dict[Any, list[int]] = {}
    for row, name in enumerate(ids):
        rows.setdefault(name, []).append(row)
    sequences = [
        EventSequence.of(stamps[which], types[which], features=None if features is None else features[which], id=name)
        for name, which in rows.items()
    ]
    return EventSet(sequences, type_names=found), dates


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


def event_frame(table: dict[str, Any], times: Sequence[str], dates: bool) -> pl.DataFrame:
    """Predictions by column; those in ``times`` are dates where the input's are."""
    return pl.DataFrame({name: shown_times(np.asarray(x), dates) if name in times else x for name, x in table.items()})
