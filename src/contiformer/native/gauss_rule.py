"""Means over the time between queries and keys by a rule with a few points, in C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from contiformer.native.derivatives import first_derivatives_only
from contiformer.native.library import LANES, share_out, threads_for
from contiformer.native.sources import struct_of

#: Of gauss_rule.c.
MOST_POINTS, MOST_TERMS = 5, 64
#: Fewer numbers at all points of all pairs than this are not worth a second thread.
_WORK_PER_THREAD = 2**14


@dataclass(frozen=True)
class Times:
    """What is not learned: times of rows and keys, of the path's knots and of the pieces' edges, and the rule.

    All are in float64 and contiguous. ``known`` is up to when a row may read the path. Nodes are in [0, 1], and shares
    have a sum of 1.
    """

    row: Float[Tensor, "batch rows"]
    known: Float[Tensor, "batch rows"]
    key: Float[Tensor, "batch keys"]
    knot: Float[Tensor, "batch knots"]
    edge: Float[Tensor, "batch edges"]
    node: Float[Tensor, " points"]
    share: Float[Tensor, " points"]
    causal: bool

    def run(self, name: str, series: Tensor, powers: int = 0, **tensors: Tensor) -> None:
        """Call a kernel of gauss_rule.c for all sequences and heads."""
        batch, heads, keys, pieces, terms, width = series.shape
        rows, knots, points = self.row.shape[1], self.knot.shape[1], len(self.node)
        threads = threads_for(batch * heads * rows * keys * points * terms, _WORK_PER_THREAD)
        # heads of one sequence share what is found for each pair, unless threads would wait for others
        groups = 1 if batch % threads == 0 or batch >= 4 * threads else heads
        sizes = (heads, groups, rows, keys, knots, powers, pieces, terms, width, points)
        work = struct_of("gauss_rule.c", "Between")(*sizes, int(self.causal))
        work.point_to(time=self.row, known=self.known, key_time=self.key, knot=self.knot, edge=self.edge)
        work.point_to(node=self.node, share=self.share, series=series, **tensors)
        share_out(name, [work] * min(batch * groups, threads), batch * groups)


def scores_between(
    path: Float[Tensor, "batch knots power d"], series: Float[Tensor, "batch heads keys pieces terms dk"], times: Times
) -> Float[Tensor, "batch heads rows keys"]:
    """``Σ_p w_p q(τ_p)·k_i(τ_p)`` with ``τ_p`` between key i and the row; zero for later keys where it is causal."""
    return _Scores.apply(path.unflatten(-1, (series.shape[1], -1)), series, times)


def values_between(
    weights: Float[Tensor, "batch heads rows keys"],
    series: Float[Tensor, "batch heads keys pieces terms dv"],
    times: Times,
) -> Float[Tensor, "batch heads rows dv"]:
    """``Σ_i weights_i Σ_p w_p v_i(τ_p)``; later keys are left out where it is causal."""
    return _Values.apply(weights, series, times)


def _in_vectors(x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape wide"]:
    """As the kernels read it, with zeros up to a whole number of vectors.

    Not what is kept for the backward pass: all chunks of rows share one series, and would keep a copy each.
    """
    more = -x.shape[-1] % LANES
    return (pad(x, (0, more)) if more else x).contiguous()


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, path: Tensor, series: Tensor, times: Times) -> Tensor:
        ctx.times = times
        ctx.save_for_backward(path, series)
        path, series = _in_vectors(path), _in_vectors(series)
        scores = series.new_zeros(*series.shape[:2], times.row.shape[1], series.shape[2])
        times.run("between_scores", series, path.shape[2], path=path, scores=scores)
        return scores

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        path, series = ctx.saved_tensors
        width = series.shape[-1]
        path, series = _in_vectors(path), _in_vectors(series)
        g, g_path, g_series = g.contiguous(), torch.zeros_like(path), torch.zeros_like(series)
        given = {"path": path, "g_scores": g, "g_path": g_path, "g_series": g_series}
        ctx.times.run("between_scores_back", series, path.shape[2], **given)
        return g_path[..., :width], g_series[..., :width], None


class _Values(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, series: Tensor, times: Times) -> Tensor:
        ctx.times = times
        ctx.save_for_backward(weights, series)
        width = series.shape[-1]
        weights, series = weights.contiguous(), _in_vectors(series)
        out = series.new_zeros(*weights.shape[:3], series.shape[-1])
        times.run("between_values", series, weights=weights, out=out)
        return out[..., :width]

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, series = ctx.saved_tensors
        width = series.shape[-1]
        weights, series, g = weights.contiguous(), _in_vectors(series), _in_vectors(g)
        g_weights, g_series = torch.zeros_like(weights), torch.zeros_like(series)
        given = {"weights": weights, "g_out": g, "g_weights": g_weights, "g_series": g_series}
        ctx.times.run("between_values_back", series, **given)
        return g_weights, g_series[..., :width], None
