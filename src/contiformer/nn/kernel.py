"""Continuous attention in C: from trajectories to the output in one call, and back in another.

:mod:`contiformer.nn.reference` is the listing of the same formulas, which this is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.native.derivatives import first_derivatives_only, saved
from contiformer.native.dispatch import usable
from contiformer.native.library import LANES, new_memory, share_out, threads_for
from contiformer.native.sources import Struct, struct_of
from contiformer.nn.fields import FusedField
from contiformer.nn.rules import AttentionRule
from contiformer.paths.chebyshev import hermite_nodes, hermite_to_chebyshev
from contiformer.paths.interpolation import PiecewisePolynomial, count_until
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.trajectories import Pieces, StackedField, substeps_for

#: Points in a block of attention.c, and the share of the series that a block's terms may leave out.
BLOCK, CUT = 256, 1e-5
#: Random bits of a weight. The share that is dropped is rounded to a multiple of 2^-BITS.
BITS = 24
#: Fewer multiplications than this are not worth a second thread.
_WORK_PER_THREAD = 2**16
#: Fewer trajectories than this are not worth a second thread.
_ROWS_PER_THREAD = 64


@dataclass(frozen=True)
class Points:
    """Times of keys, queries and inner edges of pieces in one list, in float64, with the position of each.

    Attributes:
        time: of the points. They do not decrease, or are a walk (:meth:`walk`).
        coefficients: of the path on the cell from each point to the next.
        piece: that each cell lies in.
        place: points of the keys.
        asked: points of the rows, which are the queries in order of time, or the keys where there are none.
        target: which query or key asks there.
        asking: number of rows of each sequence, without padding.
    """

    time: Float[Tensor, "batch points"]
    coefficients: Float[Tensor, "batch points power d"]
    piece: Int[Tensor, "batch points"]
    place: Int[Tensor, "batch keys"]
    asked: Int[Tensor, "batch rows"]
    target: Int[Tensor, "batch rows"]
    asking: Int[Tensor, " batch"]

    @classmethod
    def of(
        cls,
        path: PiecewisePolynomial,
        times: Tensor,
        valid: Tensor | None,
        lengths: Tensor,
        pieces: Pieces,
        queries: Tensor | None,
        causal: bool,
    ) -> Points:
        """All that the kernel asks about times."""
        batch, length = times.shape
        numbers, zeros = _numbers(batch, length)
        if queries is None and pieces.count == 1 and (path.knots is times or torch.equal(path.knots, times)):
            return cls(times, path.coefficients, zeros, numbers, numbers, numbers, lengths)
        if queries is not None and causal:
            return cls.walk(path, times, valid, pieces, queries.double())
        parts = [times, pieces.edges[:, 1:-1].double()]
        if queries is not None:
            parts.append(queries.double())
            if valid is not None:
                # padding behind everything else, so that it does not move the blocks of attention.c
                parts[0] = torch.where(valid, times, torch.maximum(times[:, -1:], parts[2].amax(1, keepdim=True)))
        time, order = torch.cat(parts, 1).sort(dim=1, stable=True)
        point, coefficients = _places(order), path.refined(time).coefficients
        place, piece = point[:, :length].contiguous(), _pieces_of(time, pieces)
        if queries is None:
            return cls(time, coefficients, piece, place, place, numbers, lengths)
        return cls(time, coefficients, piece, place, *_in_order(point[:, -queries.shape[1] :]))

    @classmethod
    def walk(
        cls, path: PiecewisePolynomial, times: Tensor, valid: Tensor | None, pieces: Pieces, queries: Tensor
    ) -> Points:
        """Points for causal queries between observations, for which the path is held from the last observation on.

        From each observation the walk visits the queries up to the next one along the path that is held, returns
        (its integrals add up to zero again), and goes on to the next observation along the path itself.
        """
        length = times.shape[1]
        last = length if valid is None else valid.sum(1, keepdim=True).clamp(min=1)
        edges = pieces.edges[:, 1:-1].double()
        number = torch.arange(length).expand_as(times)
        gap_of = [torch.clamp(count_until(times, t), max=last) - 1 for t in (queries, edges)]
        # (gap, part of the gap, time along it): the way out, the way back, the way on
        entries = [
            (number, 0, times),
            (gap_of[0], 0, queries),
            *((gap_of[1], part, sign * edges) for part, sign in ((0, 1), (1, -1), (2, 1))),
            (number, 1, -times),
        ]
        gap = torch.cat([gap for gap, _, _ in entries], 1)
        part = torch.cat([torch.full_like(gap, part) for gap, part, _ in entries], 1)
        along = torch.cat([time for _, _, time in entries], 1)
        order = torch.from_numpy(np.lexsort((along.numpy(), part.numpy(), gap.numpy()), axis=-1))
        gap, part, along = (x.gather(1, order) for x in (gap, part, along))
        time, point = torch.where(part == 1, -along, along), _places(order)
        # back at the observation, the way on begins
        home = point[:, -length:]
        held = (part < 2).scatter(1, home, False)
        coefficients = path.refined(time, (gap.clamp(min=0), held)).coefficients
        place, asked = point[:, :length].contiguous(), point[:, length : length + queries.shape[1]]
        return cls(time, coefficients, _pieces_of(time, pieces), place, *_in_order(asked))


def _places(order: Int[Tensor, "batch points"]) -> Int[Tensor, "batch points"]:
    """The inverse of a permutation in each row."""
    count = torch.arange(order.shape[1], dtype=torch.int32).expand_as(order)
    return torch.empty_like(count).scatter_(1, order, count)


def _in_order(asked: Int[Tensor, "batch rows"]) -> tuple[Tensor, Tensor, Tensor]:
    """The points of the queries in order, which query asks at each, and how many there are."""
    points, target = asked.sort(dim=1)
    return points, target.int(), torch.full((len(asked),), asked.shape[1])


def _pieces_of(time: Float[Tensor, "batch points"], pieces: Pieces) -> Int[Tensor, "batch points"]:
    """The piece of the cell behind each point: that of its earlier end, as edges are points, too."""
    if pieces.count == 1:
        return torch.zeros_like(time, dtype=torch.int32)
    return pieces.locate(torch.minimum(time, torch.cat([time[:, 1:], time[:, -1:]], 1))).int()


@lru_cache(maxsize=64)
def _numbers(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Numbers 0, 1, ... for each sequence, and as many zeros."""
    numbers = torch.arange(length, dtype=torch.int32).repeat(batch, 1)
    return numbers, torch.zeros_like(numbers)


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
    if not both or not isinstance(field, FusedField) or field.affine.shape[-1] % LANES:
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
) -> tuple[Float[Tensor, "batch query d"], float]:
    """Output of :func:`contiformer.nn.reference.attend`, and the largest tail of a sequence that is not resolved, or 0.

    Trajectories are refined level by level where that is needed.
    """
    assert isinstance(field, FusedField)
    pieces, times = Pieces(edges), times.double().contiguous()
    lengths = torch.full((len(times),), times.shape[1]) if valid is None else valid.sum(1)
    points = Points.of(path, times, valid, lengths, pieces, query_times, rule.causal)
    seed = int(torch.randint(2**62, ())) if rule.dropout > 0 else 0
    edges = edges.double().contiguous()
    problem = _Problem(points, times, edges, valid, lengths, rule, heads, field.eps, field.activation, levels, seed)
    return _Attention.apply(points.coefficients, k, v, field.affine, field.norm, problem), problem.tail


