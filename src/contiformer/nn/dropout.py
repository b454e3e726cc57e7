"""Dropout from fewer random numbers: drawing them costs more than all that a small layer does with them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from contiformer.native.dispatch import actual

#: Bits per element. The share that is dropped is rounded to a multiple of 2^-BITS.
BITS = 16
_PER_DRAW = 64 // BITS


def kept(like: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """A factor for each element: zero with probability ``share``, else what keeps the mean.

    On a CPU PyTorch spends two 32-bit numbers of a serial generator on each element; here four elements share them.
    Other devices draw in parallel, and not all of them draw 64 bits.

    Example:
        >>> import torch
        >>> from contiformer.nn.dropout import kept
        >>> kept(torch.ones(1000), 0.25).unique().tolist()
        [0.0, 1.3333333730697632]
    """
    if like.device.type != "cpu":
        drawn = torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype)
        return (drawn >= share).to(like.dtype).div_(1 - share)
    dropped = round(share * 2**BITS)
    if dropped in (0, 2**BITS):
        return torch.full_like(like, 1.0 if dropped == 0 else 0.0)
    draws = torch.empty(-(-like.numel() // _PER_DRAW), dtype=torch.int64, device=like.device)
    # from the smallest number on, without an upper end: all 64 bits
    draws.random_(torch.iinfo(torch.int64).min, None, generator=generator)
    numbers = draws.view(torch.int16)[: like.numel()].view(like.shape)
    keep = torch.ge(
        numbers, dropped - 2 ** (BITS - 1), out=torch.empty_like(like, memory_format=torch.contiguous_format)
    )
    return keep.mul_(1 / (1 - dropped / 2**BITS))


def drop(x: Tensor, share: float) -> Tensor:
    """``torch.nn.functional.dropout`` while training, from fewer random numbers on a CPU (:func:`kept`)."""
    # compilers and torch.func cannot trace this; PyTorch's own can be, and refuses a share that is none
    if not 0 < share <= 1 or x.device.type != "cpu" or not actual(x):
        return dropout(x, share)
    return x * kept(x.detach(), share)


class Dropout(nn.Dropout):
    """``nn.Dropout`` by :func:`drop`."""

    def forward(self, input: Tensor) -> Tensor:
        """Zero a share of the elements while training."""
        if self.inplace:
            return dropout(input, self.p, self.training, inplace=True)
        return drop(input, self.p) if self.training else input
