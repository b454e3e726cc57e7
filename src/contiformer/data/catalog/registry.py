"""The catalogue: every data set the loaders know, by name, as ``datasets.toml`` lists them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from typing import Any

from contiformer.data.errors import DataError, did_you_mean

#: The function that loads the sets of each task, ``module:function``.
_LOADERS = {
    "classification": "contiformer.data.catalog.uea:load_uea",
    "irregular": "contiformer.data.catalog.irregular:load_irregular",
    "events": "contiformer.data.catalog.events:load_events",
    "forecasting": "contiformer.data.catalog.forecasting:load_forecasting",
    "clinical": "contiformer.data.catalog.clinical:load_clinical",
}


@dataclass(frozen=True)
class Source:
    """One file on its original host.

    Attributes:
        url: its address.
        target: its path below the data folder: a file, or the folder an archive is unpacked to.
        sha256: its checksum; where None, that of the first download is recorded in a ``.sha256`` file beside it.
        members: patterns of the wanted members of an archive; empty for a plain file.
    """

    url: str
    target: str
    sha256: str | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileForm:
    """One form of a set on disk: all of these files, gzipped or not; not ``complete`` where it lacks data."""

    files: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True)
class DatasetInfo:
    """One entry of the catalogue.

    Attributes:
        task: classification, irregular, events, forecasting or clinical.
        sizes: counts, in words or numbers.
        folder: its path below the data folder; empty for generated data.
        forms: the forms it can have there, the preferred one first.
        sources: the files on the original hosts.
        by_hand: how to get it where there is no direct download.
        loader: ``module:function``, imported when it is used.
        options: arguments of the loader for a first look at the data.

    Example:
        >>> from contiformer.data.catalog import dataset_info
        >>> info = dataset_info("libras")
        >>> info.name, info.task, info.sizes_text()
        ('Libras', 'classification', 'train 180, test 180, length 45, channels 2, classes 15')
    """

    name: str
    task: str
    sizes: Mapping[str, int | str]
    licence: str
    folder: str
    forms: tuple[FileForm, ...]
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


def _read() -> Iterator[DatasetInfo]:
    """The entries of ``datasets.toml``."""
    listed = tomllib.loads((files(__package__) / "datasets.toml").read_text(encoding="utf-8"))
    for name, sizes in listed["uea"].items():
        yield _archived("uea", "classification", name, sizes, listed["uea_notes"].get(name, ""))
    for name, sizes in listed["ucr"].items():
        yield _archived("irregular", "irregular", name, sizes, "")
    for task in ("irregular", "events", "forecasting", "clinical"):
        for entry in listed[task]:
            complete, partial = entry.pop("files", []), entry.pop("partial_files", [])
            forms = [FileForm(tuple(form)) for form in complete] + [FileForm(tuple(form), False) for form in partial]
            sources = [Source(**{**one, "members": tuple(one.get("members", ()))}) for one in entry.pop("sources", [])]
            options = entry.pop("options", {"split": "train"} if task == "events" else {})
            more = {"task": task, "loader": _LOADERS[task], "options": options}
            yield DatasetInfo(forms=tuple(forms), sources=tuple(sources), **more, **entry)


def _archived(root: str, task: str, name: str, sizes: list[int | str], note: str) -> DatasetInfo:
    """An entry of the UEA and UCR archives, in a folder below ``root``."""
    folder = f"{root}/{name}"
    address = f"https://www.timeseriesclassification.com/aeon-toolkit/{name}.zip"
    return DatasetInfo(
        name=name,
        task=task,
        sizes=dict(zip(("train", "test", "length", "channels", "classes"), sizes, strict=True)),
        licence="none stated; cite the UEA and UCR archive and the donors",
        folder=folder,
        forms=(FileForm((f"{folder}/{name}_TRAIN.ts.gz", f"{folder}/{name}_TEST.ts.gz")),),
        loader=_LOADERS[task],
        sources=(Source(address, folder, members=(f"*{name}_TRAIN.ts", f"*{name}_TEST.ts")),),
        note=note,
        options={"split": "train"},
    )


DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _read()}


def dataset_info(name: str, task: str | None = None) -> DatasetInfo:
    """The entry with this name, in capital or small letters; a DataError suggests the nearest name."""
    known = {info.name.lower(): info for info in DATASETS.values() if task in {None, info.task}}
    info = known.get(name.lower())
    if info is None:
        kind = "data set" if task is None else f"data set for {task}"
        names = [entry.name for entry in known.values()]
        close = next((n for n in names if n.lower().replace("-", "") == name.lower().replace("-", "")), name)
        raise DataError(f"there is no {kind} {name!r}", remedy=did_you_mean(close, names))
    return info
