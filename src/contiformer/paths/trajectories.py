"""Solve ``dk/dt = f(t, k)`` once from every observation, over the whole window, into Chebyshev series.

The window of a sequence is cut into pieces; on each piece every trajectory is a polynomial in the piece's own variable
``x`` in [-1, 1]. The field always receives the time itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contiformer.paths.chebyshev import chebyshev_basis, hermite_nodes, hermite_to_chebyshev
from contiformer.paths.runge_kutta import runge_kutta_step
from contiformer.paths.tables import table

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

    def locate(self, t: Float[Tensor, " batch *shape"]) -> Int[Tensor, " batch *shape"]:
        """The piece that holds each time; times outside the window belong to the nearest piece."""
        if self.count == 1:
            return torch.zeros_like(t, dtype=torch.long)
        inner = self._inner.view(len(t), *(1 for _ in t.shape[1:]), -1)
        return (t.detach().unsqueeze(-1) >= inner).sum(-1)

    @property
    def _inner(self) -> Float[Tensor, "batch inner"]:
        """Edges between pieces; infinity for those at the end of a window, behind which pieces are empty."""
        inner = self.edges[:, 1:-1]
        return inner.masked_fill(inner >= self.edges[:, -1:], torch.inf)

    def unit(self, t: Float[Tensor, "batch rows pieces points"]) -> Float[Tensor, "batch rows pieces points"]:
        """The variable ``x`` on each piece, of times on it; zero on empty pieces."""
        half = self.half_lengths[:, None, :, None]
        empty = half <= 0
        return ((t - self.edges[:, None, :-1, None]) / half.masked_fill(empty, 1.0) - 1).masked_fill(empty, 0.0)

    def local(self, t: Float[Tensor, " batch *shape"], piece: Int[Tensor, " batch *shape"]) -> Float[Tensor, "..."]:
        """The variable ``x`` of time ``t`` on the given piece, clamped to [-1, 1]."""
        shape = t.shape
        flat = piece.reshape(shape[0], -1)
        start = self.edges.gather(1, flat).reshape(shape)
        half = self.half_lengths.gather(1, flat).reshape(shape)
        proper = half > 0
        x = torch.where(proper, (t - start) / torch.where(proper, half, 1.0) - 1, 0.0)
        # rounding may put the window's last time beyond 1: move it back, but keep its derivative
        return x + (x.clamp(-1.0, 1.0) - x).detach()

    def clamp(self, t: Float[Tensor, "batch rows"]) -> Float[Tensor, "batch rows pieces"]:
        """Each time clamped to each piece; only on its own piece does it keep its derivative."""
        own = torch.arange(self.count, device=t.device) == self.locate(t).unsqueeze(-1)
        bounded = torch.minimum(torch.maximum(t.detach()[..., None], self.edges[:, None, :-1]), self.edges[:, None, 1:])
        return torch.where(own, t.unsqueeze(-1), bounded)

    def shares(
        self, start: Float[Tensor, "batch rows"], length: Float[Tensor, "batch rows"]
    ) -> Float[Tensor, "batch rows edges"]:
        """Where the edges cut intervals, as a share of their length: 0 before an interval, 1 behind it.

        An interval of length zero lies in one piece as a whole.
        """
        first, last = torch.zeros_like(start).unsqueeze(-1), torch.ones_like(start).unsqueeze(-1)
        if self.count == 1:
            return torch.cat([first, last], -1)
        from_start = self._inner[:, None] - start.unsqueeze(-1)
        length = length.unsqueeze(-1).expand_as(from_start)
        cut = (from_start > 0) & (from_start < length)
        inner = torch.where(cut, from_start.where(cut, 0.0) / length.where(cut, 1.0), (from_start > 0).to(start.dtype))
        return torch.cat([first, inner, last], -1)


def window_pieces(start: Float[Tensor, " batch"], end: Float[Tensor, " batch"], length: float, limit: int) -> Pieces:
    """Cut each window into equal pieces of at most ``length``; of more than that where ``limit`` pieces do not do."""
    window = end - start
    wanted = torch.ceil(window / length - 1e-9).clamp(1, limit)
    count = int(wanted.max()) if wanted.numel() else 1
    step = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    share = torch.minimum(step / wanted[:, None], torch.ones_like(start)[:, None])
    return Pieces(start[:, None] + share * window[:, None])


def fixed_pieces(start: Float[Tensor, " batch"], end: Float[Tensor, " batch"], length: float, limit: int) -> Pieces:
    """Pieces of exactly ``length`` from the start of each sequence: what comes later never moves an earlier edge."""
    needed = (end - start) / length
    count = max(1, math.ceil(float(needed.max()) - 1e-9)) if needed.numel() else 1
    if count > limit:
        raise ValueError(
            f"a causal sequence spans {float(needed.max()):.4g} pieces of length {length:g}, more than {limit}: "
            "scale the times so that a sequence spans about 1, or pass a larger piece_length"
        )
    step = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    return Pieces(start[:, None] + step * length)


def single_piece(start: Float[Tensor, " batch"], end: Float[Tensor, " batch"], least: float) -> Pieces:
    """One piece for each window, at least so long: what the values are does not change its shape."""
    return Pieces(torch.stack([start, torch.maximum(end, start + least)], dim=1))


@dataclass(frozen=True)
class Trajectories:
    """``k_i(t) = Σ_m series[i, p, m] T_m(x_p(t))`` on piece ``p``: one series for each observation.

    Shapes: series [B, H, N, P, M, dk], one for each of S stacked states, their width in H parts; initial [S, N, B, d],
    the values at the observations; squares [2, S, N, B, P], sums over the width of ``(|c_{M-2}| + |c_{M-1}|)²`` and of
    ``Σ_m c_m²``.
    """

    series: tuple[Float[Tensor, "batch heads obs pieces terms dk"], ...]
    squares: Float[Tensor, "two states obs batch pieces"]
    pieces: Pieces
    initial: Float[Tensor, "states obs batch d"]

    @classmethod
    def of(
        cls, coefficients: Float[Tensor, "pieces terms states obs batch d"], pieces: Pieces, initial: Tensor, heads: int
    ) -> Trajectories:
        """From coefficients in the order in which the sweeps make them."""
        by_head = coefficients.unflatten(-1, (heads, -1)).permute(2, 4, 5, 3, 0, 1, 6)
        c = coefficients.detach()
        last, size = c[:, -2:].abs().sum(1).square().sum(-1), c.square().sum((1, -1))
        return cls(by_head.unbind(0), torch.stack([last, size]).permute(0, 2, 3, 4, 1), pieces, initial)

    @property
    def coefficients(self) -> Float[Tensor, "pieces terms states obs batch d"]:
        """All states in one tensor."""
        return torch.stack(self.series).permute(4, 5, 0, 3, 1, 2, 6).flatten(-2)

    def select(self, index: Int[Tensor, " some"]) -> Trajectories:
        """Those of some sequences of the batch."""
        return Trajectories(
            tuple(series[index] for series in self.series),
            self.squares[:, :, :, index],
            Pieces(self.pieces.edges[index]),
            self.initial[:, :, index],
        )

    @property
    def terms(self) -> int:
        """Number of coefficients M."""
        return self.series[0].shape[4]

    @torch.no_grad()
    def tail(self, used: Bool[Tensor, "#pieces obs batch"]) -> Float[Tensor, " batch"]:
        """How large the last two coefficients are beside the curves: about the relative error of the series.

        The root of the mean square over a sequence's ``used`` trajectories, the largest over states and pieces. Curves
        that grow over a long window are measured by their size at the start, which is where the others read them.
        """
        keep = used.permute(1, 2, 0).to(self.squares.dtype)
        last, size = (self.squares * keep).sum(2)
        start = (self.initial.detach().square().sum(-1, keepdim=True) * keep).sum(1)
        scale = torch.maximum(torch.minimum(start, size), 1e-3 * size)
        return (last / scale.clamp(min=torch.finfo(keep.dtype).tiny)).sqrt().amax((0, 2))


def nodes_for_degree(degree: int) -> int:
    """Number of Hermite nodes whose ``2n`` coefficients reach ``degree``."""
    return max(2, degree // 2 + 1)


def solve_trajectories_fast(
    field: StackedField,
    initial: Float[Tensor, "states obs batch d"],
    times: Float[Tensor, "obs batch"],
    pieces: Pieces,
    degree: int,
    *,
    causal: bool = False,
    heads: int = 1,
    valid: Bool[Tensor, "obs batch"] | None = None,
) -> Trajectories:
    """Trajectories through ``initial`` at ``times`` under ``field``, over all pieces, in both directions.

    One batched Runge-Kutta sweep over the nodes from left to right carries every observation from its own time onwards
    (it starts inside the step that contains it), another from right to left carries it backwards. With the field at the
    nodes, value and derivative give two coefficients for each node.

    A causal model reads a trajectory only after its observation, so there the backward sweep stops at the left edge of
    the observation's own piece, and what lies before that piece is left constant.

    A field with a method ``sweep`` brings its own faster way to the same values and derivatives, one with a method
    ``solve`` to the series themselves (or None, where it cannot). ``heads`` only arranges the result. Nobody reads the
    trajectories that are not ``valid``: a faster way may leave them zero.
    """
    nodes = nodes_for_degree(degree)
    matrix = _coefficient_matrix(nodes, initial)
    solve = getattr(field, "solve", None)
    solved = None if solve is None else solve(initial, times, pieces, matrix, causal, heads, valid)
    if solved is not None:
        series, squares = solved
        return Trajectories(series, squares, pieces, initial)
    fast = getattr(field, "sweep", None)
    if fast is None:
        data = sweep(field, initial, SweepPlan.of(times, pieces, nodes, causal))
    else:
        data = fast(initial, times, pieces, nodes, causal)
    if pieces.count == 1:
        coefficients = (matrix @ data.view(2 * nodes, -1)).view(1, 2 * nodes, *initial.shape)
        return Trajectories.of(coefficients, pieces, initial, heads)
    index = torch.arange(pieces.count)[:, None] * (nodes - 1) + torch.arange(nodes)
    # the derivatives came scaled for pieces of full length; a piece of length zero has none
    proper = (pieces.half_lengths > 0).T.to(initial.dtype)[:, None, None, None, :, None]
    values, slopes = data[0][index], data[1][index] * proper
    coefficients = matrix @ torch.cat([values, slopes], 1).view(pieces.count, 2 * nodes, -1)
    return Trajectories.of(coefficients.view(pieces.count, 2 * nodes, *initial.shape), pieces, initial, heads)


def solve_trajectories(
    field: StackedField,
    initial: Float[Tensor, "states batch obs d"],
    times: Float[Tensor, "batch obs"],
    pieces: Pieces,
    nodes: int,
    *,
    causal: bool = False,
) -> Float[Tensor, "states batch obs pieces terms d"]:
    """Coefficients of the trajectories through ``initial`` at ``times``: ``k_i(t) = Σ_m c_{i,p,m} T_m(x_p(t))``.

    One schedule serves all observations. Of the ``G`` nodes of all pieces let ``g`` lie before ``t_i``. In step ``s``
    the trajectory moves on to node ``g + s``; behind the last one it begins again at ``t_i`` and moves to node
    ``G - 1 - s``. A step is Runge-Kutta's; the slope at its end is the first stage of the next one, and with the value
    there gives two coefficients for each node.

    A causal model reads a trajectory only after its observation: nothing moves before the observation's own piece,
    where a solution may run away.
    """
    grid = node_times(pieces, nodes)
    total, steps, dtype = grid.shape[1], substeps_for(nodes), initial.dtype
    before = (grid[:, None, :] < times.detach().unsqueeze(-1)).sum(-1)
    earliest = pieces.edges.gather(1, pieces.locate(times)) if causal else grid[:, :1]
    first = field(times.to(dtype).unsqueeze(-1), initial)
    state, slope, now = initial, first, times
    states, slopes = [], []
    for step in range(total):
        again = before + step == total
        state, slope = (torch.where(again.unsqueeze(-1), x, y) for x, y in ((initial, state), (first, slope)))
        now = torch.where(again, times, now)
        node = torch.where(before + step < total, before + step, total - 1 - step)
        target = torch.maximum(grid.gather(1, node), earliest)
        h = (target - now) / steps
        for sub in range(steps):
            state, slope = _advance(field, state, slope, now + sub * h, h)
        now = target
        states.append(state)
        slopes.append(slope)
    # node m was reached in step m - g or, before the observation, G - 1 - m; the edge between two pieces is in both
    within = torch.arange(nodes, device=times.device)
    node = (torch.arange(pieces.count, device=times.device)[:, None] * (nodes - 1) + within).flatten()
    before = before.unsqueeze(-1)
    reached = torch.where(node >= before, node - before, total - 1 - node)
    matrix = table(hermite_to_chebyshev(nodes), initial)
    half = pieces.half_lengths.to(dtype)[:, None, :, None, None]
    coefficients = initial.new_zeros(())
    for data, part, scale in ((states, matrix[:, :nodes], None), (slopes, matrix[:, nodes:], half)):
        along = torch.stack(data, 3)
        at = along.gather(3, reached[None, ..., None].expand(len(initial), -1, -1, -1, along.shape[-1]))
        terms = part @ at.unflatten(3, (pieces.count, nodes))
        coefficients = coefficients + (terms if scale is None else scale * terms)
    return coefficients


def _advance(field: StackedField, x: Tensor, slope: Tensor, t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Value and slope after one Runge-Kutta step of length ``h``, which begins with the slope there."""

    def at(share: float) -> Tensor:
        return (t + share * h).to(x.dtype).unsqueeze(-1)

    after = runge_kutta_step(lambda y, c: field(at(c), y) if c else slope, x, h.to(x.dtype).unsqueeze(-1))
    return after, field(at(1.0), after)


