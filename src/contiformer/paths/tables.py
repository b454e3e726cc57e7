"""Constant tables, and whether values can be looked at, for code that compilers and exporters trace."""

from __future__ import annotations

import numpy as np
import torch
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


def table(numbers: np.ndarray, like: Tensor) -> Tensor:
    """Numbers as a tensor with the dtype and device of ``like``, made there and not copied from a CPU."""
    return torch.tensor(numbers.tolist(), dtype=like.dtype, device=like.device)
