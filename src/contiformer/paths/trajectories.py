"""Solve ``dk/dt = f(t, k)`` once from every observation, over the whole window, into Chebyshev series.

The window of a sequence is cut into pieces; on each piece every trajectory is a polynomial in the piece's own variable
``x`` in [-1, 1]. The field always receives the time itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.paths.chebyshev import chebyshev_basis, hermite_nodes, hermite_to_chebyshev

#: Stacked fields: (t [n, B, 1], states [S, n, B, d]) -> derivatives [S, n, B, d], one field for each of the S states.
StackedField = Callable[[Tensor, Tensor], Tensor]


class ResolutionWarning(UserWarning):
    """The series do not resolve the trajectories; the message says by how much and what to raise."""


@dataclass(frozen=True)
class Pieces:
    """Where the pieces of each sequence begin and end.

    ``edges`` [B, P + 1] does not decrease; a piece of length zero stands in where a sequence needs fewer than its
    batch mates.
    """

    edges: Float[Tensor, "batch edges"]

    @property
    def count(self) -> int:
        """Number of pieces P."""
        return self.edges.shape[1] - 1

    @property
    def half_lengths(self) -> Float[Tensor, "batch pieces"]:
        """Half the length of each piece: ``dt/dx``."""
        return (self.edges[:, 1:] - self.edges[:, :-1]) / 2

    def locate(self, t: Float[Tensor, "batch *shape"]) -> Int[Tensor, "batch *shape"]:
        """The piece that holds each time; times outside the window belong to the nearest piece."""
        if self.count == 1:
            return torch.zeros_like(t, dtype=torch.long)
        inner = self.edges[:, 1:-1].contiguous()
        flat = t.detach().reshape(t.shape[0], -1).contiguous()
        return torch.searchsorted(inner, flat, right=True).reshape(t.shape)

    def local(self, t: Float[Tensor, "batch *shape"], piece: Int[Tensor, "batch *shape"]) -> Float[Tensor, "..."]:
        """The variable ``x`` of time ``t`` on the given piece, clamped to [-1, 1]."""
        shape = t.shape
        flat = piece.reshape(shape[0], -1)
        start = self.edges.gather(1, flat).reshape(shape)
        half = self.half_lengths.gather(1, flat).reshape(shape)
        proper = half > 0
        return torch.where(proper, (t - start) / torch.where(proper, half, 1.0) - 1, 0.0).clamp(-1.0, 1.0)


def window_pieces(
    start: Float[Tensor, "batch"], end: Float[Tensor, "batch"], length: float, limit: int
) -> Pieces:
    """Cut each window into equal pieces of at most ``length``; of more than that where ``limit`` pieces do not do."""
    window = end - start
    wanted = torch.ceil(window / length - 1e-6).clamp(1, limit)
    count = int(wanted.max()) if wanted.numel() else 1
    step = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    share = torch.minimum(step / wanted[:, None], torch.ones_like(start)[:, None])
    return Pieces(start[:, None] + share * window[:, None])


def fixed_pieces(start: Float[Tensor, "batch"], end: Float[Tensor, "batch"], length: float, limit: int) -> Pieces:
    """Pieces of exactly ``length`` from the start of each sequence: what comes later never moves an earlier edge."""
    needed = (end - start) / length
    count = max(1, math.ceil(float(needed.max()) - 1e-6)) if needed.numel() else 1
    if count > limit:
        raise ValueError(
            f"a causal sequence spans {float(needed.max()):.4g} pieces of length {length:g}, more than {limit}: "
            "scale the times so that a sequence spans about 1, or pass a larger piece_length"
        )
    step = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    return Pieces(start[:, None] + step * length)


@dataclass(frozen=True)
class Trajectories:
    """``k_i(t) = Σ_m coefficients[p, m, :, i] T_m(x_p(t))`` on piece ``p``: one series for each observation.

    Shapes: coefficients [P, M, S, N, B, d] for S stacked states.
    """

    coefficients: Float[Tensor, "pieces terms states obs batch d"]
    pieces: Pieces

    @property
    def terms(self) -> int:
        """Number of coefficients M."""
        return self.coefficients.shape[1]

    @torch.no_grad()
    def tail(self, used: Bool[Tensor, "#pieces obs batch"]) -> Float[Tensor, "batch"]:
        """How large the last two coefficients are beside the curve: about the relative error of the series.

        The root of the mean square over a sequence's ``used`` trajectories, the largest over states and pieces.
        """
        c = self.coefficients.detach()
        keep = used[:, None, :, :, None].to(c.dtype)
        last = (c[:, -2:].abs().sum(1).square() * keep).sum((-3, -1))
        size = (c.square().sum(1) * keep).sum((-3, -1))
        ratio = last / size.clamp(min=torch.finfo(c.dtype).tiny)
        return ratio.sqrt().amax((0, 1))


def nodes_for_degree(degree: int) -> int:
    """Number of Hermite nodes whose ``2n`` coefficients reach ``degree``."""
    return max(2, degree // 2 + 1)


def _substeps(nodes: int) -> int:
    """Runge-Kutta steps between two nodes: the series converges faster than the solver, which has to keep up."""
    return max(1, round((nodes / 5) ** 2))


def solve_trajectories(
    field: StackedField,
    initial: Float[Tensor, "states obs batch d"],
    times: Float[Tensor, "obs batch"],
    pieces: Pieces,
    degree: int,
    *,
    causal: bool = False,
) -> Trajectories:
    """Trajectories through ``initial`` at ``times`` under ``field``, over all pieces, in both directions.

    One batched Runge-Kutta sweep over the nodes from left to right carries every observation from its own time onwards
    (it starts inside the step that contains it), another from right to left carries it backwards. With the field at the
    nodes, value and derivative give two coefficients for each node.

    A causal model reads a trajectory only after its observation, so there the backward sweep stops at the left edge of
    the observation's own piece, and what lies before that piece is left constant.
    """
    nodes = nodes_for_degree(degree)
    x = torch.as_tensor(hermite_nodes(nodes), dtype=pieces.edges.dtype, device=pieces.edges.device)
    inner = pieces.edges[:, :-1, None] + (x[:-1] + 1) * pieces.half_lengths[..., None]
    grid = torch.cat([inner.flatten(1), pieces.edges[:, -1:]], dim=1).T
    at_nodes = _sweep(field, initial, times, grid, nodes - 1, causal)
    index = np.arange(pieces.count)[:, None] * (nodes - 1) + np.arange(nodes)
    node_times = grid.to(initial.dtype)
    states, obs, batch, width = initial.shape
    slopes = field(
        node_times[:, None].expand(-1, obs, -1).flatten(0, 1).unsqueeze(-1),
        at_nodes.transpose(0, 1).reshape(states, -1, batch, width),
    )
    slopes = slopes.view(states, -1, obs, batch, width).transpose(0, 1)
    if pieces.count > 1:
        at_nodes, slopes = at_nodes[index], slopes[index]
    else:
        at_nodes, slopes = at_nodes[None], slopes[None]
    stretch = pieces.half_lengths.T.to(initial.dtype)[:, None, None, None, :, None]
    from_values, from_slopes = (
        torch.as_tensor(matrix, dtype=initial.dtype, device=initial.device) for matrix in hermite_to_chebyshev(nodes)
    )
    flat = (pieces.count, nodes, -1)
    coefficients = torch.baddbmm(
        from_slopes.expand(pieces.count, -1, -1) @ (slopes * stretch).reshape(flat),
        from_values.expand(pieces.count, -1, -1),
        at_nodes.reshape(flat),
    )
    return Trajectories(coefficients.view(pieces.count, 2 * nodes, *initial.shape), pieces)


def _sweep(
    field: StackedField, initial: Tensor, times: Tensor, grid: Float[Tensor, "grid batch"], per_piece: int, causal: bool
) -> Float[Tensor, "grid states obs batch d"]:
    """Values of all trajectories at the nodes of the grid."""
    obs = times.shape[0]
    steps = grid.shape[0] - 1
    ends = _active_rows(times, grid, per_piece, causal)
    substeps = _substeps(per_piece + 1)

    def advance(state: Tensor, rows: slice, origin: Tensor, target: Tensor) -> Tensor:
        if rows.start >= rows.stop:
            return state
        low, high = torch.minimum(origin, target), torch.maximum(origin, target)
        start = times[rows].clamp(low, high)
        moved = _runge_kutta(field, state[:, rows], start, target.expand_as(start), substeps)
        if rows.start == 0 and rows.stop == obs:
            return moved
        return torch.cat([state[:, : rows.start], moved, state[:, rows.stop :]], dim=1)

    forward = [initial]
    for g in range(steps):
        forward.append(advance(forward[-1], slice(0, ends[0][g]), grid[g], grid[g + 1]))
    backward = [initial]
    for g in range(steps - 1, -1, -1):
        backward.append(advance(backward[-1], slice(ends[1][g], ends[2][g]), grid[g + 1], grid[g]))
    reached = grid[:, None] >= times
    return torch.where(reached[:, None, :, :, None], torch.stack(forward), torch.stack(backward[::-1]))


def _active_rows(times: Tensor, grid: Tensor, per_piece: int, causal: bool) -> tuple[list[int], list[int], list[int]]:
    """Which observations move in each step: forward the first ``a``, backward those from ``b`` to ``c``.

    Times are sorted, so these are slices; they are the smallest that serve every sequence of the batch.
    """
    obs = times.shape[0]
    steps = grid.shape[0] - 1
    if torch.compiler.is_compiling() or times.numel() == 0:
        return [obs] * steps, [0] * steps, [obs] * steps
    columns = times.T.contiguous()
    before = torch.searchsorted(columns, grid.T.contiguous())
    upto = torch.searchsorted(columns, grid.T.contiguous(), right=True)
    forward = before[:, 1:].amax(0)
    first = upto[:, :-1].amin(0)
    last = torch.full_like(first, obs)
    if causal:
        piece_end = (torch.arange(steps, device=grid.device) // per_piece + 1) * per_piece
        last = upto.amax(0)[piece_end]
    rows = torch.stack([forward, first, last]).tolist()
    return rows[0], rows[1], rows[2]


def _runge_kutta(field: StackedField, state: Tensor, start: Tensor, end: Tensor, steps: int) -> Tensor:
    """Classical Runge-Kutta of order 4 from ``start`` to ``end``, each row with a step of its own."""
    dtype = state.dtype
    step = (end - start) / steps
    h = step.to(dtype).unsqueeze(-1)
    half, sixth, third = h / 2, h / 6, h / 3
    for s in range(steps):
        at = start + s * step
        t0, t1, t2 = ((at + c * step).to(dtype).unsqueeze(-1) for c in (0.0, 0.5, 1.0))
        k1 = field(t0, state)
        k2 = field(t1, torch.addcmul(state, half, k1))
        k3 = field(t1, torch.addcmul(state, half, k2))
        k4 = field(t2, torch.addcmul(state, h, k3))
        state = torch.addcmul(torch.addcmul(state, sixth, k1 + k4), third, k2 + k3)
    return state


def warn_unresolved(tail: float, degree: int, advice: str) -> None:
    """Say that trajectories are not resolved, by how much, and what to do."""
    warnings.warn(
        f"trajectories are not resolved at degree {degree}: the last coefficients are {tail:.1e} of the curve. {advice}",
        ResolutionWarning,
        stacklevel=3,
    )


def evaluate_basis(
    pieces: Pieces, t: Float[Tensor, "batch *shape"], terms: int, piece: Int[Tensor, "batch *shape"] | None = None
) -> Float[Tensor, "batch *shape pieces terms"]:
    """``T_m(x_p(t))`` in the slot of the piece that holds ``t``, zero in the others: k(t) = Σ_{p,m} basis c_{p,m}."""
    if piece is None:
        piece = pieces.locate(t)
    basis = chebyshev_basis(pieces.local(t, piece), terms).unsqueeze(-2)
    if pieces.count == 1:
        return basis
    slot = torch.nn.functional.one_hot(piece, pieces.count).to(basis.dtype).unsqueeze(-1)
    return slot * basis