def _coefficient_matrix(nodes: int, like: Tensor) -> Float[Tensor, "terms data"]:
    """From values and derivatives at the nodes to Chebyshev coefficients."""
    return torch.as_tensor(hermite_to_chebyshev(nodes), dtype=like.dtype, device=like.device)


def node_times(pieces: Pieces, nodes: int) -> Float[Tensor, "batch grid"]:
    """The nodes of all pieces in order, the edge between two pieces once."""
    x = table(hermite_nodes(nodes), pieces.edges)
    inner = pieces.edges[:, :-1, None] + (x[:-1] + 1) * pieces.half_lengths[..., None]
    return torch.cat([inner.flatten(1), pieces.edges[:, -1:]], dim=1)


def substeps_for(nodes: int) -> int:
    """Runge-Kutta steps between two nodes: the series converges faster than the solver, which has to keep up."""
    return max(1, round((nodes / 5) ** 2))


@dataclass(frozen=True)
class SweepPlan:
    """Which observations move from which time to which in every step of the two sweeps.

    ``grid`` [G, B] holds the nodes of all pieces, ``times`` [N, B] the observations. In step s the forward sweep goes
    from node s to s + 1 and moves the first ``forward[s]`` observations; the backward sweep goes from node G - 1 - s to
    G - 2 - s and moves those in the slice ``backward[s]``. Each step is divided into ``substeps``. ``stretch`` [B] is
    ``dt/dx`` on the pieces.
    """

    times: Float[Tensor, "obs batch"]
    grid: Float[Tensor, "grid batch"]
    stretch: Float[Tensor, " batch"]
    forward: list[int]
    backward: list[slice]
    substeps: int

    @classmethod
    def of(cls, times: Float[Tensor, "obs batch"], pieces: Pieces, nodes: int, causal: bool) -> SweepPlan:
        """Times are sorted, so the observations that move are slices: the smallest that serve the whole batch."""
        half, grid, substeps = pieces.half_lengths, node_times(pieces, nodes), substeps_for(nodes)
        obs, steps = times.shape[0], grid.shape[1] - 1
        if times.numel() == 0:
            return cls(times, grid.T, half[:, 0], [obs] * steps, [slice(0, obs)] * steps, substeps)
        columns = times.T.contiguous()
        before = torch.searchsorted(columns, grid)
        upto = torch.searchsorted(columns, grid, right=True)
        rows = torch.stack([before.amax(0), upto.amin(0), upto.amax(0)]).tolist()
        forward, first, last = rows[0][1:], rows[1][:-1], [obs] * steps
        if causal:
            last = [rows[2][(step // (nodes - 1) + 1) * (nodes - 1)] for step in range(steps)]
        backward = [slice(a, max(a, b)) for a, b in zip(first, last, strict=True)][::-1]
        return cls(times, grid.T, half[:, 0], forward, backward, substeps)

    def starts(self) -> Float[Tensor, "steps obs batch"]:
        """Where each observation stands in each step, left to right: at its own time or at an end of the step."""
        return torch.minimum(torch.maximum(self.times, self.grid[:-1, None]), self.grid[1:, None])

    def reached(self) -> Bool[Tensor, "grid 1 obs batch 1"]:
        """Where the forward sweep has the value: at nodes at or after the observation."""
        return (self.grid[:, None] >= self.times)[:, None, :, :, None]


def sweep(field: StackedField, initial: Tensor, plan: SweepPlan) -> Float[Tensor, "two grid states obs batch d"]:
    """Values and x-derivatives of all trajectories at the nodes, for any field."""
    obs, last = plan.times.shape[0], plan.grid.shape[0] - 1
    starts = plan.starts()
    ahead, back = [initial], [initial]
    for step in range(last):
        moves = (
            (ahead, slice(0, plan.forward[step]), starts[step], plan.grid[step + 1]),
            (back, plan.backward[step], starts[last - 1 - step], plan.grid[last - 1 - step]),
        )
        for reached, rows, start, target in moves:
            state = reached[-1]
            if rows.start < rows.stop:
                moved = _runge_kutta(field, state[:, rows], start[rows], target - start[rows], plan.substeps)
                whole = rows.start == 0 and rows.stop == obs
                state = moved if whole else torch.cat([state[:, : rows.start], moved, state[:, rows.stop :]], dim=1)
            reached.append(state)
    at_nodes = torch.where(plan.reached(), torch.stack(ahead), torch.stack(back[::-1]))
    nodes, states, obs, batch, width = at_nodes.shape
    times = plan.grid.to(initial.dtype)[:, None].expand(-1, obs, -1).reshape(-1, batch, 1)
    slopes = field(times, at_nodes.transpose(0, 1).reshape(states, -1, batch, width))
    slopes = slopes.view(states, nodes, obs, batch, width).transpose(0, 1) * plan.stretch.to(initial.dtype)[:, None]
    return torch.stack([at_nodes, slopes])


def _runge_kutta(field: StackedField, state: Tensor, start: Tensor, length: Tensor, steps: int) -> Tensor:
    """Classical Runge-Kutta of order 4 from ``start`` on, each row over a length of its own."""
    dtype = state.dtype
    step = length / steps
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
        f"trajectories are not resolved at degree {degree}: their last coefficients are {tail:.1e} of them. {advice}",
        ResolutionWarning,
        stacklevel=3,
    )


def evaluate_basis(
    pieces: Pieces, t: Float[Tensor, " batch *shape"], terms: int, piece: Int[Tensor, " batch *shape"] | None = None
) -> Float[Tensor, "batch *shape pieces terms"]:
    """``T_m(x_p(t))`` in the slot of the piece that holds ``t``, zero in the others: k(t) = Σ_{p,m} basis c_{p,m}."""
    if piece is None:
        piece = pieces.locate(t)
    basis = chebyshev_basis(pieces.local(t, piece), terms).unsqueeze(-2)
    if pieces.count == 1:
        return basis
    slot = torch.nn.functional.one_hot(piece, pieces.count).to(basis.dtype).unsqueeze(-1)
    return slot * basis
