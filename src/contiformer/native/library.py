"""Finding and calling the compiled kernels."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from contiformer.native.sources import checksum

#: Floats in a vector of common.h. Widths are whole ones, or are padded to them.
LANES = 8


@cache
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or None where there are none or they were compiled from other sources."""
    if os.environ.get("CONTIFORMER_NATIVE", "1") == "0":
        return None
    others = []
    for path in sorted(Path(__file__).parent.glob("_kernels*")):
        try:
            found = ctypes.CDLL(str(path))
        except OSError:  # of another system
            continue
        if _checksum_of(found) == checksum():
            return found
        others.append(path.name)
    if others:
        warnings.warn(
            f"{', '.join(others)} is not used, because the C sources beside it have changed since it was compiled: "
            "install contiformer again (in a clone: make install)",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def _checksum_of(library: ctypes.CDLL) -> int | None:
    """That of the sources it was compiled from, None for a library from before there were checksums."""
    try:
        function = library.contiformer_checksum
    except AttributeError:
        return None
    function.restype = ctypes.c_uint
    return function()


def made_for(like: Tensor) -> bool:
    """Whether the kernels are there and made for this tensor: float32 on the CPU."""
    return like.dtype == torch.float32 and like.device.type == "cpu" and kernels() is not None


@cache
def _parallel() -> ctypes.c_void_p:
    """Entry of the OpenMP runtime that PyTorch has loaded, or null where that is not GNU's.

    Its own threads, since two runtimes fight for the cores: those of PyTorch spin while they wait for work.
    """
    for path in Path(torch.__file__).parent.glob("lib/libgomp*.so*"):
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p)
        except (OSError, AttributeError):
            continue
    return ctypes.c_void_p(None)


def threads_for(items: int, per_thread: int) -> int:
    """How many of torch's threads are worth waking for so many items."""
    return max(1, min(torch.get_num_threads(), items // per_thread))


def share_out(name: str, works: Sequence[ctypes.Structure], items: int) -> None:
    """Divide the items into one contiguous range for each struct, and call the kernel ``name`` on all of them at once.

    The kernels release Python's lock while they run. They return non-zero when they got no working memory.
    """
    compiled = kernels()
    assert compiled is not None
    pointers = (ctypes.c_void_p * len(works))(*(ctypes.addressof(work) for work in works))
    kernel = ctypes.cast(getattr(compiled, name), ctypes.c_void_p)
    if compiled.share_out(kernel, pointers, ctypes.c_long(len(works)), ctypes.c_long(items), _parallel()):
        raise MemoryError("a compiled kernel could not get its working memory")
