"""Outward sums and the softmax at the knots in C."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only
from contiformer.native.library import Struct, share_out, threads_for

#: Fewer elements than this are not worth a second thread.
_ELEMENTS_PER_THREAD = 2**13


class _OutwardStruct(ctypes.Structure):
    """The struct of gap_softmax.c."""

    _fields_ = (("size", ctypes.c_long), ("source", ctypes.c_void_p), ("target", ctypes.c_void_p))


class _Outward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, each: Tensor) -> Tensor:
        each = each.contiguous()
        sums = each.new_empty(*each.shape[:-1], each.shape[-1] + 1)
        _outward("outward_forward", each, sums, each.shape[-1])
        return sums

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_sums: Tensor) -> Tensor:
        g_sums = g_sums.contiguous()
        g_each = g_sums.new_empty(*g_sums.shape[:-1], g_sums.shape[-1] - 1)
        _outward("outward_backward", g_sums, g_each, g_each.shape[-1])
        return g_each


def _outward(name: str, source: Tensor, target: Tensor, size: int) -> None:
    blocks = source.numel() // max(1, source.shape[-1] * source.shape[-2])
    struct = _OutwardStruct(size, source.data_ptr(), target.data_ptr())
    share_out(name, [struct] * threads_for(source.numel(), _ELEMENTS_PER_THREAD), blocks)


def outward_sums(each: Tensor) -> Tensor:
    """[..., b, b] -> [..., b, b + 1], see ``contiformer.nn.score_integrals``."""
    return _Outward.apply(each)


class GapSoftmax(Struct):
    """The struct of gap_softmax.c: rows of sums that are to be divided by differences of times before the softmax."""

    _fields_ = (
        *((n, ctypes.c_long) for n in ("heads", "length", "blocks", "size", "block", "first", "rows", "keys")),
        ("causal", ctypes.c_int),
        ("scale", ctypes.c_float),
        *((n, ctypes.c_void_p) for n in ("time", "valid", "before", "after", "left", "right", "within")),
        *((n, ctypes.c_void_p) for n in ("weights", "g", "g_left", "g_right", "g_within")),
    )


def gap_softmax(name: str, struct: GapSoftmax, items: int) -> None:
    """Call ``softmax_forward`` or ``softmax_backward`` for all ``items = batch * heads``."""
    work = items * struct.rows * struct.keys
    threads = max(1, min(items, threads_for(work, _ELEMENTS_PER_THREAD)))
    share_out(name, [struct] * threads, items)
