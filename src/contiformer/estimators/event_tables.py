"""Convert user input (frames, lists) to an EventSet, and predicted events to a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from contiformer.data.conversion import TimeKind, as_times, only_kind, shown_times, time_kind
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.estimators.input_checks import last_part
from contiformer.estimators.tables import TABLES, ColumnRoles, frame_functions, frame_library

#: One long sequence is learned in pieces of so many events.
PIECE = 256
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
    """Input as it was read.

    Attributes:
        data: the sequences.
        form: they came in.
        kind: of their times; None where it is unknown, as in a set.
        zone: the time zone of a table.
        named: types are words.
        types: the type of the types of a table, where they are numbers or truth values.
    """

    data: EventSet
    form: EventForm
    kind: TimeKind | None = None
    zone: Any = None
    named: bool = False
    types: Any = None

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.data)

    def singly(self) -> list[Events]:
        """The sequences one by one."""
        return [replace(self, data=self.data.select([n])) for n in range(len(self))]


def read_events(X: Any, columns: EventColumns, type_names: Sequence[str] | None = None) -> Events:
    """The input as a set, from any form of ``EventPredictor.fit``; what this function gave goes through it again.

    Types get the numbers that they have among ``type_names`` of the model; None at training: those there are, sorted.
    """
    if isinstance(X, Events):
        return replace(X, data=_as_known(X.data, type_names))
    if isinstance(X, EventSet):
        return Events(_as_known(X, type_names), "set")
    library = frame_library(X)
    if library is not None:
        data, kind, zone, types = frame_functions().events_from(X, columns, type_names)
        return Events(data, library, kind, zone, types=types)
    if isinstance(X, EventSequence) or (isinstance(X, list) and X and all(isinstance(x, EventSequence) for x in X)):
        return Events(_as_known(EventSet([X] if isinstance(X, EventSequence) else X), type_names), "set")
    data, kind, named = _from_list(X, type_names)
    return Events(_as_known(data, type_names), "list", kind, named=named)


def _from_list(X: Any, known: Sequence[str] | None) -> tuple[EventSet, TimeKind | None, bool]:
    """The sequences of a list, the kind of their times, and whether their types are words."""
    if not isinstance(X, Sequence) or isinstance(X, str):
        remedy = "pass an EventSet, a DataFrame, or a list of (times, types)"
        raise DataError(f"X is a {type(X).__name__}", remedy=remedy)
    sequences: list[EventSequence] = []
    kinds: dict[TimeKind, int] = {}
    words = any(_has_words(one[1]) for one in X if isinstance(one, Sequence) and len(one) == 2)
    names = _names_in(X, known) if words else None
    for number, one in enumerate(X):
        if isinstance(one, EventSequence):
            sequences.append(one)
            continue
        if not isinstance(one, Sequence) or len(one) != 2:
            raise DataError(f"item {number} of X is not a pair", remedy="pass (times, types) for each sequence")
        try:
            types = one[1] if names is None else [_number_of(word, names) for word in one[1]]
            sequences.append(EventSequence.of(one[0], types))
        except DataError as error:
            raise DataError(f"sequence {number}: {error}") from None
        if len(one[0]):
            kinds.setdefault(time_kind(one[0]), number)
    return EventSet(sequences, type_names=names), only_kind(kinds), words


def _has_words(types: Any) -> bool:
    listed = isinstance(types, Sequence | np.ndarray) and not isinstance(types, str)
    return listed and any(isinstance(word, str) for word in types)


def _names_in(X: Sequence[Any], known: Sequence[str] | None) -> Sequence[str]:
    """The names of the model, or at training those in the list, sorted."""
    found = {word for one in X if isinstance(one, Sequence) and len(one) == 2 for word in one[1]}
    strange = next((word for word in found if not isinstance(word, str)), None)
    if strange is not None:
        raise DataError(f"the type {strange!r} is not a word, but others are", remedy="use only words or only numbers")
    return sorted(map(str, found)) if known is None else known


def _number_of(word: str, names: Sequence[str]) -> int:
    if word not in names:
        raise unknown_type(word, names)
    return list(names).index(word)


def wait_of(within: Any, trained: TimeKind) -> float:
    """A wait in the data's unit of time: a number where the model's times are numbers, otherwise a duration."""
    if time_kind([within]) != ("numbers" if trained == "numbers" else "durations"):
        number = "a number in the unit of the times"
        wanted = number if trained == "numbers" else "a duration, such as datetime.timedelta(hours=1)"
        raise ValueError(f"within must be {wanted}, got {within!r}")
    wait = float(as_times([within], "within")[0])
    if wait < 0:
        raise ValueError(f"within must not be negative, got {within!r}")
    return wait


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
        raise DataError(f"X has an event of type {largest}, and the model knows {len(type_names)} types", remedy=remedy)
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


def as_given(drawn: Sequence[EventSequence], given: Events, roles: EventColumns, type_names: Sequence[str]) -> Any:
    """Sampled sequences in the form of the history: a table, pairs of dates and words, or as they are."""
    if given.form in TABLES:
        time = roles.time or "time"
        types = [type_names[k] for one in drawn for k in one.types]
        table: dict[str, Any] = {} if roles.id is None else {roles.id: [given.data[0].id] * len(types)}
        table["draw"] = np.repeat(np.arange(len(drawn)), [len(one) for one in drawn])
        table[time] = np.concatenate([one.times for one in drawn])
        table |= {} if roles.type is None else {roles.type: types}
        return event_table(given, table, (time,), roles.type or "type")
    if not (given.named or given.kind not in (None, "numbers")):
        return list(drawn)
    words = ([type_names[k] for k in one.types] if given.named else one.types for one in drawn)
    return [(shown_times(one.times, given.kind or "numbers"), types) for one, types in zip(drawn, words, strict=True)]


def with_waits(data: EventSet) -> EventSet:
    """The sequences of two events or more: the others have nothing that is scored, and a step needs something."""
    return data.select(np.flatnonzero(data.lengths > 1))


def along_time(data: EventSet, share: float) -> tuple[EventSet, EventSet]:
    """The beginning of one sequence to train on, and its last ``share`` to validate on, each in pieces.

    The first event of a piece is given, as that of a sequence is.
    """
    one = data[0]
    border = last_part(len(one), share, f"sequence of {len(one)} events")

    def pieces(start: int, end: int) -> EventSet:
        cut = [one.events(slice(n, min(n + PIECE, end))) for n in range(start, end, PIECE)]
        return with_waits(EventSet(cut, type_names=data.type_names))

    return pieces(0, border), pieces(border, len(one))


def event_table(given: Events, table: dict[str, Any], times: Sequence[str], types: str = "type") -> Any:
    """Predictions as a DataFrame, of pandas where that came in; times and types are of the kinds of the input."""
    frames = frame_functions()
    frame = frames.event_frame(table, times, given.kind or "numbers", types, given.types)
    return frames.in_zone(frames.as_pandas(frame) if given.form == "pandas" else frame, times, given.zone)
