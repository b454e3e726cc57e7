"""Which items go where: positions only, so that one rule serves every kind of set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from contiformer.data.errors import DataError

_Positions = Int64[np.ndarray, " part"]


def by_share(count: int, shares: Sequence[float], seed: int, labels: Sequence[Any] | None = None) -> list[_Positions]:
    """Positions 0..count-1 in random parts of the given shares, each part in increasing order.

    With ``labels`` every part gets its share of each label, to the nearest item.
    """
    if len(shares) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise DataError(f"shares {tuple(shares)} do not make up a whole", remedy="pass two or more that add up to 1")
    edges = np.cumsum(shares)[:-1]
    order = _shuffled(count, seed, labels)
    # walking through the items label by label, each takes the part in which its place in the walk lies
    cuts = np.round(edges * count).astype(np.int64) if labels is None else None
    parts = list(np.split(order, cuts)) if cuts is not None else _dealt(order, labels, edges)
    for share, part in zip(shares, parts, strict=True):
        if len(part) == 0 and count:
            raise DataError(f"a share of {share:g} of {count} items is nothing", remedy="make it larger")
    return [np.sort(part) for part in parts]


def k_fold(count: int, k: int, seed: int, labels: Sequence[Any] | None = None) -> list[tuple[_Positions, _Positions]]:
    """``k`` pairs (rest, fold) of positions; the folds differ in size by one at most, also for each label."""
    if not 2 <= k <= count:
        raise DataError(f"{count} items cannot make {k} folds", remedy="pass k between 2 and the number of items")
    order = _shuffled(count, seed, labels)
    fold = np.empty(count, np.int64)
    fold[order] = np.arange(count) % k
    return [(np.flatnonzero(fold != n), np.flatnonzero(fold == n)) for n in range(k)]


def _shuffled(count: int, seed: int, labels: Sequence[Any] | None) -> NDArray[np.int64]:
    """A random order, label after label where there are labels."""
    order = np.random.default_rng(seed).permutation(count)
    if labels is None:
        return order
    codes = _codes(labels)
    return order[np.argsort(codes[order], kind="stable")]


def _codes(labels: Sequence[Any]) -> NDArray[np.int64]:
    if any(label is None for label in labels):
        raise DataError("stratified splits need a label for every item", remedy="pass stratify=False")
    known = {label: code for code, label in enumerate(sorted(set(labels), key=str))}
    return np.array([known[label] for label in labels], dtype=np.int64)


def _dealt(order: NDArray[np.int64], labels: Sequence[Any] | None, edges: NDArray[np.float64]) -> list[NDArray[Any]]:
    """Cut every label's run at the edges; rounding carries over from label to label, so that totals come out right."""
    assert labels is not None
    codes = _codes(labels)[order]
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
