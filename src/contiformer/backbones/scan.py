"""Linear recurrences in parallel."""

from __future__ import annotations

import torch
from torch import Tensor


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """``x_k = a_k x_{k-1} + b_k`` along dimension 1, from ``x_{-1} = 0``, in parallel.

    Neighbours are joined to steps of twice the length, whose states come from the same scan, and give those in between:
    log2 N levels, O(N) work.

    Example:
        >>> ones = torch.ones(1, 5, 1)
        >>> linear_scan(2 * ones, ones).flatten().tolist()
        [1.0, 3.0, 7.0, 15.0, 31.0]
    """
    n = a.shape[1]
    if n < 2:
        return b
    even_a, odd_a, even_b, odd_b = a[:, 0 : n - 1 : 2], a[:, 1::2], b[:, 0 : n - 1 : 2], b[:, 1::2]
    odd = linear_scan(odd_a * even_a, torch.addcmul(odd_b, odd_a, even_b))
    before = odd[:, : (n - 1) // 2]
    even = torch.cat([b[:, :1], torch.addcmul(b[:, 2::2], a[:, 2::2], before)], dim=1)
    paired = torch.stack([even[:, : n // 2], odd], dim=2).flatten(1, 2)
    return paired if n % 2 == 0 else torch.cat([paired, even[:, -1:]], dim=1)
