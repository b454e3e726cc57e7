"""Operations of matrix products: how many a pass needs, and how many a second this machine does."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from contiformer.benchmarks.timing import timed

#: Products and the place of their first factor among the arguments.
FIRST_FACTOR = {"mm": 0, "bmm": 0, "mv": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}


class ProductCounter(TorchDispatchMode):
    """While this lasts, counts the additions and multiplications of all matrix products, in place or not."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and do what was asked."""
        first = FIRST_FACTOR.get(func._overloadpacket.__name__.removesuffix("_"))
        if first is not None:
            a, b = args[first], args[first + 1]
            self.operations += 2 * a.numel() * (b.shape[-1] if b.dim() > 1 else 1)
        return func(*args, **(kwargs or {}))


def matmul_gflops(size: int = 1024, repeats: int = 10) -> float:
    """The most that this machine does in products of float32 matrices, in 10^9 operations a second."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    fastest = min(timed(lambda: a @ b) for _ in range(repeats))
    return 2 * size**3 / fastest / 1e9