@dataclass
class _Problem:
    """Everything that is not learned."""

    points: Points
    times: Tensor
    edges: Tensor
    valid: Tensor | None
    lengths: Tensor
    rule: AttentionRule
    heads: int
    eps: float | None
    activation: str
    levels: Sequence[Level]
    seed: int
    #: found by the forward pass
    tail: float = 0.0

    def sweep(self, given: Sequence[Tensor | None], nodes: int, table: Tensor | None, items: Tensor | None) -> Struct:
        """The struct of sweep.c for these tensors and nodes, without the tensors that only one pass has."""
        key, value, affine, norm = given
        assert key is not None
        assert affine is not None
        basis, places = _hermite(nodes)
        pieces = self.edges.shape[1] - 1
        sizes = (
            2,
            *key.shape,
            affine.shape[-1],
            self.heads,
            pieces,
            pieces * (nodes - 1) + 1,
            substeps_for(nodes),
            nodes - 1,
            int(self.rule.causal),
        )
        struct = struct_of("sweep.c", "Sweep")(*sizes)
        struct.eps = self.eps or 0.0
        struct.amplitude, struct.offset, struct.stretch = (
            (2.0, -1.0, 2.0) if self.activation == "tanh" else (1.0, 0.0, 1.0)
        )
        struct.point_to(items=items, times=self.times, edges=self.edges, node=places, basis=basis)
        struct.point_to(key=key, value=value, affine=affine, norm=norm, table=table)
        return struct

    def attention(self, series: Sequence[Tensor], path: Tensor, key: Tensor, out: Tensor, logsum: Tensor) -> Struct:
        """The struct of attention.c for these tensors, which must outlive it."""
        points, (_, heads, keys, pieces, terms, width) = self.points, series[0].shape
        powers, dropped = path.shape[2], round(self.rule.dropout * 2**BITS)
        nodes, shares = _quadrature(terms + powers - 2)
        sizes = (heads, points.time.shape[1], keys, out.shape[1], pieces, terms, powers, len(nodes), width)
        struct = struct_of("attention.c", "Attention")(*sizes, BLOCK, CUT, self.seed)
        struct.causal, struct.dropped = int(self.rule.causal), dropped
        struct.kept, struct.scale = 2**BITS / max(1, 2**BITS - dropped), self.rule.scale(width)
        struct.node, struct.share = nodes.ctypes.data, shares.ctypes.data
        struct.point_to(time=points.time, piece=points.piece, place=points.place, asked=points.asked)
        struct.point_to(target=points.target, asking=points.asking, edges=self.edges, length=self.lengths)
        struct.point_to(series=series[0], values=series[1], path=path, key=key, out=out, logsum=logsum)
        return struct


