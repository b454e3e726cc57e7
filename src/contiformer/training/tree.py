"""Nested dictionaries, lists, numbers and tensors in one safetensors file: a checkpoint without pickle.

Tensors are stored as they are; everything around them is JSON in the file's metadata, with a checksum over both. The
file is complete or it is refused.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

_FORMAT = "1"
_TENSOR, _PAIRS, _TUPLE = "tensor", "pairs", "tuple"


class DamagedError(ValueError):
    """The file is not what was written."""


def write_tree(path: str | Path, tree: Any) -> None:
    """Write atomically: a reader sees the old file or the new one, whatever happens in between.

    Args:
        path: of the file.
        tree: dictionaries with keys of words or whole numbers, lists, tuples, tensors, numbers, words, None.
    """
    path = Path(path)
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_to_json(tree, tensors))
    metadata = {"format": _FORMAT, "tree": text, "checksum": _checksum(text, tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        save_file(tensors, partial, metadata=metadata)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except (SafetensorError, OSError) as error:
        # the first is what the library makes of a full disk
        raise OSError(f"{path} could not be written ({error}): check rights and space") from error
    finally:
        partial.unlink(missing_ok=True)


def read_tree(path: str | Path) -> Any:
    """Back from :func:`write_tree`. Nothing in the file is executed.

    Raises:
        DamagedError: the file was cut off or changed.
    """
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
