"""Event sequences as users hand them in, and answers as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.readers.columns import as_polars, numbers, pick, times, words
from contiformer.data.readers.place import Place, first
from contiformer.data.times import FARTHEST, as_datetimes

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

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.data)


def read_events(
    X: Any, columns: EventColumns, type_names: Sequence[str] | None = None, place: Place | None = None
) -> Events:
    """The input as a set.

    Args:
        X: an EventSet, a DataFrame with a row for each event, or a list of (times, types) or of EventSequence; what
            this function gave goes through it again.
        columns: of a DataFrame.
        type_names: of the model, whose numbers types then get; None at training: those that are there, sorted.
        place: file and first row of a DataFrame, for errors.
    """
    place = place or Place()
    if isinstance(X, Events):
        return replace(X, data=_as_known(X.data, type_names))
    if isinstance(X, EventSet):
        return Events(_as_known(X, type_names), "set")
    if isinstance(X, EventSequence):
        X = [X]
    if isinstance(X, pl.LazyFrame):
        X = X.collect()
    if isinstance(X, pl.DataFrame):
        return _from_frame(X, columns, type_names, "polars", place)
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        return _from_frame(as_polars(X), columns, type_names, "pandas", place)
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
    """With the model's numbers: by the names where the set has some, otherwise as they are."""
    if not len(data):
        raise DataError("X has no sequences", remedy="give at least one")
    if type_names is None or data.type_names == tuple(type_names):
        return data
    if data.type_names != tuple(map(str, range(data.num_types))):
        data = _renumbered(data, type_names)
    largest = max((int(one.types.max()) for one in data if len(one)), default=-1)
    if largest >= len(type_names):
        raise DataError(
            f"an event of type {largest}, and the model knows {len(type_names)} types",
            remedy="types count from 0; train with num_types= or with data that have them all",
        )
    return EventSet(list(data), type_names=type_names, notes=data.notes)


def _renumbered(data: EventSet, type_names: Sequence[str]) -> EventSet:
    place = {name: n for n, name in enumerate(type_names)}
    numbers = np.array([place.get(name, -1) for name in data.type_names], np.int64)
    for one in data:
        unknown = one.types[numbers[one.types] < 0]
        if len(unknown):
            raise _unknown(data.type_names[unknown[0]], type_names, Place())
    return EventSet([replace(one, types=numbers[one.types]) for one in data], type_names=type_names, notes=data.notes)


def _unknown(
    name: str, known: Sequence[str], place: Place, at: int | None = None, column: str | None = None
) -> DataError:
    shown = ", ".join(list(known)[:8]) + (", ..." if len(known) > 8 else "")
    return place.error(
        f"the type {name!r} was not there in training", at=at, column=column, remedy=f"the model knows {shown}"
    )


def _from_frame(
    frame: pl.DataFrame, columns: EventColumns, names: Sequence[str] | None, form: EventForm, place: Place
) -> Events:
    if columns.time is None:
        raise place.error(
            "which column is the time?", remedy="pass time=, id= if there are several sequences, type= if several types"
        )
    if not frame.height:
        raise place.error("there are no rows", remedy="give at least one event")
    stamps, dates = times(pick(frame, columns.time, place), place)
    kinds, found = _kinds(frame, columns, names, place)
    ids = words(pick(frame, columns.id, place), place).to_list() if columns.id is not None else [None] * frame.height
    extra = [numbers(pick(frame, name, place), place) for name in columns.features]
    features = np.stack(extra, 1).astype(np.float64) if extra else None
    rows: dict[Any, list[int]] = {}
    for row, name in enumerate(ids):
        rows.setdefault(name, []).append(row)
    sequences = [
        EventSequence.of(stamps[which], kinds[which], features=None if features is None else features[which], id=name)
        for name, which in rows.items()
    ]
    return Events(EventSet(sequences, type_names=found), form, dates)


def _kinds(
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
    place_of = {name: n for n, name in enumerate(names)}
    kinds = np.array([place_of.get(word, -1) for word in column.cast(pl.String).to_list()], np.int64)
    if (kinds < 0).any():
        at = first(kinds < 0)
        raise _unknown(str(column[at]), names, place, at, columns.type)
    return kinds, list(names)


def names_of(data: EventSet) -> list[Any]:
    """Of each sequence its id or else its number; as words where some are, because a column holds one kind."""
    names = [n if one.id is None else one.id for n, one in enumerate(data)]
    return names if len({type(name) for name in names}) < 2 else [str(name) for name in names]


def event_table(form: EventForm, table: dict[str, Any], times: Sequence[str], dates: bool) -> Any:
    """An answer as a DataFrame, of pandas where that came in; times are dates where they were."""
    columns = {name: _dates(np.asarray(x)) if dates and name in times else x for name, x in table.items()}
    frame = pl.DataFrame(columns)
    if form != "pandas":
        return frame
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


def _dates(times: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """What never comes has no date, nor what comes after all dates."""
    never = ~(np.abs(times) <= FARTHEST)
    return np.where(never, np.datetime64("NaT"), as_datetimes(np.where(never, 0.0, times)))
