"""Classification sets of the UEA archive, and the random removal of points that makes them irregular."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import blake2b
from math import floor

import numpy as np

from contiformer.data.catalog.registry import DATASETS, DatasetInfo, dataset_info
from contiformer.data.catalog.storage import require_file
from contiformer.data.collection import LazyItems
from contiformer.data.errors import DataError
from contiformer.data.readers.ts import read_ts
from contiformer.data.series import Series
from contiformer.data.series_set import SeriesSet

UEA_NAMES = tuple(info.name for info in DATASETS.values() if info.task == "classification")


def load_uea(name: str, split: str = "train") -> SeriesSet:
    """The ``train`` or ``test`` part of the official split, labels as they stand in the archive.

    Times are the positions 0, 1, 2, ... unless the file has time stamps. Each series is named by its split and its
    position in the file, as in ``test/17``, so that :func:`drop_points` drops the same points for every model, and
    others in train than in test.
    """
    info = dataset_info(name, "classification")
    if split not in {"train", "test"}:
        raise DataError(f"{info.name} has no part {split!r}", remedy="the official split has 'train' and 'test'")
    return read_archive_part(info, split)


def read_archive_part(info: DatasetInfo, split: str) -> SeriesSet:
    """One ``.ts`` file of an archive, its series named by part and position."""
    path = require_file(info, f"{info.folder}/{info.name}_{split.upper()}.ts.gz")
    data = read_ts(path)
    named = [replace(series, id=f"{split}/{n}") for n, series in enumerate(data)]
    return SeriesSet(named, schema=data.schema, notes=data.notes)


def drop_points(data: SeriesSet, share: float, seed: int = 0) -> SeriesSet:
    """Remove ``floor(share * L)`` of the L points of each series, all channels of a point together.

    At least one point stays. The number is rounded down as in the code of the authors and of Neural CDE, whose protocol
    it is. Which ones go depends only on the seed and on the series' id (its position where it has none): every model
    sees the same points. Times of the points that stay are unchanged, and so are targets.

    The paper uses shares of 0.3, 0.5 and 0.7.

    Example:
        >>> from contiformer.data import Series, SeriesSet
        >>> from contiformer.data.catalog import drop_points
        >>> regular = SeriesSet([Series.of(range(10), range(10), id="a")])
        >>> len(drop_points(regular, 0.3)[0])
        7
    """
    if not 0 <= share < 1:
        raise DataError(f"a share of {share} cannot be dropped", remedy="pass 0 <= share < 1, for example 0.3")
    make = partial(_thinned, data, share, seed)
    lengths = np.array([_staying(int(n), share) for n in data.lengths], np.int64)
    kept = LazyItems(lengths, make, data.blocks) if data.lazy else [make(n) for n in range(len(data))]
    return SeriesSet(kept, schema=data.schema, notes=data.notes)


def _thinned(data: SeriesSet, share: float, seed: int, index: int) -> Series:
    series = data[index]
    draw = np.random.default_rng([seed, _key(index if series.id is None else series.id)])
    staying = draw.permutation(len(series))[: _staying(len(series), share)]
    return series.points(np.sort(staying))


def _staying(length: int, share: float) -> int:
    # 0.7 * 90 is 62.99999999999999 in floating point, of which the authors' code makes 62; 63 points are meant
    return max(length - floor(share * length + 1e-9), min(length, 1))


def _key(name: str | int) -> int:
    """A number for a name, the same in every process, unlike ``hash``."""
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest())
