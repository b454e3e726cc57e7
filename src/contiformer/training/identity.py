"""What makes two trainings the same: options, data, and the shape of the model."""

from __future__ import annotations

import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from contiformer.data.events import EventSet
from contiformer.data.series_set import SeriesSet
from contiformer.training.options import TrainingOptions

if TYPE_CHECKING:
    from contiformer.tasks.base import Task

#: Options that say where and how loudly, not what.
_ELSEWHERE = {"accelerator", "devices", "num_nodes", "precision", "num_workers", "verbose"}


def identity_of(
    options: TrainingOptions, training: SeriesSet | EventSet, validation: SeriesSet | EventSet, task: Task
) -> dict[str, Any]:
    """Numbers and words that are equal for equal trainings."""
    shapes = ";".join(f"{name}{tuple(p.shape)}" for name, p in task.named_parameters())
    return {
        "options": {name: value for name, value in asdict(options).items() if name not in _ELSEWHERE},
        "training data": _checksum(training),
        "validation data": _checksum(validation),
        "model": f"{type(task).__name__} {zlib.crc32(shapes.encode()):08x}",
    }


def _checksum(data: SeriesSet | EventSet) -> str:
    """Over everything in memory; a set that is not is known by its sizes."""
    total = zlib.crc32(data.lengths.tobytes())
    if not data.lazy:
        for item in data:
            for array in vars(item).values():
                if isinstance(array, np.ndarray):
                    total = zlib.crc32(array.tobytes(), total)
            total = zlib.crc32(repr(item.label).encode(), total)
    return f"{total:08x}"
