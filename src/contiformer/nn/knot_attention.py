"""Softmax attention at the knots, block by block, with a backward pass written by hand.

For block J of queries and all keys i, the score is ``(carry_{i,J} + series_i · moments_j) / |t_j - t_i|``, where the
carry is the integral from the key to the near edge of the block and the moments run from there to the query; within
the block the integrals are given. One block of scores lives at a time; the weights are kept for the backward pass
while they are small, and computed again there when they are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contiformer.native import made_for
from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.gap_softmax import gap_softmax
from contiformer.native.sources import Struct, struct_of
from contiformer.nn import scratch
from contiformer.nn.dropout import kept

_Parts = tuple[Tensor, ...]


@dataclass(frozen=True)
class KnotProblem:
    """What the scores depend on besides the learned part: times [B, L], who is valid, and the options."""

    time: Float[Tensor, "batch points"]
    valid: Bool[Tensor, "batch points"] | None
    size: int
    scale: float
    causal: bool
    dropout: float
    seed: int
    keep_weights: bool

    def blocks(self) -> list[tuple[int, slice, slice]]:
        """(number, rows, keys after the block) of each block; a causal block has none after it."""
        length = self.time.shape[1]
        result = []
        for number, start in enumerate(range(0, length, self.size)):
            stop = min(start + self.size, length)
            result.append((number, slice(start, stop), slice(stop, stop if self.causal else length)))
        return result

    def factor(self, rows: slice, keys: int, like: Tensor) -> Float[Tensor, "batch rows keys"]:
        """``scale / |t_j - t_i|``, and ``scale`` on the diagonal, where the product itself stands for the mean."""
        shape = (self.time.shape[0], rows.stop - rows.start, keys)
        gap = torch.sub(self.time[:, rows, None], self.time[:, None, :keys], out=scratch.take(self.time, *shape))
        # the difference in the precision of the times, the rest in that of the scores
        factor = scratch.take(like, *shape).copy_(gap)
        scratch.give(gap)
        factor.abs_().clamp_(min=torch.finfo(factor.dtype).tiny).reciprocal_().mul_(self.scale)
        factor[:, :, rows].diagonal(dim1=1, dim2=2).fill_(self.scale)
        return factor

    def forbidden(self, rows: slice, keys: int) -> Bool[Tensor, "*batch rows {keys}"] | None:
        """Mask of the pairs that must not see each other, broadcastable to [B, H, rows, keys]."""
        mask = None if self.valid is None else ~self.valid[:, None, None, :keys]
        if self.causal:
            later = torch.ones(rows.stop - rows.start, keys, dtype=torch.bool, device=self.time.device).triu(
                rows.start + 1
            )
            mask = later if mask is None else mask | later
        return mask

    def described(self, block: tuple[int, slice, slice], blocks: int, heads: int) -> Struct:
        """The same for the compiled kernel."""
        number, rows, beyond = block
        sizes = (self.time.shape[1], blocks, self.size, number, rows.start, rows.stop - rows.start, beyond.stop)
        struct = struct_of("gap_softmax.c", "Softmax")(heads, *sizes, int(self.causal), self.scale)
        struct.point_to(time=self.time, valid=self.valid)
        return struct

    def kept(self, number: int, like: Tensor) -> Tensor:
        """Dropout's mask over the weights of a block, divided by what is kept: the same whenever it is asked for."""
        return kept(like, self.dropout, torch.Generator(like.device).manual_seed(self.seed + number))


def _products(block: tuple[int, slice, slice], parts: _Parts) -> tuple[Tensor, Tensor]:
    """``moments_j · series_i`` [B H, rows, keys] for the keys before and after the block, in buffers of the pool."""
    number, rows, beyond = block
    count = rows.stop - rows.start
    series, before, after = parts[:3]
    products = []
    # contiguous each: a product into a part of a larger tensor is done batch item by batch item
    for part, moments in ((slice(0, rows.start), before), (beyond, after)):
        product = scratch.take(series, series.shape[0], count, part.stop - part.start)
        if part.start < part.stop:
            torch.bmm(moments[:, number, :count], series[:, part].mT, out=product)
        products.append(product)
    return products[0], products[1]


def _weights(problem: KnotProblem, block: tuple[int, slice, slice], heads: int, parts: _Parts) -> Tensor:
    """Softmax of the scores, in a buffer of the pool."""
    number, rows, beyond = block
    count, keys = rows.stop - rows.start, beyond.stop
    series, _, _, within, left, right = parts
    before, after = _products(block, parts)
    sums = scratch.take(series, series.shape[0], count, keys)
    if made_for(sums):
        struct = problem.described(block, within.shape[1], heads)
        struct.point_to(before=before, after=after, left=left, right=right, within=within, weights=sums)
        gap_softmax("softmax_forward", struct, sums.shape[0])
        scratch.give(before, after)
        return sums
    sums[:, :, rows] = within[:, number, :count, :count].mT
    if within.shape[1] > 1:
        torch.add(before, left[:, number, None, : rows.start], out=sums[:, :, : rows.start])
        torch.add(after, right[:, number, None, beyond], out=sums[:, :, beyond])
    factor = problem.factor(rows, keys, sums)
    by_head = sums.unflatten(0, (-1, heads))
    by_head.mul_(factor.unsqueeze(1))
    forbidden = problem.forbidden(rows, keys)
    if forbidden is not None:
        by_head.masked_fill_(forbidden, torch.finfo(sums.dtype).min)
    weights = torch.softmax(sums, -1, out=scratch.take(sums, *sums.shape))
    scratch.give(before, after, sums, factor)
    if problem.valid is not None:
        # a row that may attend to nothing gets weights of zero, not a uniform share of what it must not see
        weights.unflatten(0, (-1, heads)).masked_fill_(forbidden, 0.0)
    return weights


