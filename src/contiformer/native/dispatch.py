"""Conditions under which a kernel or handwritten derivatives may replace operations of PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_modules

from contiformer.native.library import made_for

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{kind}" for kind in _HOOKS)


def unhooked(*modules: nn.Module) -> bool:
    """Whether these modules have no hooks and the forward methods of their classes."""
    everywhere = vars(torch_modules)
    for kind in _GLOBAL_HOOKS:
        if everywhere[kind]:
            return False
    for module in modules:
        own = module.__dict__
        if "forward" in own or any(map(own.get, _HOOKS)):
            return False
    return True


def actual(*tensors: Tensor) -> bool:
    """Whether these are plain tensors, of which only first derivatives in reverse mode can be asked.

    Neither is so where PyTorch traces what is done, for a compiler, an export or ``torch.func``.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active():
        return False
    if torch._C._len_torch_dispatch_stack() > 0 or forward_ad._current_level >= 0:
        return False
    return all(type(tensor) in (Tensor, nn.Parameter) and not tensor.is_meta for tensor in tensors)


def usable(*tensors: Tensor) -> bool:
    """Whether a kernel takes these: kernels are on, and these are actual numbers in float32 on the CPU."""
    return actual(*tensors) and made_for(*tensors)
