"""Many small matrix products in C."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.dispatch import usable
from contiformer.native.library import share_out, threads_for
from contiformer.native.sources import struct_of

#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**16


def small_products(
    left: Float[Tensor, "batch items rows inner"], right: Float[Tensor, "batch heads items inner columns"]
) -> Float[Tensor, "batch heads items rows columns"]:
    """``left[:, None] @ right``, with gradients for the right only where the kernel does it."""
    batch, _, items, inner, _ = right.shape
    fits = left.shape[:2] == (batch, items) and left.shape[3] == inner
    if not fits or left.requires_grad or not usable(left, right):
        return left.unsqueeze(1) @ right
    return _SmallProducts.apply(left.contiguous(), right)


class _SmallProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left)
        return _multiply(left, right, transposed=False)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        (left,) = saved(ctx)
        return None, _multiply(left, gradient, transposed=True)


def _multiply(left: Tensor, right: Tensor, *, transposed: bool) -> Tensor:
    right = right.contiguous()
    batch, heads, items, inner, columns = right.shape
    rows = left.shape[3] if transposed else left.shape[2]
    out = right.new_empty(batch, heads, items, rows, columns)
    struct = struct_of("small_matmul.c", "Products")(heads, items, rows, inner, columns, int(transposed))
    struct.point_to(left=left, right=right, out=out)
    count = batch * heads * items
    share_out("small_products", [struct] * threads_for(count * rows * inner * columns, _WORK_PER_THREAD), count)
    return out
