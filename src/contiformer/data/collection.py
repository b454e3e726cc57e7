"""Base of SeriesSet and EventSet: items by position, in memory or lazy, and random splits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from contiformer.data.errors import DataError, did_you_mean


class _Item(Protocol):
    """A series or an event sequence."""

    @property
    def times(self) -> NDArray[np.float64]: ...
    @property
    def label(self) -> Any: ...
    @property
    def id(self) -> Any: ...
    def __len__(self) -> int: ...


T = TypeVar("T", bound=_Item)
T_co = TypeVar("T_co", bound=_Item, covariant=True)


class Lazy(Protocol[T_co]):
    """A lazy source of items, read on access.

    ``lengths`` [n] is the number of points of each; ``blocks`` [n] never decreases and tells which items are read
    together, so that a sampler can visit one block after another.
    """

    lengths: Int64[np.ndarray, " n"]
    blocks: Int64[np.ndarray, " n"]

    def __len__(self) -> int:
        """The number of items."""

    def __getitem__(self, index: int) -> T_co:
        """Read one item."""


class LazyItems(Generic[T]):
    """A lazy source of items that a function makes on access; it is pickled for worker processes."""

    def __init__(
        self, lengths: NDArray[np.int64], make: Callable[[int], T], blocks: NDArray[np.int64] | None = None
    ) -> None:
        self.lengths, self._make = lengths, make
        self.blocks = np.zeros(len(lengths), np.int64) if blocks is None else blocks

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> T:
        return self._make(index)


def _selected(items: Sequence[T] | Lazy[T], which: NDArray[np.int64], index: int) -> T:
    return items[int(which[index])]


def _changed(items: Sequence[T] | Lazy[T], change: Callable[[T], T], index: int) -> T:
    return change(items[index])


class Collection(ABC, Generic[T]):
    """Items by position: a list, or a :class:`Lazy` source for sets larger than memory.

    ``notes`` counts what a reader skipped or merged, by description.
    """

    def __init__(self, items: Sequence[T] | Lazy[T], notes: Mapping[str, int] | None = None) -> None:
        self.lazy = hasattr(items, "blocks")
        self._items: Sequence[T] | Lazy[T] = items if self.lazy else list(items)  # type: ignore[arg-type]
        self.notes = {what: count for what, count in (notes or {}).items() if count}

    @abstractmethod
    def _like(self, items: Sequence[T] | Lazy[T]) -> Self:
        """Other items under the same description."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return (self._items[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for a set of {len(self)}")
        return self._items[index % len(self)]

    def __eq__(self, other: object) -> bool:
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
        """The number of the block of each item, which is read together; 0 in memory."""
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
        """Select items by position, in this order."""
        index = np.asarray(which if isinstance(which, np.ndarray) else list(which))
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        if index.size and not -len(self) <= index.min() <= index.max() < len(self):
            raise IndexError(f"positions {index.min()} to {index.max()} are out of range for a set of {len(self)}")
        index = index % max(1, len(self))
        if self.lazy:
            chosen = partial(_selected, self._items, index)
            return self._like(LazyItems(self.lengths[index], chosen, self.blocks[index]))
        return self._like([self._items[int(i)] for i in index])

    def map(self, change: Callable[[T], T]) -> Self:
        """Apply a function to every item: now if the set is in memory, when it is read otherwise."""
        if self.lazy:
            return self._like(LazyItems(self.lengths, partial(_changed, self._items, change), self.blocks))
        return self._like([change(item) for item in self])

    def in_memory(self) -> Self:
        """Read the whole set into memory."""
        return self._like(list(self)) if self.lazy else self

    def split(self, *shares: float, seed: int = 0, stratify: bool = False) -> tuple[Self, ...]:
        """Split at random by shares that add up to 1; with ``stratify`` each part has its share of every label.

        Example:
            >>> from contiformer.data import Series, SeriesSet
            >>> whole = SeriesSet([Series.of([0.0], [n], id=n) for n in range(10)])
            >>> [len(part) for part in whole.split(0.8, 0.2)]
            [8, 2]
        """
        if len(shares) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise DataError(f"shares {shares} do not make up a whole", remedy="pass two or more that add up to 1")
        edges = np.cumsum(shares)[:-1]
        order, codes = self._shuffled(seed, stratify)
        cuts = np.round(edges * len(self)).astype(np.int64)
        parts = list(np.split(order, cuts)) if codes is None else _stratified(order, codes, edges)
        for share, part in zip(shares, parts, strict=True):
            if len(part) == 0 and len(self):
                raise DataError(
                    f"a part of {share:g} of {len(self)} items would be empty", remedy="give it a larger share"
                )
        return tuple(self.select(np.sort(part)) for part in parts)

    def k_fold(self, k: int, *, seed: int = 0, stratify: bool = False) -> list[tuple[Self, Self]]:
        """``k`` pairs (training, fold): each item is in one fold; fold sizes differ by one at most, also by label."""
        if not 2 <= k <= len(self):
            problem = f"{len(self)} items cannot make {k} folds"
            raise DataError(problem, remedy="pass k between 2 and the number of items")
        fold = np.empty(len(self), np.int64)
        fold[self._shuffled(seed, stratify)[0]] = np.arange(len(self)) % k
        return [(self.select(fold != n), self.select(fold == n)) for n in range(k)]

    def _shuffled(self, seed: int, stratify: bool) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """A random order, label after label with ``stratify``, and then the number of the label of each."""
        order = np.random.default_rng(seed).permutation(len(self))
        if not stratify:
            return order, None
        labels = self.labels
        if any(label is None for label in labels):
            raise DataError("stratified splits need a label for every item", remedy="pass stratify=False")
        known = {label: code for code, label in enumerate(sorted(set(labels), key=str))}
        codes = np.array([known[label] for label in labels], dtype=np.int64)[order]
        by_label = np.argsort(codes, kind="stable")
        return order[by_label], codes[by_label]

    def with_ids(self, ids: Iterable[Hashable]) -> Self:
        """Select items by id, in this order."""
        place = {name: i for i, name in enumerate(self.ids)}
        wanted = list(ids)
        if len(place) < len(self):
            raise DataError("some ids occur more than once", remedy="select by position instead")
        for name in wanted:
            if name not in place:
                raise DataError(f"no item has the id {name!r}", remedy=did_you_mean(str(name), map(str, place)))
        return self.select([place[name] for name in wanted])


def _stratified(
    order: NDArray[np.int64], codes: NDArray[np.int64], edges: NDArray[np.float64]
) -> list[NDArray[np.int64]]:
    """Cut every label's run at the edges; rounding carries over from label to label, so that totals come out right."""
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(len(edges) + 1)]
    seen = 0
    given = np.zeros(len(edges), np.int64)
    for code in np.unique(codes):
        run = order[codes == code]
        seen += len(run)
        wanted = np.round(edges * seen).astype(np.int64) - given
        cuts = np.clip(np.maximum.accumulate(wanted), 0, len(run))
        given += cuts
        for part, piece in zip(parts, np.split(run, cuts), strict=True):
            part.append(piece)
    return [np.concatenate(part) if part else order[:0] for part in parts]
