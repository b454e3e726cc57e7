"""Convert user input (frames, lists) to an EventSet, and predicted events to a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.estimators.tables import ColumnRoles, frame_functions, frame_library

EventForm = Literal["set", "polars", "pandas", "list"]


@dataclass(frozen=True)
class EventColumns(ColumnRoles):
    """The columns of a table with an event in each row.

    Attributes:
        id: of the sequence; without one the table is one sequence.
        time, type: of the event; without a type all events are of one.
        features: more about each event.
    """

    type: str | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Events:
    """Input as it was read: the sequences, the form they came in, and whether times are dates."""

    data: EventSet
    form: EventForm
    dates: bool = False

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.data)


def read_events(X: Any, columns: EventColumns, type_names: Sequence[str] | None = None) -> Events:
    """The input as a set.

    Args:
        X: an EventSet, a DataFrame with a row for each event, or a list of (times, types) or of EventSequence; what
            this function gave goes through it again.
        columns: of a DataFrame.
        type_names: of the model, whose numbers types then get; None at training: those that are there, sorted.
    """
    if isinstance(X, Events):
        return replace(X, data=_as_known(X.data, type_names))
    if isinstance(X, EventSet):
        return Events(_as_known(X, type_names), "set")
    library = frame_library(X)
    if library is not None:
        data, dates = frame_functions().events_from(X, columns, type_names)
        return Events(data, library, dates)
    data = _from_list([X] if isinstance(X, EventSequence) else X)
    return Events(_as_known(data, type_names), "list")


def _from_list(X: Any) -> EventSet:
    if not isinstance(X, Sequence) or isinstance(X, str):
        remedy = "pass an EventSet, a DataFrame, or a list of (times, types)"
        raise DataError(f"X is a {type(X).__name__}", remedy=remedy)
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
        remedy = "types count from 0; train with num_types= or with data that have them all"
        raise DataError(f"an event of type {largest}, and the model knows {len(type_names)} types", remedy=remedy)
    return EventSet(list(data), type_names=type_names, notes=data.notes)


def _renumbered(data: EventSet, type_names: Sequence[str]) -> EventSet:
    number_of = {name: n for n, name in enumerate(type_names)}
    numbers = np.array([number_of.get(name, -1) for name in data.type_names], np.int64)
    for one in data:
        unknown = one.types[numbers[one.types] < 0]
        if len(unknown):
            raise unknown_type(data.type_names[unknown[0]], type_names)
    return EventSet([replace(one, types=numbers[one.types]) for one in data], type_names=type_names, notes=data.notes)


def unknown_type(
    name: str, known: Sequence[str], error: Callable[..., DataError] = DataError, **place: Any
) -> DataError:
    """The error for a type that a model does not know."""
    shown = ", ".join(list(known)[:8]) + (", ..." if len(known) > 8 else "")
    return error(f"the type {name!r} was not there in training", remedy=f"the model knows {shown}", **place)


def event_table(form: EventForm, table: dict[str, Any], times: Sequence[str], dates: bool) -> Any:
    """Predictions as a DataFrame, of pandas where that came in; the columns ``times`` are dates where they were."""
    frames = frame_functions()
    frame = frames.event_frame(table, times, dates)
    return frames.as_pandas(frame) if form == "pandas" else frame
