"""Outward sums and the softmax at the knots in C."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only
from contiformer.native.library import share_out, threads_for
from contiformer.native.sources import Struct, struct_of

#: Fewer elements than this are not worth a second thread.
_ELEMENTS_PER_THREAD = 2**13


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
    struct = struct_of("gap_softmax.c", "Outward")(size, source.data_ptr(), target.data_ptr())
    share_out(name, [struct] * threads_for(source.numel(), _ELEMENTS_PER_THREAD), blocks)


def outward_sums(each: Tensor) -> Tensor:
    """[..., b, b] -> [..., b, b + 1], see ``contiformer.nn.score_integrals``."""
    return _Outward.apply(each)


def gap_softmax(name: str, struct: Struct, items: int) -> None:
    """Call ``softmax_forward`` or ``softmax_backward`` for all ``items = batch * heads``."""
    work = items * struct.rows * struct.keys
    threads = max(1, min(items, threads_for(work, _ELEMENTS_PER_THREAD)))
    share_out(name, [struct] * threads, items)
