"""Event sequences as users hand them in, and answers as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.times import as_datetimes

EventForm = Literal["set", "polars", "pandas", "list"]


@dataclass(frozen=True)
class EventColumns:
    """The columns of a table with an event in each row.

    Attributes:
        id: of the sequence; without one the table is one sequence.
        time, type: of the event; without a type all events are of one.
        features: more about each event.
    """

    id: str | None = None
    time: str | None = None
    type: str | None = None
    features: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EventColumns:
        """Back from JSON."""
        roles: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in data.items()}
        return cls(**roles)


@dataclass(frozen=True)
class Events:
    """What was handed in: the sequences, in which form, and whether times are dates."""

    data: EventSet
    form: EventForm
    dates: bool = False


def read_events(X: Any, columns: EventColumns, type_names: Sequence[str] | None = None) -> Events:
    """The input as a set.

    Args:
        X: an EventSet, a DataFrame with a row for each event, or a list of (times, types) or of EventSequence.
        columns: of a DataFrame.
        type_names: of the model, whose numbers types then get; None at training: those that are there, sorted.
    """
    if isinstance(X, EventSet):
        return Events(_as_known(X, type_names), "set")
    if isinstance(X, EventSequence):
        X = [X]
    if isinstance(X, pl.LazyFrame):
        X = X.collect()
    if isinstance(X, pl.DataFrame):
        return _from_frame(X, columns, type_names, "polars")
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        return _from_frame(pl.from_pandas(X), columns, type_names, "pandas")
    if not isinstance(X, Sequence) or isinstance(X, str):
        raise DataError(
            f"X is a {type(X).__name__}", remedy="pass an EventSet, a DataFrame, or a list of (times, types)"
        )
    return Events(_as_known(_from_list(X), type_names), "list")


def _from_list(X: Sequence[Any]) -> EventSet:
    sequences = []
    for number, one in enumerate(X):
        if isinstance(one, EventSequence):
            sequences.append(one)
            continue
        if not isinstance(one, Sequence) or len(one) != 2:
            raise DataError(f"item {number} of X is no pair", remedy="pass (times, types) for each sequence")
        try:
            sequences.append(EventSequence.of(one[0], one[1]))
        except DataError as error:
            raise DataError(f"sequence {number}: {error}") from None
    return EventSet(sequences)


def _as_known(data: EventSet, type_names: Sequence[str] | None) -> EventSet:
    if not len(data):
        raise DataError("X has no sequences", remedy="give at least one")
    if type_names is None:
        return data
    largest = max((int(one.types.max()) for one in data if len(one)), default=-1)
    if largest >= len(type_names):
        raise DataError(
            f"an event of type {largest}, and the model knows {len(type_names)} types",
            remedy="types count from 0; train with num_types= or with data that have them all",
        )
    return EventSet(list(data), type_names=type_names, notes=data.notes)


def _from_frame(frame: pl.DataFrame, columns: EventColumns, names: Sequence[str] | None, form: EventForm) -> Events:
    if columns.time is None:
        raise DataError("which column is the time?", remedy="name it: fit(df, id=..., time=..., type=...)")
    needed = [columns.id, columns.time, columns.type, *columns.features]
    for column in needed:
        if column is not None and column not in frame.columns:
            raise DataError(f"there is no column {column!r}", remedy=f"the table has {', '.join(frame.columns)}")
        if column is not None and frame[column].null_count():
            row = int(frame[column].is_null().arg_true()[0])
            if column not in columns.features:
                raise DataError("a value is missing", row=row + 1, column=column, remedy="leave the row out")
    if not frame.height:
        raise DataError("X has no rows", remedy="give at least one event")
    times, dates = _times(frame[columns.time])
    kinds, found = _kinds(frame, columns, names)
    ids = frame[columns.id].to_list() if columns.id is not None else [None] * frame.height
    extra = frame.select(pl.col(list(columns.features)).cast(pl.Float64)).to_numpy() if columns.features else None
    rows: dict[Any, list[int]] = {}
    for row, name in enumerate(ids):
        rows.setdefault(name, []).append(row)
    sequences = [
        EventSequence.of(times[which], kinds[which], features=None if extra is None else extra[which], id=name)
        for name, which in rows.items()
    ]
    return Events(EventSet(sequences, type_names=found), form, dates)


def _times(column: pl.Series) -> tuple[np.ndarray[Any, Any], bool]:
    if column.dtype.is_temporal():
        return column.cast(pl.Datetime("us")).to_physical().to_numpy() / 1e6, True
    try:
        values = column.cast(pl.Float64).to_numpy()
    except pl.exceptions.PolarsError:
        raise DataError("the times are neither numbers nor dates", column=column.name) from None
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"the time is {values[row]}", row=row + 1, column=column.name, remedy="leave the row out")
    return values, False


def _kinds(
    frame: pl.DataFrame, columns: EventColumns, names: Sequence[str] | None
) -> tuple[np.ndarray[Any, Any], list[str]]:
    if columns.type is None:
        return np.zeros(frame.height, np.int64), list(names or ["event"])
    words = frame[columns.type].cast(pl.String)
    if names is None:
        # numbers in the order of numbers, not of words
        names = [str(name) for name in frame[columns.type].unique().sort().to_list()]
    numbers = {name: n for n, name in enumerate(names)}
    unknown = sorted(set(words.to_list()) - set(numbers))
    if unknown:
        row = words.to_list().index(unknown[0])
        raise DataError(
            f"the type {unknown[0]!r} was not there in training",
            row=row + 1,
            column=columns.type,
            remedy=f"the model knows {', '.join(list(names)[:8])}{', ...' if len(names) > 8 else ''}",
        )
    return np.array([numbers[word] for word in words.to_list()], np.int64), list(names)


def event_table(form: EventForm, table: dict[str, Any], times: Sequence[str], dates: bool) -> Any:
    """An answer as a DataFrame, of pandas where that came in; times are dates where they were."""
    columns = {name: as_datetimes(x) if dates and name in times else x for name, x in table.items()}
    frame = pl.DataFrame(columns)
    return frame.to_pandas() if form == "pandas" else frame
