"""Checkpoints: files without pickle, the fingerprint of a run, and epochs that resume exactly.

A file holds nested dictionaries, lists, numbers and tensors as safetensors.
Tensors are stored as they are; everything around them is JSON in the file's metadata, with a checksum over both. A
damaged file is refused.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.plugins import CheckpointIO
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet
from contiformer.data.files import write_atomically
from contiformer.data.loader import Loader
from contiformer.data.series_set import SeriesSet
from contiformer.tasks.base import Task
from contiformer.training.options import RUNTIME_OPTIONS, TrainingOptions

#: Items of a set outside the memory whose contents enter the checksum.
SAMPLED = 256
#: A round is an epoch, but has no more steps than this, so that little is lost when the process dies.
LONGEST_ROUND = 500
_FORMAT = "2"
_TENSOR, _PAIRS, _TUPLE = "tensor", "pairs", "tuple"


class DamagedError(ValueError):
    """A checkpoint that was cut off or changed."""


def write_checkpoint(path: str | Path, tree: Any) -> None:
    """Write atomically: a reader sees the old file or the new one, whatever happens in between.

    ``tree``: dictionaries with keys of words or whole numbers, lists, tuples, tensors, numbers, words, None.
    """
    path = Path(path)
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_to_json(tree, tensors))
    metadata = {"format": _FORMAT, "tree": text, "checksum": _checksum(text, tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with write_atomically(path) as partial:
            save_file(tensors, partial, metadata=metadata)
    except (SafetensorError, OSError) as error:
        # the first is what the library makes of a full disk
        raise OSError(f"{path} could not be written ({error}): check rights and space") from error


def read_checkpoint(path: str | Path) -> Any:
    """Back from :func:`write_checkpoint`; a DamagedError where it was cut off or changed. Nothing in it is executed."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedError(f"{path} is damaged ({error})") from None
    if metadata.get("format") != _FORMAT:
        raise DamagedError(f"{path} is no checkpoint of this format")
    text = metadata.get("tree", "")
    if metadata.get("checksum") != _checksum(text, tensors):
        raise DamagedError(f"{path} is damaged (its checksum does not fit)")
    return _from_json(json.loads(text), tensors)


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), total)
        total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def _to_json(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        name = f"{len(tensors):06d}"
        # a copy: the file format refuses tensors that share memory
        tensors[name] = tree.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: name}
    if isinstance(tree, Mapping):
        return {_PAIRS: [[_key(key), _to_json(value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, tuple):
        return {_TUPLE: [_to_json(item, tensors) for item in tree]}
    if isinstance(tree, list):
        return [_to_json(item, tensors) for item in tree]
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"a checkpoint holds tensors, numbers and words, not {type(tree).__name__}: {tree!r}")


def _key(key: Any) -> str | int:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return key
    raise TypeError(f"the keys of a checkpoint are words or whole numbers, not {key!r}")


def _from_json(data: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(data, list):
        return [_from_json(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    if _TENSOR in data:
        return tensors[data[_TENSOR]]
    if _TUPLE in data:
        return tuple(_from_json(item, tensors) for item in data[_TUPLE])
    return {key: _from_json(value, tensors) for key, value in data[_PAIRS]}


class SafetensorsIO(CheckpointIO):
    """Lightning's checkpoints in this format."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        write_checkpoint(path, checkpoint)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Read; tensors arrive on the CPU, and Lightning moves them."""
        tree: dict[str, Any] = read_checkpoint(path)
        return tree

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def _both(folder: Path) -> tuple[Path, Path]:
    return folder / "last.safetensors", folder / "previous.safetensors"


def find_checkpoint(folder: Path, fingerprint: dict[str, Any], messages: list[str]) -> tuple[Path | None, int]:
    """The newest readable checkpoint, and the number of rounds it has behind it.

    A damaged one is passed over with a message. Where all are, training starts anew: that costs time, but the result
    is the same. A checkpoint of another training is refused.
    """
    damaged = False
    for path in _both(folder):
        try:
            saved = read_checkpoint(path)
        except FileNotFoundError:
            continue
        except DamagedError as error:
            damaged = True
            messages.append(str(error))
            continue
        if damaged:
            messages.append(f"the checkpoint before it is used instead: {path}")
        states = _callback_states(saved)
        other = differences(states["Checkpoints"]["fingerprint"], fingerprint)
        if other:
            raise DataError(
                f"the run in {folder.parent} is another one: it has {', '.join(other)}",
                remedy="resume with the same data and options, or choose another folder",
            )
        return path, len(states["History"]["rows"])
    if damaged:
        messages.append("no other checkpoint is left: the training starts anew")
    return None, 0


def saved_history(folder: Path) -> list[dict[str, float]]:
    """The rows of ``history.csv`` from the newest readable checkpoint in the folder; empty where there is none."""
    for path in _both(folder):
        with suppress(FileNotFoundError, DamagedError):
            rows: list[dict[str, float]] = _callback_states(read_checkpoint(path))["History"]["rows"]
            return rows
    return []


def _callback_states(saved: dict[str, Any]) -> dict[str, Any]:
    return {key.split("{")[0]: state for key, state in saved["callbacks"].items()}


def fingerprint_of(
    options: TrainingOptions, training: SeriesSet | EventSet, validation: SeriesSet | EventSet, task: Task
) -> dict[str, Any]:
    """Options, data and model of a training, by name: equal for equal trainings."""
    shapes = ";".join(f"{name}{tuple(p.shape)}" for name, p in task.named_parameters())
    settings = {name: value for name, value in asdict(options).items() if name not in RUNTIME_OPTIONS}
    return {
        **settings,
        "training data": _data_checksum(training),
        "validation data": _data_checksum(validation),
        "task": type(task).__name__,
        "model": f"{zlib.crc32(shapes.encode()):08x}",
        **_settings(task),
    }


def differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The entries that differ, in words; of a checksum only its name."""
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
            if name.startswith("_") or name == "training":
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


def _data_checksum(data: SeriesSet | EventSet) -> str:
    """Over everything in memory; of a set that is not, over its sizes and some of its items, evenly spaced."""
    total = zlib.crc32(data.lengths.tobytes())
    some = np.unique(np.linspace(0, len(data) - 1, SAMPLED).astype(int)) if data.lazy else np.arange(len(data))
    for n in some:
        item = data[int(n)]
        for array in vars(item).values():
            if isinstance(array, np.ndarray):
                total = zlib.crc32(array.tobytes(), total)
        weight = getattr(item, "weight", None)
        total = zlib.crc32(repr(item.label if weight is None else (item.label, weight)).encode(), total)
    return f"{total:08x}"


class ResumableEpochs:
    """A loader as an endless stream, handed out in rounds of equally many steps.

    Iterating again goes on where the last round ended, also in another process that has loaded the state.
    """

    def __init__(self, loader: Loader, longest: int | None = None) -> None:
        self.loader = loader
        self.steps = min(len(loader), LONGEST_ROUND if longest is None else longest)
        self._stream: Iterator[Any] | None = None

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        if self._stream is None:
            self._stream = self._endless()
        for _ in range(self.steps):
            yield next(self._stream)

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    # not called state_dict: Lightning would take the state into its own hands, and does not give it back to a training
    # that goes on after a whole round

    def state(self) -> dict[str, Any]:
        """The position in the stream."""
        return self.loader.state_dict()

    def go_to(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.loader.load_state_dict(state)
        self._stream = None
