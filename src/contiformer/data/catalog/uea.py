"""The classification sets of the UEA archive that the paper uses."""

from __future__ import annotations

from dataclasses import replace

from contiformer.data.catalog import registry, store
from contiformer.data.errors import DataError
from contiformer.data.readers.ts import read_ts
from contiformer.data.series_set import SeriesSet

NAMES = tuple(info.name for info in registry.DATASETS.values() if info.task == "classification")


def load_uea(name: str, split: str = "train") -> SeriesSet:
    """One part of the official split, labels as they stand in the archive.

    Times are the positions 0, 1, 2, ... unless the file has time stamps. Each series is named by its split and its
    position in the file, as in ``test/17``, so that :func:`~contiformer.data.catalog.drop.drop_points` drops the same
    points for every model, and others in train than in test.

    Args:
        name: one of :data:`NAMES`.
        split: ``train`` or ``test``.

    Example:
        >>> load_uea("Libras", split="test")  # doctest: +SKIP
        SeriesSet(180 series, 2 channels)
    """
    info = registry.get(name, "classification")
    if split not in {"train", "test"}:
        raise DataError(f"{info.name} has no part {split!r}", remedy="the official split has 'train' and 'test'")
    path = store.require(info, f"{info.folder}/{info.name}_{split.upper()}.ts.gz")
    data = read_ts(path)
    named = [replace(series, id=f"{split}/{n}") for n, series in enumerate(data)]
    return SeriesSet(named, schema=data.schema, notes=data.notes)
