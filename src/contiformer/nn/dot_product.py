"""The attention of Vaswani et al. on a CPU, where PyTorch is slow at two things."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from contiformer.native.dispatch import usable
from contiformer.native.rivals.dot_product import attention_with_dropout, fits
from contiformer.nn.dropout import drop


def dot_product_attention(
    queries: Float[Tensor, "*batch tokens part"],
    keys: Float[Tensor, "*batch others part"],
    values: Float[Tensor, "*batch others width"],
    mask: Float[Tensor, "*#batch tokens others"] | Bool[Tensor, "*#batch tokens others"] | None = None,
    dropout: float = 0.0,
    *,
    causal: bool = False,
) -> Float[Tensor, "*batch tokens width"]:
    """``dropout(softmax(Q Kᵀ / √d_k + mask)) V``, what ``scaled_dot_product_attention`` gives.

    On a CPU that has no fast way where weights are dropped or the mask is learned: it makes the same products as here,
    draws more random numbers, and looks for rows that see nothing. Weights that are dropped without any mask are made
    by a compiled kernel, a few rows at a time. In less than single precision all is left to PyTorch.

    Args:
        queries, keys, values: of all heads.
        mask: a number to add, or True where a token may look. Every token must see something.
        dropout: share of the weights that are dropped; 0 when not training.
        causal: the n-th token sees the first n others. There is no mask then.

    Example:
        >>> import torch
        >>> from contiformer.nn.dot_product import dot_product_attention
        >>> x = torch.randn(2, 4, 5, 8)
        >>> dot_product_attention(x, x, x, dropout=0.1, causal=True).shape
        torch.Size([2, 4, 5, 8])
    """
    if causal and mask is not None:
        raise ValueError("mask must be None where causal is True: leave causal out, and put both into the mask")
    learned = mask is not None and mask.requires_grad
    single = queries.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    if queries.device.type != "cpu" or not single or not (dropout > 0 or learned):
        return scaled_dot_product_attention(queries, keys, values, mask, dropout, is_causal=causal)
    if mask is None and 0 < dropout < 1 and usable(queries, keys, values) and fits(queries, keys, values):
        return attention_with_dropout(queries, keys, values, dropout, causal=causal)
    if causal:
        mask = torch.ones(queries.shape[-2], keys.shape[-2], dtype=torch.bool, device=queries.device).tril()
    # half of the scale on either side, as PyTorch has it
    scale = queries.shape[-1] ** -0.25
    scores = (queries * scale) @ (keys * scale).mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return drop(scores.softmax(-1), dropout) @ values
