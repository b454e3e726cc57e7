"""Softmax attention at the knots, block by block, with a backward pass written by hand.

For block J of queries and all keys i, the score is ``(carry_{i,J} + series_i · moments_j) / |t_j - t_i|``, where the carry is
the integral from the key to the near edge of the block and the moments run from there to the query; within the
block the integrals are given. One block of scores lives at a time; the weights are kept for the backward pass while
they are small, and computed again there when they are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable


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

    def factor(self, rows: slice, keys: int, dtype: torch.dtype) -> Float[Tensor, "batch 1 rows keys"]:
        """``scale / |t_j - t_i|``, and ``scale`` on the diagonal, where the product itself stands for the mean."""
        # the difference in the precision of the times, the rest in that of the scores
        gap = (self.time[:, rows, None] - self.time[:, None, :keys]).to(dtype)
        factor = gap.abs_().clamp_(min=torch.finfo(dtype).tiny).reciprocal_().mul_(self.scale)
        factor[:, :, rows].diagonal(dim1=1, dim2=2).fill_(self.scale)
        return factor.unsqueeze(1)

    def forbidden(self, rows: slice, keys: int) -> Bool[Tensor, "batch 1 rows keys"] | None:
        """Pairs that must not see each other."""
        mask = None if self.valid is None else ~self.valid[:, None, None, :keys]
        if self.causal:
            later = torch.ones(rows.stop - rows.start, keys, dtype=torch.bool, device=self.time.device).triu(rows.start + 1)
            mask = later if mask is None else mask | later
        return mask

    def kept(self, number: int, like: Tensor) -> Tensor:
        """Dropout's mask over the weights of a block, divided by what is kept: the same whenever it is asked for."""
        generator = torch.Generator(like.device).manual_seed(self.seed + number)
        keep = torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype) >= self.dropout
        return keep.to(like.dtype).div_(1 - self.dropout)


def _weights(
    problem: KnotProblem,
    block: tuple[int, slice, slice],
    heads: int,
    series: Tensor,
    before: Tensor,
    after: Tensor,
    within: Tensor,
    left: Tensor,
    right: Tensor,
) -> tuple[Tensor, Tensor]:
    """Weights [B H, rows, keys] and the factor of the scores for one block."""
    number, rows, beyond = block
    count, start, keys = rows.stop - rows.start, rows.start, beyond.stop
    scores = series.new_empty(series.shape[0], count, keys)
    scores[:, :, rows] = within[:, number, :count, :count].mT
    if start:
        carry = left[:, number, None, :start]
        scores[:, :, :start] = torch.baddbmm(carry, before[:, number, :count], series[:, :start].mT)
    if beyond.start < keys:
        carry = right[:, number, None, beyond]
        scores[:, :, beyond] = torch.baddbmm(carry, after[:, number, :count], series[:, beyond].mT)
    factor = problem.factor(rows, keys, series.dtype)
    by_head = scores.unflatten(0, (-1, heads))
    by_head.mul_(factor)
    forbidden = problem.forbidden(rows, keys)
    if forbidden is not None:
        by_head.masked_fill_(forbidden, torch.finfo(series.dtype).min)
    weights = torch.softmax(scores, -1)
    if problem.valid is not None:
        weights.unflatten(0, (-1, heads)).masked_fill_(forbidden, 0.0)
    return weights, factor


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
        score_parts = (series, before, after, within, left, right)
        mixed = torch.empty_like(values)
        kept = []
        for block in problem.blocks():
            number, rows, beyond = block
            weights, _ = _weights(problem, block, heads, *score_parts)
            if problem.keep_weights:
                kept.append(weights)
            if problem.dropout > 0:
                weights = weights * problem.kept(number, weights)
            mixed[:, rows] = weights @ values[:, : beyond.stop]
        ctx.problem, ctx.heads, ctx.weights = problem, heads, kept
        ctx.save_for_backward(*score_parts, values)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_mixed: Tensor) -> tuple[Tensor | None, ...]:
        *score_parts, values = ctx.saved_tensors
        series, before, after, within, left, right = score_parts
        problem, heads = ctx.problem, ctx.heads
        g_series, g_values = torch.zeros_like(series), torch.zeros_like(values)
        g_before, g_after, g_within = torch.zeros_like(before), torch.zeros_like(after), torch.zeros_like(within)
        g_left, g_right = torch.zeros_like(left), torch.zeros_like(right)
        for block in problem.blocks():
            number, rows, beyond = block
            count, start, keys = rows.stop - rows.start, rows.start, beyond.stop
            if problem.keep_weights:
                weights, factor = ctx.weights[number], problem.factor(rows, keys, series.dtype)
            else:
                weights, factor = _weights(problem, block, heads, *score_parts)
            g = g_mixed[:, rows] @ values[:, :keys].mT
            used = weights
            if problem.dropout > 0:
                keep = problem.kept(number, weights)
                g.mul_(keep)
                used = weights * keep
            g_values[:, :keys].baddbmm_(used.mT, g_mixed[:, rows])
            # the derivative of a softmax: weights * (g - Σ weights * g)
            g = torch._softmax_backward_data(g, weights, -1, weights.dtype)
            g.unflatten(0, (-1, heads)).mul_(factor)
            g_within[:, number, :count, :count] = g[:, :, rows].mT
            for part, carry, moments, g_carry, g_moments in (
                (slice(0, start), left, before, g_left, g_before),
                (beyond, right, after, g_right, g_after),
            ):
                if part.start < part.stop:
                    here = g[:, :, part]
                    g_carry[:, number, part] = here.sum(1)
                    g_moments[:, number, :count] = here @ series[:, part]
                    g_series[:, part].baddbmm_(here.mT, moments[:, number, :count])
        return g_series, g_before, g_after, g_within, g_left, g_right, g_values, None, None


def knot_attention(
    series: Float[Tensor, "bh points k"],
    before: Float[Tensor, "bh blocks b k"],
    after: Float[Tensor, "bh blocks b k"],
    within: Float[Tensor, "bh blocks b b"],
    left: Float[Tensor, "bh blocks points"],
    right: Float[Tensor, "bh blocks points"],
    values: Float[Tensor, "bh points v"],
    problem: KnotProblem,
    heads: int,
) -> Float[Tensor, "bh points v"]:
    """``softmax(scores) @ values`` for every point as a query, with the scores described above."""
    return _KnotAttention.apply(series, before, after, within, left, right, values, problem, heads)