class _Attention(torch.autograd.Function):
    """Trajectories of keys and values as series [B, H, N, P, M, dk], and attention to them.

    All trajectories are solved at the first level. Where a sequence is not resolved, those of its trajectories that
    matter are solved again at the next one; the series of the others go on with zeros.
    """

    @staticmethod
    def forward(
        ctx: Any, path: Tensor, k: Tensor, v: Tensor, affine: Tensor, norm: Tensor | None, problem: _Problem
    ) -> Tensor:
        path, k, v, affine = (x.contiguous() for x in (path, k, v, affine))
        given = (k, v, affine, None if norm is None else norm.contiguous())
        series, tables, owner = _solve(problem, given, keep=any(ctx.needs_input_grad))
        batch, _, width = k.shape
        rows = problem.points.asked.shape[1]
        out, logsum = k.new_zeros(batch, rows, width), k.new_empty(batch, problem.heads, rows)
        _run("attention_forward", problem.attention(series, path, k, out, logsum), series[0])
        ctx.problem, ctx.owner = problem, owner
        ctx.save_for_backward(path, *given, *series, out, logsum, *tables)
        return out

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        path, k, v, affine, norm, key_series, value_series, out, logsum, *tables = saved(ctx)
        problem, series, g_out = ctx.problem, (key_series, value_series), g_out.contiguous()
        g_path, g_own, g_keys, g_values = (new_memory(x, *x.shape).zero_() for x in (path, k, *series))
        struct = problem.attention(series, path, k, out, logsum)
        struct.point_to(g_out=g_out, g_series=g_keys, g_values=g_values, g_path=g_path, g_key=g_own)
        _run("attention_backward", struct, key_series)
        # a trajectory that is not solved has no gradient
        g_k, g_v = (torch.empty_like(x) if ctx.owner is None else torch.zeros_like(x) for x in (k, v))
        totals = [torch.zeros_like(x) for x in (affine, norm) if x is not None]
        for number, table in enumerate(tables):
            nodes = problem.levels[number].nodes
            items = None if ctx.owner is None else torch.nonzero((ctx.owner == number).flatten()).squeeze(1)
            count = 2 * k[..., 0].numel() if items is None else len(items)
            if not count:
                continue
            cut = [g[..., : 2 * nodes, :].contiguous() for g in (g_keys, g_values)]
            # every thread sums the gradients of the parameters for itself
            share = threads_for(count, _ROWS_PER_THREAD)
            sums = [x.new_zeros(share, *x.shape) for x in totals]
            structs = []
            for n in range(share):
                struct = problem.sweep((k, v, affine, norm), nodes, table, items)
                struct.point_to(g_key_series=cut[0], g_value_series=cut[1], g_key=g_k, g_value=g_v)
                struct.point_to(**{name: x[n] for name, x in zip(("g_affine", "g_norm"), sums, strict=False)})
                structs.append(struct)
            share_out("sweep_backward", structs, count)
            for total, each in zip(totals, sums, strict=True):
                total.add_(each.sum(0))
        return g_path, g_k.add_(g_own), g_v, totals[0], totals[1] if len(totals) > 1 else None, None


