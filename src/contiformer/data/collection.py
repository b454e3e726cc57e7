"""What sets of series and sets of event sequences have in common: items by position, in memory or not, and splits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from contiformer.data import splits
from contiformer.data.errors import DataError, did_you_mean


class Item(Protocol):
    """Anything with points in time and a name."""

    @property
    def times(self) -> NDArray[np.float64]:
        """When the points are."""
        ...

    @property
    def label(self) -> Any:
        """What the item is called in training, or None."""
        ...

    @property
    def id(self) -> Any:
        """Its name, or None."""
        ...

    def __len__(self) -> int:
        """The number of points."""
        ...


T = TypeVar("T", bound=Item)
T_co = TypeVar("T_co", bound=Item, covariant=True)


class Lazy(Protocol[T_co]):
    """Items that are read when they are asked for, with what has to be known of them before.

    ``lengths`` [n] is the number of points of each; ``blocks`` [n] never decreases and tells which items are read
    together, so that a sampler can visit one block after another.
    """

    lengths: Int64[np.ndarray, " n"]
    blocks: Int64[np.ndarray, " n"]

    def __len__(self) -> int:
        """The number of items."""
        ...

    def __getitem__(self, index: int) -> T_co:
        """Read one item."""
        ...


class _Chosen(Generic[T]):
    """Some items of a lazy source, changed by a function on their way out."""

    def __init__(self, source: Lazy[T], which: NDArray[np.int64], change: Callable[[T], T] | None = None) -> None:
        self.source, self.which, self.change = source, which, change
        self.lengths, self.blocks = source.lengths[which], source.blocks[which]

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, index: int) -> T:
        item = self.source[int(self.which[index])]
        return item if self.change is None else self.change(item)


class Collection(ABC, Generic[T]):
    """Items by position. Subclasses say what else they know about all of them in :meth:`_like`.

    ``items`` is a list, or a :class:`Lazy` source for sets larger than memory. ``notes`` counts what a reader
    skipped or merged on the way here, by description.
    """

    def __init__(self, items: Sequence[T] | Lazy[T], notes: Mapping[str, int] | None = None) -> None:
        self.lazy = hasattr(items, "blocks")
        self._items: Sequence[T] | Lazy[T] = items if self.lazy else list(items)  # type: ignore[arg-type]
        self.notes = dict(notes or {})

    @abstractmethod
    def _like(self, items: Sequence[T] | Lazy[T]) -> Self:
        """Other items under the same description."""

    def __len__(self) -> int:
        """The number of items."""
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """One after the other."""
        return (self._items[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        """One item, or a set of some of them."""
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of a set of {len(self)}")
        return self._items[index % len(self)]

    def __eq__(self, other: object) -> bool:
        """The same items in the same order, described in the same way."""
        if type(other) is not type(self):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @property
    def lengths(self) -> Int64[np.ndarray, " n"]:
        """The number of points of each item."""
        if self.lazy:
            return self._items.lengths  # type: ignore[union-attr]
        return np.fromiter(map(len, self), np.int64, len(self))

    @property
    def blocks(self) -> Int64[np.ndarray, " n"]:
        """Which items are read together: all of them where they are in memory."""
        return self._items.blocks if self.lazy else np.zeros(len(self), np.int64)  # type: ignore[union-attr]

    @property
    def ids(self) -> list[Any]:
        """The names of the items."""
        return [item.id for item in self]

    @property
    def labels(self) -> list[Any]:
        """The labels of the items, None where there is none."""
        return [item.label for item in self]

    def select(self, which: Iterable[int] | NDArray[Any]) -> Self:
        """The items at these positions, in this order."""
        index = np.asarray(which if isinstance(which, np.ndarray) else list(which))
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        if index.size and not -len(self) <= index.min() <= index.max() < len(self):
            raise IndexError(f"positions {index.min()} to {index.max()} in a set of {len(self)}")
        index = index % max(1, len(self))
        if self.lazy:
            return self._like(_Chosen(self._items, index))  # type: ignore[arg-type]
        return self._like([self._items[int(i)] for i in index])

    def map(self, change: Callable[[T], T]) -> Self:
        """Every item changed; at once in memory, and on reading otherwise."""
        if self.lazy:
            return self._like(_Chosen(self._items, np.arange(len(self)), change))  # type: ignore[arg-type]
        return self._like([change(item) for item in self])

    def in_memory(self) -> Self:
        """The same set, read whole."""
        return self._like(list(self)) if self.lazy else self

    def split(self, *shares: float, seed: int = 0, stratify: bool = False) -> tuple[Self, ...]:
        """Random parts of the given shares, which add up to 1; with ``stratify`` each has its share of every label.

        Example:
            >>> from contiformer.data import Series, SeriesSet
            >>> whole = SeriesSet([Series.of([0.0], [n], id=n) for n in range(10)])
            >>> [len(part) for part in whole.split(0.8, 0.2)]
            [8, 2]
        """
        labels = self.labels if stratify else None
        return tuple(self.select(part) for part in splits.by_share(len(self), shares, seed, labels))

    def k_fold(self, k: int, *, seed: int = 0, stratify: bool = False) -> list[tuple[Self, Self]]:
        """``k`` pairs (rest, fold): each item is in exactly one of the folds."""
        labels = self.labels if stratify else None
        return [(self.select(rest), self.select(fold)) for rest, fold in splits.k_fold(len(self), k, seed, labels)]

    def with_ids(self, ids: Iterable[Hashable]) -> Self:
        """The items with these names, in this order."""
        place = {name: i for i, name in enumerate(self.ids)}
        wanted = list(ids)
        if len(place) < len(self):
            raise DataError("some ids occur more than once", remedy="select by position instead")
        for name in wanted:
            if name not in place:
                raise DataError(f"no item has the id {name!r}", remedy=did_you_mean(str(name), map(str, place)))
        return self.select([place[name] for name in wanted])

    def without_ids(self, ids: Iterable[Hashable]) -> Self:
        """All items but those with these names."""
        unwanted = set(ids)
        return self.select([i for i, name in enumerate(self.ids) if name not in unwanted])
