"""What makes two trainings the same: options, data, and the model."""

from __future__ import annotations

import zlib
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet
from contiformer.training.options import TrainingOptions

if TYPE_CHECKING:
    from contiformer.tasks.base import Task

#: Options that say where and how loudly, not what.
ELSEWHERE = {"accelerator", "devices", "num_nodes", "precision", "num_workers", "verbose"}
#: What modules know that is no setting of the model.
_PASSING = {"training", "total_steps", "prepare_data_per_node", "allow_zero_length_dataloader_with_multiple_devices"}

#: Items of a set outside the memory that are looked at.
SAMPLED = 256


def identity_of(
    options: TrainingOptions, training: SeriesSet | EventSet, validation: SeriesSet | EventSet, task: Task
) -> dict[str, Any]:
    """Numbers and words that are equal for equal trainings, by their names."""
    shapes = ";".join(f"{name}{tuple(p.shape)}" for name, p in task.named_parameters())
    settings = {name: value for name, value in asdict(options).items() if name not in ELSEWHERE}
    return {
        **settings,
        "training data": _checksum(training),
        "validation data": _checksum(validation),
        "task": type(task).__name__,
        "model": f"{zlib.crc32(shapes.encode()):08x}",
        **_settings(task),
    }


def differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is not the same, in words; a checksum tells nothing, so only its name is given."""
    found = []
    for name in dict.fromkeys([*saved, *now]):
        before, after = saved.get(name), now.get(name)
        if before != after:
            bare = name == "model" or name.endswith(" data")
            found.append(f"other {name}" if bare else f"{name} {before!r} instead of {after!r}")
    return found


def _settings(task: Task) -> dict[str, Any]:
    """Plain public attributes of all modules, such as ``head.1.p`` of a dropout, also in dataclasses."""
    found: dict[str, Any] = {}

    def look(place: str, names: dict[str, Any]) -> None:
        for name, value in names.items():
            if name.startswith("_") or name in _PASSING or isinstance(value, TrainingOptions):
                continue
            where = f"{place}.{name}".lstrip(".")
            if is_dataclass(value):
                look(where, vars(value))
            elif _is_plain(value):
                found[where] = value

    for place, module in task.named_modules():
        look(place, vars(module))
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _checksum(data: SeriesSet | EventSet) -> str:
    """Over everything in memory; of a set that is not, over its sizes and some of its items, evenly spaced."""
    total = zlib.crc32(data.lengths.tobytes())
    some = np.unique(np.linspace(0, len(data) - 1, SAMPLED).astype(int)) if data.lazy else np.arange(len(data))
    for n in some:
        item = data[int(n)]
        for array in vars(item).values():
            if isinstance(array, np.ndarray):
                total = zlib.crc32(array.tobytes(), total)
        total = zlib.crc32(repr(item.label).encode(), total)
    return f"{total:08x}"