def _solve(
    problem: _Problem, given: Sequence[Tensor | None], keep: bool
) -> tuple[tuple[Tensor, Tensor], list[Tensor], Tensor | None]:
    """Series of keys and of values; per level the tables for the backward pass; and the level of each trajectory.

    The level is that which has the final word on a trajectory, -1 for padding; None where all are of the first.
    """
    k = given[0]
    assert k is not None
    batch, obs, width = k.shape
    pieces = problem.edges.shape[1] - 1
    valid = None if problem.valid is None else problem.valid.expand(2, -1, -1)
    items = None if valid is None else torch.nonzero(valid.flatten()).squeeze(1)
    owner = None if valid is None else valid.long() - 1
    squares = k.new_zeros(3, 2, batch, obs, pieces)
    tables: list[Tensor] = []
    series = k.new_empty(0)
    coarse: np.ndarray = np.ones(batch, dtype=bool)
    for number, level in enumerate(problem.levels):
        if keep:
            tables.append(new_memory(k, 2 * batch * obs, pieces * (level.nodes - 1) + 2, 2, width))
        shape = (2, batch, problem.heads, obs, pieces, 2 * level.nodes, width // problem.heads)
        before, series = series, new_memory(k, *shape)
        if items is not None:
            series.zero_()
        if number:
            series[..., : before.shape[-2], :] = before
        struct = problem.sweep(given, level.nodes, tables[-1] if keep else None, items)
        struct.point_to(squares=squares, key_series=series[0], value_series=series[1])
        count = 2 * batch * obs if items is None else len(items)
        if count:
            share_out("sweep_forward", [struct] * threads_for(count, _ROWS_PER_THREAD), count)
        with np.errstate(all="ignore"):
            last, size, start = squares.sum(3).numpy()
            scale = np.maximum(np.maximum(np.minimum(start, size), 1e-3 * size), np.finfo(np.float32).tiny)
            tail = np.sqrt(last / scale).max((0, 2))
        coarse = ~(tail <= level.tolerance) & coarse
        problem.tail = float(tail[coarse].max()) if coarse.any() else 0.0
        if number + 1 == len(problem.levels) or not coarse.any():
            break
        # without those above half of the mean that is allowed, the others are resolved
        limit = level.tolerance**2 / 2 * torch.from_numpy(scale) / (squares[1] > 0).sum(2).clamp(min=1)
        chosen = (~(squares[0] <= limit.unsqueeze(2))).any(-1) & torch.from_numpy(coarse)[:, None]
        owner = torch.zeros(2, batch, obs, dtype=torch.long) if owner is None else owner
        owner = torch.where(chosen, number + 1, owner)
        items = torch.nonzero(chosen.flatten()).squeeze(1)
    return (series[0], series[1]), tables, owner


def _run(name: str, struct: Struct, series: Tensor) -> None:
    items = series.shape[0] * series.shape[1]
    threads = min(items, threads_for(series.numel() // struct.pieces * struct.points, _WORK_PER_THREAD))
    share_out(name, [struct] * max(1, threads), items)


@cache
def _quadrature(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre on [0, 1], exact up to this degree."""
    return tuple(np.ascontiguousarray(part) for part in gauss_legendre(degree // 2 + 1))  # type: ignore[return-value]


@cache
def _hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """The matrix from value and slope, in turn, at each node of a piece to coefficients; and the nodes."""
    in_turn = np.arange(2 * nodes).reshape(2, nodes).T.flatten()
    matrix = np.ascontiguousarray(hermite_to_chebyshev(nodes)[:, in_turn], dtype=np.float32)
    return torch.from_numpy(matrix), torch.from_numpy(hermite_nodes(nodes))
