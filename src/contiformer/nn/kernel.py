"""Continuous attention in C: from trajectories to the output in one call, and back in another.

:mod:`contiformer.nn.reference` is the listing of the same formulas, which this is tested against.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.native import sweep
from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.dispatch import usable
from contiformer.native.library import share_out, threads_for
from contiformer.native.sources import Struct, struct_of
from contiformer.nn.fused_sweep import SigmoidField
from contiformer.nn.rules import AttentionRule
from contiformer.paths.chebyshev import hermite_to_chebyshev
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.trajectories import Pieces, StackedField, Trajectories

#: Points in a block of attention.c, and the share of the series that a block's terms may leave out.
BLOCK = 64
CUT = 1e-4
#: Random bits of a weight. The share that is dropped is rounded to a multiple of 2^-BITS.
BITS = 24
#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**16


@dataclass(frozen=True)
class Points:
    """Times of keys, queries and inner edges of pieces in one list, in float64, and who stands where.

    Attributes:
        time: of the points, not decreasing.
        place: points of the keys; None where all points are keys.
        asked: points of the queries in order; None where they are the keys.
        target: which query asks there.
        when: times of the queries where they are no points themselves: in a causal model the path is held from the
            last observation on.
    """

    time: Float[Tensor, "batch points"]
    place: Int[Tensor, "batch keys"] | None = None
    asked: Int[Tensor, "batch rows"] | None = None
    target: Int[Tensor, "batch rows"] | None = None
    when: Float[Tensor, "batch rows"] | None = None

    @classmethod
    def of(cls, times: Tensor, pieces: Pieces, queries: Tensor | None, causal: bool) -> Points:
        """All that the kernel asks about times."""
        times = times.double().contiguous()
        if queries is not None and causal:
            when, target = queries.double().sort(dim=1)
            asked = torch.searchsorted(times, when, right=True) - 1
            return cls(times, None, asked, target, when)
        if queries is None and pieces.count == 1:
            return cls(times)
        length = times.shape[1]
        parts = [times, pieces.edges[:, 1:-1].double()] + ([] if queries is None else [queries.double()])
        time, order = torch.cat(parts, 1).sort(dim=1, stable=True)
        count = torch.arange(time.shape[1], device=time.device)
        point = torch.empty_like(order).scatter_(1, order, count.expand_as(order))
        place = point[:, :length].contiguous()
        if queries is None:
            return cls(time, place, place, count[:length].expand_as(place).contiguous())
        asked, target = point[:, -queries.shape[1] :].sort(dim=1)
        return cls(time, place, asked, target)


@dataclass(frozen=True)
class _Problem:
    """Everything but the learned part."""

    points: Points
    edges: Tensor
    lengths: Tensor
    rule: AttentionRule
    seed: int

    def described(self, given: tuple[Tensor, ...], out: Tensor, logsum: Tensor) -> Struct:
        """The struct for these tensors, which must outlive it."""
        series, values, path, key = given
        _, heads, keys, pieces, terms, key_width = series.shape
        powers, dropped = path.shape[2], round(self.rule.dropout * 2**BITS)
        nodes, shares = _quadrature(terms + powers - 2)
        struct = struct_of("attention.c", "Attention")(
            heads, self.points.time.shape[1], keys, out.shape[1], pieces, terms, powers, len(nodes), key_width
        )
        struct.value_width, struct.block, struct.cut = values.shape[-1], BLOCK, CUT
        struct.seed, struct.causal, struct.dropped = self.seed, int(self.rule.causal), dropped
        struct.kept, struct.scale = 2**BITS / max(1, 2**BITS - dropped), self.rule.scale(key_width)
        struct.node, struct.share = nodes.ctypes.data, shares.ctypes.data
        points = self.points
        struct.point_to(time=points.time, place=points.place, asked=points.asked, target=points.target)
        struct.point_to(when=points.when, edges=self.edges, length=self.lengths)
        struct.point_to(series=series, values=values, path=path, key=key, out=out, logsum=logsum)
        return struct


def takes(
    path: PiecewisePolynomial,
    k: Float[Tensor, "batch keys d"],
    v: Float[Tensor, "batch keys d"],
    times: Float[Tensor, "batch keys"],
    valid: Bool[Tensor, "batch keys"] | None,
    query_times: Float[Tensor, "batch query"] | None,
    edges: Float[Tensor, "batch edges"],
    field: StackedField,
    rule: AttentionRule,
    heads: int,
) -> bool:
    """Whether the kernel does what :func:`contiformer.nn.reference.attend` does with these arguments."""
    both = rule.continuous_scores and rule.continuous_values and rule.rule == "exact" and rule.normalized
    if not both or not isinstance(field, SigmoidField) or not sweep.usable(k):
        return False
    clocks = (times, edges) if query_times is None else (times, edges, query_times)
    if any(clock.requires_grad for clock in clocks):
        return False
    # between observations a causal path is held, and only the listing follows it from piece to piece
    held = rule.causal and query_times is not None and edges.shape[1] > 2
    return not held and min(k.numel(), clocks[-1].numel()) > 0 and usable(k, v, path.coefficients)


def attend(
    path: PiecewisePolynomial,
    k: Float[Tensor, "batch keys d"],
    v: Float[Tensor, "batch keys d"],
    times: Float[Tensor, "batch keys"],
    valid: Bool[Tensor, "batch keys"] | None,
    query_times: Float[Tensor, "batch query"] | None,
    edges: Float[Tensor, "batch edges"],
    field: StackedField,
    rule: AttentionRule,
    heads: int,
    nodes: int,
) -> tuple[Float[Tensor, "batch query d"], Float[Tensor, " batch"]]:
    """Output and tail of :func:`contiformer.nn.reference.attend`."""
    assert isinstance(field, SigmoidField)
    pieces = Pieces(edges)
    initial = torch.stack([k, v]).transpose(1, 2).contiguous()
    matrix = torch.as_tensor(hermite_to_chebyshev(nodes), dtype=k.dtype)
    shown = None if valid is None else valid.T
    (series, values), squares = sweep.solve(
        initial, times.T, pieces, matrix, rule.causal, heads, field.parameters, field.constants, shown
    )
    solved = Trajectories((series, values), squares, pieces, initial)
    used = torch.ones_like(times, dtype=torch.bool).T[None] if valid is None else valid.T[None]
    if rule.causal:
        used = used & (edges.T[1:, None] > times.T)
    points = Points.of(times, pieces, query_times, rule.causal)
    same = points.place is None and path.knots.shape == times.shape and torch.equal(path.knots, times)
    coefficients = path.coefficients if same else path.refined(points.time).coefficients
    lengths = torch.full((len(times),), times.shape[1]) if valid is None else valid.sum(1)
    seed = int(torch.randint(2**62, ())) if rule.dropout > 0 else 0
    problem = _Problem(points, edges.double().contiguous(), lengths, rule, seed)
    split = (heads, k.shape[-1] // heads)
    out = _Attention.apply(series, values, coefficients.unflatten(-1, split), k.unflatten(-1, split), problem)
    return out.flatten(2), solved.tail(used)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, series: Tensor, values: Tensor, path: Tensor, key: Tensor, problem: _Problem) -> Tensor:
        given = tuple(part.contiguous() for part in (series, values, path, key))
        batch, heads, keys = series.shape[:3]
        rows = keys if problem.points.asked is None else problem.points.asked.shape[1]
        out = series.new_empty(batch, rows, heads, values.shape[-1])
        logsum = series.new_empty(batch, heads, rows)
        _run("attention_forward", problem.described(given, out, logsum), given[0])
        ctx.problem = problem
        ctx.save_for_backward(*given, out, logsum)
        return out

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        *given, out, logsum = saved(ctx)
        gradients = [torch.zeros_like(x) for x in given]
        g_out = g_out.contiguous()
        struct = ctx.problem.described(tuple(given), out, logsum)
        struct.point_to(g_out=g_out)
        struct.point_to(**dict(zip(("g_series", "g_values", "g_path", "g_key"), gradients, strict=True)))
        _run("attention_backward", struct, given[0])
        return *gradients, None


def _run(name: str, struct: Struct, series: Tensor) -> None:
    items = series.shape[0] * series.shape[1]
    threads = min(items, threads_for(series.numel() // struct.pieces * struct.points, _WORK_PER_THREAD))
    share_out(name, [struct] * max(1, threads), items)


@cache
def _quadrature(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre on [0, 1], exact up to this degree."""
    return tuple(np.ascontiguousarray(part) for part in gauss_legendre(degree // 2 + 1))  # type: ignore[return-value]
