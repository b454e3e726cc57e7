"""Data folders: find data sets on disk and load them by name.

The folder in ``CONTIFORMER_DATA`` comes first, then the user's cache. Both have the same layout.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contiformer.data.catalog.registry import DatasetInfo, dataset_info
from contiformer.data.errors import DataError

if TYPE_CHECKING:
    from contiformer.data.events import EventSet
    from contiformer.data.series_set import SeriesSet

#: The environment variable that names the data folder.
ENVIRONMENT_VARIABLE = "CONTIFORMER_DATA"


def cache_folder() -> Path:
    """The user's cache: ``$XDG_CACHE_HOME/contiformer``, or what the platform uses."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given and Path(given).is_absolute():
        return Path(given) / "contiformer"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "contiformer" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "contiformer"
    return Path.home() / ".cache" / "contiformer"


def data_folders() -> list[Path]:
    """The folders that are searched, in this order."""
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    return ([Path(given).expanduser()] if given else []) + [cache_folder()]


def find_file(path: str, among: list[Path] | None = None) -> Path | None:
    """A file or folder of the layout, as it is named there or with or without ``.gz``; None where there is none."""
    other = path.removesuffix(".gz") if path.endswith(".gz") else f"{path}.gz"
    for root in data_folders() if among is None else among:
        for name in (path, other):
            if (root / name).exists():
                return root / name
    return None


def locate(name: str) -> Path | None:
    """The folder with the data set, or with the part of it that is there; None where there is none."""
    info = dataset_info(name)
    part: Path | None = None
    for root in data_folders():
        for form in info.forms:
            found = [find_file(path, [root]) for path in form.files]
            if all(found):
                return root / info.folder
            if any(found) and part is None:
                part = root / info.folder
    return part


def presence(info: DatasetInfo) -> str:
    """``yes``, ``part``, ``no``, or ``generated`` for data that need no file."""
    if not info.forms:
        return "generated"
    counts = [(sum(find_file(path) is not None for path in form.files), form) for form in info.forms]
    if any(count == len(form.files) and form.complete for count, form in counts):
        return "yes"
    return "part" if any(count for count, _ in counts) else "no"


def missing_data(info: DatasetInfo, *paths: str) -> DataError:
    """The error for files that are nowhere, with what to do about it."""
    places = data_folders()
    nowhere = f"not in {places[0]}" if len(places) == 1 else f"neither in {' nor in '.join(map(str, places))}"
    get_it = f"run `contiformer datasets download {info.name}`" if info.sources else info.by_hand
    return DataError(
        f"{info.name} is not here: {' or '.join(paths)} is {nowhere}",
        remedy=f"{get_it}, or set {ENVIRONMENT_VARIABLE} to a folder that has it",
    )


def require_file(info: DatasetInfo, *paths: str) -> Path:
    """The first of these files or folders that is there; each data folder is searched for all of them in turn."""
    for root in data_folders():
        for path in paths:
            found = find_file(path, [root])
            if found is not None:
                return found
    raise missing_data(info, *paths)


def load(name: str, *, download: bool = False, **options: Any) -> SeriesSet | EventSet:
    """Load a data set from ``CONTIFORMER_DATA``, the user's cache or, with ``download``, its original host.

    ``contiformer datasets`` lists the names; the options are those of the set's loader: ``split``, ``fold``, ...

    Example:
        >>> from contiformer.data import load
        >>> len(load("Synthetic", split="train", fold=1))
        338
    """
    info = dataset_info(name)
    if download and info.sources and presence(info) not in {"yes", "generated"}:
        from contiformer.data.catalog.download import fetch  # noqa: PLC0415 - pooch, only where it is needed

        fetch(info)
    data: SeriesSet | EventSet = info.load(**options)
    return data