def _through_softmax(
    problem: KnotProblem,
    block: tuple[int, slice, slice],
    heads: int,
    weights: Tensor,
    g: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Turn the gradient of the weights into that of the sums, in place; write those of carries and ``within``.

    The derivative of a softmax is ``weights * (g - Σ weights * g)``.
    """
    number, rows, beyond = block
    g_left, g_right, g_within = gradients
    if made_for(g):
        struct = problem.described(block, g_within.shape[1], heads)
        struct.point_to(weights=weights, g=g, g_left=g_left, g_right=g_right, g_within=g_within)
        gap_softmax("softmax_backward", struct, g.shape[0])
        return
    factor = problem.factor(rows, g.shape[-1], g)
    g.sub_(torch.linalg.vecdot(weights, g).unsqueeze(-1)).mul_(weights)
    g.unflatten(0, (-1, heads)).mul_(factor.unsqueeze(1))
    scratch.give(factor)
    count = rows.stop - rows.start
    g_within[:, number, :count, :count] = g[:, :, rows].mT
    if g_within.shape[1] > 1:
        torch.sum(g[:, :, : rows.start], 1, out=g_left[:, number, : rows.start])
        torch.sum(g[:, :, beyond], 1, out=g_right[:, number, beyond])


class _KnotAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        series: Tensor,
        before: Tensor,
        after: Tensor,
        within: Tensor,
        left: Tensor,
        right: Tensor,
        values: Tensor,
        problem: KnotProblem,
        heads: int,
    ) -> Tensor:
        parts = (series, before, after, within, left, right)
        mixed = torch.empty_like(values)
        keep = problem.keep_weights and any(ctx.needs_input_grad)
        kept = []
        for block in problem.blocks():
            number, rows, beyond = block
            weights = _weights(problem, block, heads, parts)
            used = weights * problem.kept(number, weights) if problem.dropout > 0 else weights
            if problem.size >= values.shape[1]:
                torch.bmm(used, values, out=mixed)
            else:
                mixed[:, rows] = used @ values[:, : beyond.stop]
            if keep:
                kept.append(weights)
            else:
                scratch.give(weights)
        ctx.problem, ctx.heads, ctx.weights = problem, heads, kept
        ctx.save_for_backward(*parts, values)
        return mixed

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_mixed: Tensor) -> tuple[Tensor | None, ...]:
        *parts, values = saved(ctx)
        series, before, after, within, left, right = parts
        problem, heads, kept = ctx.problem, ctx.heads, ctx.weights
        ctx.weights = []
        g_mixed = g_mixed.contiguous()
        # a single block has no keys before and after it: nothing reads the series, and all values are summed at once
        single = problem.size >= values.shape[1]
        g_series = None if single else torch.zeros_like(series)
        g_values = torch.empty_like(values) if single else torch.zeros_like(values)
        g_before, g_after, g_within = torch.zeros_like(before), torch.zeros_like(after), torch.zeros_like(within)
        # the kernel writes all of these
        fresh = torch.empty_like if made_for(series) else torch.zeros_like
        g_left, g_right = fresh(left), fresh(right)
        for block in problem.blocks():
            number, rows, beyond = block
            count, keys = rows.stop - rows.start, beyond.stop
            weights = kept[number] if kept else _weights(problem, block, heads, tuple(parts))
            g = scratch.take(series, *weights.shape)
            torch.bmm(g_mixed[:, rows], values[:, :keys].mT, out=g)
            used = weights
            if problem.dropout > 0:
                mask = problem.kept(number, weights)
                g.mul_(mask)
                used = weights * mask
            if single:
                torch.bmm(used.mT, g_mixed, out=g_values)
            else:
                g_values[:, :keys].baddbmm_(used.mT, g_mixed[:, rows])
            _through_softmax(problem, block, heads, weights, g, (g_left, g_right, g_within))
            for part, moments, g_moments in ((slice(0, rows.start), before, g_before), (beyond, after, g_after)):
                if g_series is not None and part.start < part.stop:
                    here = g[:, :, part]
                    torch.bmm(here, series[:, part], out=g_moments[:, number, :count])
                    g_series[:, part].baddbmm_(here.mT, moments[:, number, :count])
            scratch.give(weights, g)
        return g_series, g_before, g_after, g_within, g_left, g_right, g_values, None, None


def knot_attention(
    parts: tuple[Tensor, ...], values: Float[Tensor, "bh points v"], problem: KnotProblem, heads: int
) -> Float[Tensor, "bh points v"]:
    """``softmax(scores) @ values`` for every point as a query, with the scores described above.

    Shapes of the parts, with nb blocks of b points: series [BH, L, k], moments before and after [BH, nb, b, k],
    integrals within a block [BH, nb, b, b], carries from left and right [BH, nb, L] (or [BH, 1, 0] for one block).
    """
    series, before, after, *rest = parts
    return _KnotAttention.apply(series, before, after, *map(Tensor.contiguous, rest), values, problem, heads)
