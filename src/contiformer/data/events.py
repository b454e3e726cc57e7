"""Event sequences (times, types, features) and sets of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike, NDArray

from contiformer.data.collection import Collection, Lazy
from contiformer.data.conversion import as_matrix, as_times, plain, same, sort_order, taken
from contiformer.data.errors import DataError
from contiformer.data.summary import Summary, summarize


@dataclass(frozen=True, eq=False)
class EventSequence:
    """Events in the order of their times; events at one time keep the order they came in.

    Attributes:
        times: [L] float64, never decreasing.
        types: [L] int64, from 0.
        features: [L, F], more about each event, NaN where unknown.
        label: of the whole sequence.

    Example:
        >>> from contiformer.data import EventSequence
        >>> sequence = EventSequence.of([3.0, 1.0], [1, 0], id="customer 7")
        >>> sequence.times.tolist(), sequence.types.tolist()
        ([1.0, 3.0], [0, 1])
    """

    times: Float64[np.ndarray, " events"]
    types: Int64[np.ndarray, " events"]
    features: NDArray[np.floating[Any]] | None = None
    label: Any = None
    id: str | int | None = None

    @classmethod
    def of(
        cls,
        times: ArrayLike,
        types: ArrayLike | None = None,
        *,
        features: ArrayLike | None = None,
        label: Any = None,
        id: str | int | None = None,
    ) -> EventSequence:
        """Check and sort. Without types all events are of type 0."""
        name = "" if id is None else f" of sequence {id!r}"
        stamps = as_times(times, f"times{name}")
        try:
            kinds = np.zeros(len(stamps), np.int64) if types is None else np.asarray(types)
        except (ValueError, OverflowError):
            raise DataError(f"types{name} are ragged or too large", remedy="give one for each time") from None
        if kinds.shape != stamps.shape:
            raise DataError(f"{len(stamps)} times but types of shape {kinds.shape}{name}", remedy="give one per time")
        with np.errstate(invalid="ignore"):  # NaN is refused below, by name
            whole = kinds.astype(np.int64) if kinds.dtype.kind in "iufb" else None
        if whole is None or not np.array_equal(whole, kinds) or (whole < 0).any():
            raise DataError(f"types{name} are not whole numbers from 0", remedy="number the types 0, 1, 2, ...")
        extra = None if features is None else as_matrix(features, f"features{name}")
        if extra is not None and len(extra) != len(stamps):
            raise DataError(f"{len(stamps)} times but {len(extra)} rows of features{name}", remedy="give one per time")
        order = sort_order(stamps)
        extra = None if extra is None else taken(extra, order)
        return cls(taken(stamps, order), taken(whole, order), extra, plain(label), plain(id))

    def __len__(self) -> int:
        return len(self.times)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventSequence):
            return NotImplemented
        return all(same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def events(self, which: slice | NDArray[Any]) -> EventSequence:
        """Select events by slice or position."""
        extra = None if self.features is None else self.features[which]
        return EventSequence(self.times[which], self.types[which], extra, self.label, self.id)


def without_features(sequence: EventSequence) -> EventSequence:
    """Times and types only."""
    return replace(sequence, features=None)


#: Types are the classes of a prediction: more than this are a mistake in the data.
MOST_TYPES = 1_000_000


class EventSet(Collection[EventSequence]):
    """Sequences over the same types.

    Example:
        >>> from contiformer.data import EventSequence, EventSet
        >>> data = EventSet([EventSequence.of([0.5, 2.0], [1, 0])], num_types=2)
        >>> len(data), data.num_types
        (1, 2)
    """

    def __init__(
        self,
        sequences: Sequence[EventSequence] | Lazy[EventSequence],
        *,
        num_types: int | None = None,
        type_names: Sequence[str] | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> None:
        """``num_types`` is one more than the largest type where it is not given."""
        super().__init__(sequences, notes)
        largest = max((int(s.types.max()) for s in self if len(s)), default=-1) if not self.lazy else -1
        named = None if type_names is None else len(type_names)
        self.num_types = next(n for n in (num_types, named, largest + 1) if n is not None)
        if not 0 <= self.num_types <= MOST_TYPES:
            raise DataError(f"{self.num_types} types of events are too many", remedy=f"number them below {MOST_TYPES}")
        self.type_names = tuple(type_names) if type_names is not None else tuple(map(str, range(self.num_types)))
        if len(self.type_names) != self.num_types or largest >= self.num_types:
            problem = f"{self.num_types} types with {len(self.type_names)} names, and events of type {largest}"
            raise DataError(problem, remedy="types count from 0; give a name for each")

    def _like(self, items: Sequence[EventSequence] | Lazy[EventSequence]) -> Self:
        return type(self)(items, num_types=self.num_types, type_names=self.type_names, notes=self.notes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventSet) and self.type_names == other.type_names and super().__eq__(other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"EventSet({len(self)} sequences, {self.num_types} types{', lazy' if self.lazy else ''})"

    def summary(self) -> Summary:
        """Counts, lengths and gaps."""
        return summarize(self, (), self.notes)
