"""Continuous attention in C: from trajectories to the output in one call, and back in another.

:mod:`contiformer.nn.reference` is the listing of the same formulas, which this is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.dispatch import usable
from contiformer.native.library import LANES, share_out, threads_for
from contiformer.native.sources import Struct, struct_of
from contiformer.nn.fields import SigmoidField
from contiformer.nn.rules import AttentionRule
from contiformer.paths.chebyshev import hermite_to_chebyshev
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.trajectories import Pieces, StackedField, node_times, substeps_for

#: Points in a block of attention.c, and the share of the series that a block's terms may leave out.
BLOCK = 128
CUT = 1e-5
#: Random bits of a weight. The share that is dropped is rounded to a multiple of 2^-BITS.
BITS = 24
#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**16
#: Fewer trajectories than this are not worth a second thread.
_ROWS_PER_THREAD = 64


@dataclass(frozen=True)
class Points:
    """Times of keys, queries and inner edges of pieces in one list, in float64, and who stands where.

    Attributes:
        time: of the points, not decreasing.
        place: points of the keys; None where all points are keys.
        asked: points of the queries in order; None where they are the keys.
        target: which query asks there.
        when: times of the queries where they are no points themselves, in a causal model.
        source: points of the last observations before them, from which on the path is held; -1: none.
    """

    time: Float[Tensor, "batch points"]
    place: Int[Tensor, "batch keys"] | None = None
    asked: Int[Tensor, "batch rows"] | None = None
    target: Int[Tensor, "batch rows"] | None = None
    when: Float[Tensor, "batch rows"] | None = None
    source: Int[Tensor, "batch rows"] | None = None

    @classmethod
    def of(cls, times: Tensor, valid: Tensor | None, pieces: Pieces, queries: Tensor | None, causal: bool) -> Points:
        """All that the kernel asks about times."""
        if queries is None and pieces.count == 1:
            return cls(times)
        length = times.shape[1]
        parts = [times, pieces.edges[:, 1:-1].double()]
        if queries is not None and not causal:
            parts.append(queries.double())
            if valid is not None:
                # padding behind everything else, so that it does not move the blocks of attention.c
                parts[0] = torch.where(valid, times, torch.maximum(times[:, -1:], parts[2].amax(1, keepdim=True)))
        time, order = torch.cat(parts, 1).sort(dim=1, stable=True)
        count = torch.arange(time.shape[1], device=time.device)
        point = torch.empty_like(order).scatter_(1, order, count.expand_as(order))
        place = point[:, :length].contiguous()
        if queries is None:
            return cls(time, place, place, count[:length].expand_as(place).contiguous())
        if not causal:
            asked, target = point[:, -queries.shape[1] :].sort(dim=1)
            return cls(time, place, asked, target)
        when, target = queries.double().sort(dim=1)
        last = torch.searchsorted(times, when, right=True) - 1
        source = torch.where(last < 0, -1, place.gather(1, last.clamp(min=0)))
        return cls(time, place, torch.searchsorted(time, when, right=True) - 1, target, when, source)


class Level(NamedTuple):
    """A degree of the trajectories' series, and the tail up to which a sequence counts as resolved at it."""

    nodes: int
    tolerance: float


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
    if not both or not isinstance(field, SigmoidField) or field.matrix.shape[-1] % LANES:
        return False
    clocks = (times, edges) if query_times is None else (times, edges, query_times)
    if any(clock.requires_grad for clock in clocks):
        return False
    return min(k.numel(), clocks[-1].numel()) > 0 and usable(k, v, path.coefficients)


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
    levels: Sequence[Level],
) -> tuple[Float[Tensor, "batch query d"], Float[Tensor, " batch"]]:
    """Output of :func:`contiformer.nn.reference.attend`, and the tail of each sequence, zero where it is resolved.

    Trajectories are refined level by level where that is needed.
    """
    assert isinstance(field, SigmoidField)
    pieces, times = Pieces(edges), times.double().contiguous()
    clock = _Clock(times, pieces, valid, rule.causal, heads, field.constants, tuple(levels))
    series, values, tail = _Trajectories.apply(torch.stack([k, v]), *field.parameters, clock)
    points = Points.of(times, valid, pieces, query_times, rule.causal)
    same = points.place is None and path.knots.shape == times.shape and torch.equal(path.knots, times)
    coefficients = path.coefficients if same else path.refined(points.time).coefficients
    lengths = torch.full((len(times),), times.shape[1]) if valid is None else valid.sum(1)
    seed = int(torch.randint(2**62, ())) if rule.dropout > 0 else 0
    problem = _Problem(points, pieces.edges.double().contiguous(), lengths, rule, seed)
    split = (heads, k.shape[-1] // heads)
    out = _Attention.apply(series, values, coefficients.unflatten(-1, split), k.unflatten(-1, split), problem)
    return out.flatten(2), tail


@dataclass(frozen=True)
class _Clock:
    """Everything about the trajectories that is not learned."""

    times: Float[Tensor, "batch obs"]
    pieces: Pieces
    valid: Bool[Tensor, "batch obs"] | None
    causal: bool
    heads: int
    constants: tuple[float | None, float, float]
    levels: tuple[Level, ...]

    def described(self, given: list[Tensor | None], nodes: int, table: Tensor, items: Tensor | None) -> Struct:
        """The struct for these tensors and number of nodes, without the tensors that only one pass has."""
        initial, matrix, slope, bias, gain, shift = given
        assert initial is not None
        assert matrix is not None
        grid, half, basis = self.at_nodes(nodes)
        struct = struct_of("sweep.c", "Sweep")(
            *initial.shape, matrix.shape[-1], self.heads, grid.shape[1], substeps_for(nodes), nodes - 1
        )
        floor, struct.amplitude, struct.offset = self.constants
        struct.floor, struct.causal = -1.0 if floor is None else floor, int(self.causal)
        struct.point_to(items=items, times=self.times, grid=grid, half=half, basis=basis, values=table[0])
        struct.point_to(initial=initial, matrix=matrix, slope=slope, bias=bias, gain=gain, shift=shift)
        struct.point_to(slopes=table[1])
        struct.keeps = (grid, half, basis)
        return struct

    def at_nodes(self, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Times of the nodes, half lengths of the pieces, and the matrix from values and slopes to coefficients."""
        grid, half = node_times(self.pieces, nodes), self.pieces.half_lengths
        return grid.double().contiguous(), half.double().contiguous(), _hermite(nodes)


class _Trajectories(torch.autograd.Function):
    """Series of keys and of values [B, H, N, P, M, dk], and the tails of the sequences that are not resolved.

    All trajectories are solved at the first level. Where a sequence is not resolved, those of its trajectories that
    matter are solved again at the next one; the series of the others go on with zeros.
    """

    @staticmethod
    def forward(
        ctx: Any,
        initial: Tensor,
        matrix: Tensor,
        slope: Tensor,
        bias: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        clock: _Clock,
    ) -> tuple[Tensor, ...]:
        given = [None if x is None else x.contiguous() for x in (initial, matrix, slope, bias, gain, shift)]
        states, batch, obs, width = initial.shape
        shown = None if clock.valid is None else clock.valid.expand(states, -1, -1)
        items = None if shown is None else torch.nonzero(shown.flatten()).squeeze(1)
        shape = (2, batch, clock.heads, obs, clock.pieces.count)
        # which level has the final word on a trajectory
        owner = None if shown is None else shown.long() - 1
        values: list[Tensor] = []
        series = squares = initial.new_empty(0)
        coarse = torch.tensor(True)
        for number, level in enumerate(clock.levels):
            some = items is not None
            values.append(initial.new_empty(2, states * batch * obs, clock.pieces.count * (level.nodes - 1) + 2, width))
            terms = (2 * level.nodes, width // clock.heads)
            made = initial.new_zeros if some else initial.new_empty
            before, series = series, made(*shape, *terms)
            if number:
                series[..., : before.shape[-2], :] = before
            else:
                squares = made(3, states, batch, obs, clock.pieces.count)
            struct = clock.described(given, level.nodes, values[-1], items)
            struct.point_to(squares=squares, key_series=series[0], value_series=series[1])
            count = initial[..., 0].numel() if items is None else len(items)
            if count:
                share_out("sweep_forward", [struct] * threads_for(count, _ROWS_PER_THREAD), count)
            last, size, start = squares.sum(3)
            scale = torch.maximum(torch.minimum(start, size), 1e-3 * size).clamp_(min=torch.finfo(size.dtype).tiny)
            tail = (last / scale).sqrt().amax((0, 2))
            coarse = ~(tail <= level.tolerance) & coarse
            if number + 1 == len(clock.levels) or not bool(coarse.any()):
                break
            # without those above half of the mean that is allowed, the others are resolved
            limit = level.tolerance**2 / 2 * scale / (squares[1] > 0).sum(2).clamp(min=1)
            chosen = (~(squares[0] <= limit.unsqueeze(2))).any(-1) & coarse[:, None]
            owner = torch.zeros(states, batch, obs, dtype=torch.long) if owner is None else owner
            owner = torch.where(chosen, number + 1, owner)
            items = torch.nonzero(chosen.flatten()).squeeze(1)
        ctx.clock, ctx.owner, ctx.depth = clock, owner, len(values)
        ctx.save_for_backward(*given, *values)
        tail = torch.where(coarse, tail, 0.0)
        ctx.mark_non_differentiable(tail)
        return series[0], series[1], tail

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = saved(ctx)
        given, depth, clock = tensors[: -ctx.depth], ctx.depth, ctx.clock
        initial = given[0]
        g_initial = torch.zeros_like(initial) if ctx.owner is not None else torch.empty_like(initial)
        totals: list[Tensor | None] = [None] * 5
        for number, values in enumerate(tensors[-depth:]):
            nodes = clock.levels[number].nodes
            items = None if ctx.owner is None else torch.nonzero((ctx.owner == number).flatten()).squeeze(1)
            count = initial[..., 0].numel() if items is None else len(items)
            if not count:
                continue
            g_series = [g[..., : 2 * nodes, :].contiguous() for g in gradients[:2]]
            share = threads_for(count, _ROWS_PER_THREAD)
            # every thread sums the gradients of the parameters for itself
            sums = [None if x is None else x.new_zeros(share, *x.shape) for x in given[1:]]
            structs = []
            for n in range(share):
                struct = clock.described(given, nodes, values, items)
                struct.point_to(g_initial=g_initial)
                struct.point_to(g_key_series=g_series[0], g_value_series=g_series[1])
                names = ("g_matrix", "g_slope", "g_bias", "g_gain", "g_shift")
                struct.point_to(**{k: None if x is None else x[n] for k, x in zip(names, sums, strict=True)})
                structs.append(struct)
            share_out("sweep_backward", structs, count)
            parts = [None if x is None else x.sum(0) for x in sums]
            totals = [new if old is None or new is None else old + new for old, new in zip(totals, parts, strict=True)]
        if totals[0] is None:
            totals = [None if x is None else torch.zeros_like(x) for x in given[1:]]
        return g_initial, *totals, None


@dataclass(frozen=True)
class _Problem:
    """Everything about attention that is not learned."""

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
        struct.point_to(when=points.when, source=points.source, edges=self.edges, length=self.lengths)
        struct.point_to(series=series, values=values, path=path, key=key, out=out, logsum=logsum)
        return struct


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
        gradients = [torch.empty_like(x) for x in given]
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


@cache
def _hermite(nodes: int) -> Tensor:
    """The matrix from values and slopes at the nodes of a piece to coefficients."""
    return torch.from_numpy(np.ascontiguousarray(hermite_to_chebyshev(nodes), dtype=np.float32))
