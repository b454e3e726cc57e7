"""Any data set of the catalogue by its name."""

from __future__ import annotations

from typing import Any

from contiformer.data.catalog import registry, store
from contiformer.data.catalog.fetch import fetch
from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet


def load(name: str, *, download: bool = False, **options: Any) -> SeriesSet | EventSet:
    """The data, from ``CONTIFORMER_DATA``, then from the user's cache, then, if wanted, from the original host.

    Args:
        name: as ``contiformer datasets`` lists it.
        download: get it where it is not here. Nothing is downloaded unasked.
        options: those of the set's loader: ``split``, ``fold``, ...

    Raises:
        DataError: for a name or data that are not there, with what to do.

    Example:
        >>> load("JapaneseVowels", split="train", download=True)  # doctest: +SKIP
        SeriesSet(270 series, 12 channels)
    """
    info = registry.get(name)
    if download and info.sources and store.presence(info) not in {"yes", "generated"}:
        fetch(info)
    data: SeriesSet | EventSet = info.load(**options)
    return data
