"""The protocol that makes regular series irregular: a share of the time points of each series is removed at random."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import floor

import numpy as np
from jaxtyping import Int64

from contiformer.data.errors import DataError
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet


def drop_points(data: SeriesSet, share: float, seed: int = 0) -> SeriesSet:
    """Remove ``floor(share * L)`` of the L points of each series, all channels of a point together.

    At least one point stays. The number is rounded down as in the code of the authors and of Neural CDE, whose protocol
    it is: of PenDigits' eight points three stay at 70 %. Which ones go depends only on the seed and on the
    series' id (its position where it has none), never on the other series, on their order or on who asks: every model
    sees the same points. Times of the points that stay are unchanged, and so are targets.

    Args:
        data: series of any lengths, in memory or not.
        share: from 0 to less than 1; the paper uses 0.3, 0.5 and 0.7.
        seed: another one gives other points.

    Example:
        >>> regular = SeriesSet([Series.of(range(10), range(10), id="a")])
        >>> len(drop_points(regular, 0.3)[0])
        7
    """
    if not 0 <= share < 1:
        raise DataError(f"a share of {share} cannot be dropped", remedy="pass 0 <= share < 1, for example 0.3")
    kept = _Kept(data, share, seed)
    return SeriesSet(kept if data.lazy else [kept[n] for n in range(len(kept))], schema=data.schema, notes=data.notes)


@dataclass
class _Kept:
    """The thinned series, one by one: a source for lazy sets too."""

    data: SeriesSet
    share: float
    seed: int

    def __post_init__(self) -> None:
        lengths = self.data.lengths
        self.lengths: Int64[np.ndarray, " n"] = np.array([_staying(int(n), self.share) for n in lengths], np.int64)
        self.blocks = self.data.blocks

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Series:
        series = self.data[index]
        draw = np.random.default_rng([self.seed, _key(index if series.id is None else series.id)])
        staying = draw.permutation(len(series))[: _staying(len(series), self.share)]
        return series.points(np.sort(staying))


def _staying(length: int, share: float) -> int:
    # 0.7 * 90 is 62.99999999999999 in floating point, of which the authors' code makes 62; 63 points are meant
    return max(length - floor(share * length + 1e-9), min(length, 1))


def _key(name: str | int) -> int:
    """A number for a name, the same in every process, unlike ``hash``."""
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest())
