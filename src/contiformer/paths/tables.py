"""Constant tables, and whether values can be looked at, for code that compilers and exporters trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


def traced(*tensors: Tensor) -> bool:
    """Whether there are no values behind the tensors that a decision could depend on.

    So it is for a compiler, an exporter, ``torch.func.vmap`` and fake tensors.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    if torch._C._are_functorch_transforms_active():
        stack = torch._C._functorch.get_interpreter_stack() or []
        if any(level.key() == torch._C._functorch.TransformType.Vmap for level in stack):
            return True
    return any(tensor.is_meta for tensor in tensors)


def table(make: Callable[[int], ArrayLike], size: int, like: Tensor) -> Tensor:
    """The constant array ``make(size)`` as a tensor like another one, made on its device and not copied from a CPU.

    Example:
        >>> import torch
        >>> from contiformer.paths.quadrature import gauss_legendre
        >>> from contiformer.paths.tables import table
        >>> nodes, weights = table(gauss_legendre, 1, torch.zeros(()))
        >>> nodes.tolist(), weights.tolist()
        ([0.5], [1.0])
    """
    return torch.tensor(_numbers(make, size), dtype=like.dtype, device=like.device)


def _numbers(make: Callable[[int], ArrayLike], size: int) -> Any:
    return _cached_numbers(make, size)


@cache
def _cached_numbers(make: Callable[[int], ArrayLike], size: int) -> Any:
    """Nested tuples, which are constants for a compiler."""

    def frozen(numbers: Any) -> Any:
        return tuple(map(frozen, numbers)) if isinstance(numbers, list) else numbers

    return frozen(np.asarray(make(size)).tolist())


# torch.compiler.assume_constant_result, which imports the compiler
_numbers._dynamo_marked_constant = True  # type: ignore[attr-defined]
