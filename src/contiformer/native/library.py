"""Finding and calling the compiled kernels."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_ABI = 2


@cache
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or None where there are none or they belong to another version."""
    if os.environ.get("CONTIFORMER_NATIVE", "1") == "0":
        return None
    for path in sorted(Path(__file__).parent.glob("_kernels*")):
        try:
            found = ctypes.CDLL(str(path))
            if found.contiformer_abi() == _ABI:
                return found
        except (OSError, AttributeError):
            continue
    return None


def usable(like: Tensor) -> bool:
    """Whether the kernels are there and made for this tensor: float32 on the CPU."""
    return like.dtype == torch.float32 and like.device.type == "cpu" and kernels() is not None


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="contiformer")


def threads_for(items: int, per_thread: int) -> int:
    """How many of torch's threads are worth waking for so many items."""
    return max(1, min(torch.get_num_threads(), items // per_thread))


def share_out(call: Callable[..., int | None], arguments: Sequence[tuple[object, ...]], items: int) -> None:
    """Divide the items into one contiguous range for each tuple of arguments, and call them at once.

    The kernels release Python's lock while they run. They return non-zero when they got no working memory.
    """
    share = -(-items // len(arguments))
    calls = [
        (*some, ctypes.c_long(n * share), ctypes.c_long(min((n + 1) * share, items)))
        for n, some in enumerate(arguments)
    ]
    others = [_pool(len(calls) - 1).submit(call, *some) for some in calls[1:]]
    results = [call(*calls[0]), *(other.result() for other in others)]
    if any(results):
        raise MemoryError("a compiled kernel could not get its working memory")
