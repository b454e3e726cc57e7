"""Attention with dropout of its weights in C."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only
from contiformer.native.library import share_out, threads_for
from contiformer.native.sources import Struct, struct_of

#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**18
#: Random bits that decide whether a weight is dropped.
_BITS = 31


def _look_at(struct: Struct, **tensors: Tensor) -> None:
    """Set pointers and layouts of tensors [batch, heads, rows, part] whose rows are contiguous."""
    struct.point_to(**tensors)
    for name, tensor in tensors.items():
        setattr(struct, f"{name}_layout", tensor.stride()[:3])


def _run(name: str, struct: Struct, items: int) -> None:
    """Call the kernel for all ``items = batch * heads``."""
    threads = threads_for(items * struct.rows * struct.others * struct.part, _WORK_PER_THREAD)
    share_out(name, [struct] * max(1, min(items, threads)), items)


def fits(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether these have the shapes of :func:`attention_with_dropout`, and something in them."""
    batch, heads, _, part = queries.shape if queries.ndim == 4 else (0, 0, 0, 0)
    same = keys.ndim == 4 and keys.shape == values.shape == (batch, heads, keys.shape[2], part)
    return same and queries.numel() > 0 and keys.numel() > 0


def attention_with_dropout(
    queries: Float[Tensor, "batch heads rows part"],
    keys: Float[Tensor, "batch heads others part"],
    values: Float[Tensor, "batch heads others part"],
    dropout: float,
    *,
    causal: bool,
) -> Float[Tensor, "batch heads rows part"]:
    """``dropout(softmax(Q Kᵀ / √d_k)) V``; one number is drawn from PyTorch's generator, and all else follows from it.

    The tensors must be :func:`~contiformer.native.dispatch.usable`, and :func:`fits` be true.
    """
    seed = int(torch.randint(2**62, (), device="cpu"))
    return _WithDropout.apply(queries, keys, values, dropout, causal, seed)


class _WithDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, dropout: float, causal: bool, seed: int
    ) -> Tensor:
        queries, keys, values = map(_with_whole_rows, (queries, keys, values))
        batch, heads, rows, part = queries.shape
        dropped = min(round(dropout * 2**_BITS), 2**_BITS - 1)
        ctx.numbers = {
            **{"heads": heads, "rows": rows, "others": keys.shape[2], "part": part, "causal": int(causal)},
            **{"dropped": dropped, "factor": 1 / (1 - dropped / 2**_BITS), "scale": part**-0.5, "seed": seed},
        }
        out, norms = _empty(queries), queries.new_empty(batch * heads, rows, 2)
        work = struct_of("rivals/dot_product.c", "Attention")(**ctx.numbers)
        _look_at(work, query=queries, key=keys, value=values)
        work.point_to(out=out, norms=norms)
        _run("dot_product_forward", work, batch * heads)
        ctx.save_for_backward(queries, keys, values, norms)
        return out

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        *given, norms = ctx.saved_tensors
        # hooks on saved tensors may have laid them out anew
        queries, keys, values, g = map(_with_whole_rows, (*given, g))
        norms = norms.contiguous()
        g_queries, g_keys, g_values = _empty(queries), _empty(keys), _empty(keys)
        work = struct_of("rivals/dot_product.c", "Attention")(**ctx.numbers)
        _look_at(work, query=queries, key=keys, value=values, g=g)
        work.point_to(norms=norms, g_query=g_queries, g_key=g_keys, g_value=g_values)
        _run("dot_product_backward", work, len(norms))
        return g_queries, g_keys, g_values, None, None, None


def _with_whole_rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _empty(like: Tensor) -> Tensor:
    """An empty tensor of this shape, heads side by side in memory, as the next layer takes them."""
    _, heads, rows, part = like.shape
    return like.new_empty_strided(like.shape, (rows * heads * part, part, heads * part, 1))
