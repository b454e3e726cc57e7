"""Memory that is used again, for the large temporaries of the hand-written passes.

A fresh tensor of a megabyte costs more in page faults on a CPU than the arithmetic that fills it, and torch's CPU
allocator gives memory back to the system at once. Buffers given back here are handed out again instead.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from threading import Lock

import torch
from torch import Tensor

#: At most this many bytes wait for their next use; the oldest are dropped first.
LIMIT = 2**27

_waiting: OrderedDict[int, Tensor] = OrderedDict()
_lock = Lock()


def take(like: Tensor, *shape: int) -> Tensor:
    """An uninitialised tensor of the given shape, with the dtype and device of ``like``."""
    if like.device.type != "cpu":
        return like.new_empty(shape)
    size = math.prod(shape) * like.element_size()
    with _lock:
        fitting = [(b.numel(), key) for key, b in _waiting.items() if size <= b.numel() <= 2 * size]
        buffer = _waiting.pop(min(fitting)[1]) if fitting else None
    if buffer is None:
        buffer = torch.empty(size, dtype=torch.uint8, device="cpu")
    return buffer[:size].view(like.dtype).view(shape)


def give(*tensors: Tensor) -> None:
    """Hand back tensors that came from :func:`take` and that nobody reads any more."""
    for tensor in tensors:
        if tensor.device.type == "cpu":
            buffer = torch.empty(0, dtype=torch.uint8, device="cpu").set_(tensor.untyped_storage())
            with _lock:
                _waiting[buffer.data_ptr()] = buffer
                while sum(b.numel() for b in _waiting.values()) > LIMIT:
                    _waiting.popitem(last=False)
