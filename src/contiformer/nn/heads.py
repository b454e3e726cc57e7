"""Vectors of all heads, side by side or apart."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def split_heads(x: Float[Tensor, "batch rows d"], n_heads: int) -> Float[Tensor, "batch heads rows part"]:
    """Each head's part of the vectors.

    Example:
        >>> import torch
        >>> from contiformer.nn.heads import split_heads
        >>> split_heads(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), 2).tolist()
        [[[[1.0, 2.0]], [[3.0, 4.0]]]]
    """
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch heads rows part"]) -> Float[Tensor, "batch rows d"]:
    """Back from :func:`split_heads`."""
    return x.transpose(1, 2).flatten(2)
