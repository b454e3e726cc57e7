"""Memory that is freed stays with the process: what a training step needs, the next one needs again."""

from __future__ import annotations

import ctypes
from functools import cache

#: Names of malloc.h, and bytes: what is freed below is kept; up to 32 MB, glibc's most, come from the kept memory.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
KEPT, LARGEST = 2**30, 2**25


@cache
def keep_freed_memory() -> bool:
    """Tell glibc not to hand memory back to the system after each step, once for the process.

    A page that comes back from the system is cleared and mapped again at its first use, which on a virtual machine took
    a sixth of a step of ContiFormer. Other systems' allocators are left as they are.

    Returns:
        Whether the allocator is one that was told.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, LARGEST))
