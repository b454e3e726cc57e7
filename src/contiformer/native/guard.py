"""Whether a kernel may do what modules and tensors of PyTorch would do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contiformer.native.library import usable as kernels_usable


def unhooked(*modules: nn.Module) -> bool:
    """Whether nothing but what these modules do happens when they are called, so that the kernel may do it."""
    return not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in modules)


def usable(*tensors: Tensor) -> bool:
    """Whether the kernel takes these: float32 on the CPU, and real numbers behind them.

    There are none where PyTorch only traces what is done, for a compiler or for ``torch.func``.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return all(type(tensor) in (Tensor, nn.Parameter) and kernels_usable(tensor) for tensor in tensors)
