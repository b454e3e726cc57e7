"""What the catalogue knows about a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Source:
    """One file on its original host.

    Attributes:
        url: where it is.
        target: where it goes below the data folder: a file, or the folder an archive is unpacked to.
        sha256: of the file behind the url, None where nobody has told us: then the first download is recorded in a
            ``.sha256`` file beside it, and later ones are held against that.
        members: patterns of the members of an archive that are wanted; empty for a file that is none.
    """

    url: str
    target: str
    sha256: str | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Form:
    """One of the ways in which a set can lie on disk: all of these files, each as it is or gzipped.

    ``complete`` is False for a copy from which a part of the data is missing.
    """

    files: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True)
class DatasetInfo:
    """One entry of the catalogue.

    Attributes:
        name: as the loaders take it.
        task: classification, events, forecasting or clinical.
        sizes: what there is to count, in words or numbers.
        licence: what is known about the terms.
        folder: where it lies below the data folder; empty for data that are generated.
        forms: how it can lie there, the preferred one first.
        sources: the files on the original hosts.
        note: what to know before use.
        by_hand: how to get it where there is no direct download.
        loader: ``module:function``, imported when it is used.
        options: arguments of the loader for a first look at the data.
    """

    name: str
    task: str
    sizes: Mapping[str, int | str]
    licence: str
    folder: str
    forms: tuple[Form, ...]
    loader: str
    sources: tuple[Source, ...] = ()
    note: str = ""
    by_hand: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, **options: Any) -> Any:
        """The data; the options are those of the loader."""
        module, function = self.loader.split(":")
        return getattr(import_module(module), function)(self.name, **{**self.options, **options})

    def sizes_text(self) -> str:
        """As in ``train 275, test 300, length 144``."""
        return ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in self.sizes.items()
        )
