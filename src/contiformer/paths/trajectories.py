"""Solve ``dk/dt = f(t, k)`` once from every observation, over the whole window, into Chebyshev series.

The window of a sequence is cut into pieces; on each piece every trajectory is a polynomial in the piece's own variable
``x`` in [-1, 1]. The field always receives the time itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from contiformer.paths.chebyshev import chebyshev_basis, hermite_nodes, hermite_to_chebyshev, running_mean_matrix
from contiformer.paths.interpolation import PiecewisePolynomial, pick_rows
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.runge_kutta import runge_kutta_step
from contiformer.paths.tables import table

#: Stacked fields: (t [B, N, 1], states [S, B, N, d]) -> derivatives [S, B, N, d], one field for each of the S states.
StackedField = Callable[[Tensor, Tensor], Tensor]
#: Pieces without a point in a row that a causal model resolves.
EMPTY_PIECES = 16


class ResolutionWarning(UserWarning):
    """The series do not resolve the trajectories; the message says by how much and what to raise."""


@dataclass(frozen=True)
class Pieces:
    """Beginnings and ends of the pieces of each sequence.

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
        inner = self._inner.view(t.shape[0], *(1 for _ in t.shape[1:]), -1)
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
        """The places at which edges cut intervals, as a share of their length: 0 before an interval, 1 behind it.

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


def window_pieces(
    start: Float[Tensor, " batch"], end: Float[Tensor, " batch"], length: float, limit: int, count: int | None = None
) -> Pieces:
    """Cut each window into equal pieces of at most ``length``; of more than that where ``limit`` pieces do not do.

    ``count``: how many pieces there are, some of them empty; None: as many as the longest window needs.
    """
    window = end - start
    if count is None and window.numel() and float(window.max()) <= length:
        return Pieces(torch.stack([start, start + window], dim=1))
    wanted = torch.ceil(window / length - 1e-9).clamp(1, limit)
    if count is None:
        count = int(wanted.max()) if wanted.numel() else 1
    step = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    share = torch.minimum(step / wanted[:, None], torch.ones_like(start)[:, None])
    return Pieces(start[:, None] + share * window[:, None])


def fixed_pieces(points: Float[Tensor, "batch points"], length: float, limit: int) -> Pieces:
    """Pieces of exactly ``length``, counted from the first point of each sequence; long empty stretches are one piece.

    After :data:`EMPTY_PIECES` pieces without a point, what is left up to the next point's piece is a single one: the
    number of pieces follows the number of points, not the time they span. What comes later never moves an edge between
    earlier points.
    """
    if not points.numel():
        return Pieces(points.new_zeros(len(points), 2))
    start = points.amin(1, keepdim=True)
    number = torch.ceil((points - start) / length - 1e-9).clamp(min=1) - 1
    last = number.amax(1, keepdim=True) + 1
    ahead = torch.arange(EMPTY_PIECES + 2, device=points.device, dtype=points.dtype)
    edges = torch.minimum((number.unsqueeze(-1) + ahead).flatten(1), last).sort(1).values
    again = torch.zeros_like(edges, dtype=torch.bool)
    again[:, 1:] = edges[:, 1:] == edges[:, :-1]
    count = int((~again).sum(1).max())
    if count - 1 > limit:
        raise ValueError(
            f"a causal sequence needs {count - 1} pieces of length {length:g}, more than {limit}: scale the times so "
            "that a sequence spans about 1, pass a larger piece_length, or divide the sequence"
        )
    edges = edges.masked_fill(again, torch.inf).sort(1).values[:, :count]
    return Pieces(start + length * torch.minimum(edges, last))


def counted_pieces(start: Float[Tensor, " batch"], end: Float[Tensor, " batch"], length: float, count: int) -> Pieces:
    """So many pieces of exactly ``length`` from each start on, the last one as long as it takes, those behind it empty.

    Shapes do not depend on values.
    """
    needed = torch.ceil((end - start) / length - 1e-9).clamp(min=1)
    step = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    edges = start[:, None] + length * torch.minimum(step, needed[:, None])
    return Pieces(torch.cat([edges[:, :-1], torch.maximum(edges[:, -1], end)[:, None]], 1))


def nodes_for_degree(degree: int) -> int:
    """Number of Hermite nodes whose ``2n`` coefficients reach ``degree``."""
    return max(2, degree // 2 + 1)


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
    grid, dtype, substeps = node_times(pieces, nodes), initial.dtype, substeps_for(nodes)
    total = grid.shape[1]
    before = (grid[:, None, :] < times.detach().unsqueeze(-1)).sum(-1)
    earliest = pieces.edges.gather(1, pieces.locate(times)) if causal else grid[:, :1]
    # all times at once, [G, B, N]: where each step begins and ends
    step = torch.arange(total, device=times.device)[:, None, None]
    onward = before + step
    node = torch.where(onward < total, onward, total - 1 - step)
    target = torch.maximum(grid.expand(total, -1, -1).gather(2, node), earliest)
    again = (onward == total).unsqueeze(-1)
    begin = torch.where(again.squeeze(-1), times, torch.cat([times.unsqueeze(0), target[:-1]]))
    length = ((target - begin) / substeps).unsqueeze(-1)
    begin = begin.unsqueeze(-1)
    h = length.to(dtype)
    first = field(times.to(dtype).unsqueeze(-1), initial)
    state, slope, states, slopes = initial, first, [], []
    for number in range(total):
        state, slope = torch.where(again[number], initial, state), torch.where(again[number], first, slope)
        for sub in range(substeps):
            middle, end = ((begin[number] + (sub + c) * length[number]).to(dtype) for c in (0.5, 1.0))

            def stage(x: Tensor, c: float, k1: Tensor = slope, t2: Tensor = middle, t3: Tensor = end) -> Tensor:
                return k1 if c == 0 else field(t2 if c < 1 else t3, x)

            state = runge_kutta_step(stage, state, h[number])
            slope = field(end, state)
        states.append(state)
        slopes.append(slope)
    # node m was reached in step m - g or, before the observation, G - 1 - m; the edge between two pieces is in both
    within = torch.arange(nodes, device=times.device)
    node = (torch.arange(pieces.count, device=times.device)[:, None] * (nodes - 1) + within).flatten()
    before = before.unsqueeze(-1)
    reached = torch.where(node >= before, node - before, total - 1 - node)
    matrix = table(hermite_to_chebyshev, nodes, initial)
    half = pieces.half_lengths.to(dtype)[:, None, :, None, None]
    coefficients = initial.new_zeros(())
    for data, part, scale in ((states, matrix[:, :nodes], None), (slopes, matrix[:, nodes:], half)):
        along = torch.stack(data, 3)
        at = along.gather(3, reached[None, ..., None].expand(len(initial), -1, -1, -1, along.shape[-1]))
        terms = part @ at.unflatten(3, (pieces.count, nodes))
        coefficients = coefficients + (terms if scale is None else scale * terms)
    return coefficients


def node_times(pieces: Pieces, nodes: int) -> Float[Tensor, "batch grid"]:
    """The nodes of all pieces in order, the edge between two pieces once."""
    x = table(hermite_nodes, nodes, pieces.edges)
    inner = pieces.edges[:, :-1, None] + (x[:-1] + 1) * pieces.half_lengths[..., None]
    return torch.cat([inner.flatten(1), pieces.edges[:, -1:]], dim=1)


def substeps_for(nodes: int) -> int:
    """Runge-Kutta steps between two nodes: the series converges faster than the solver, which has to keep up."""
    return max(1, round((nodes / 5) ** 2))


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


def basis_means(
    path: PiecewisePolynomial,
    cell: tuple[Int[Tensor, "batch rows"], Bool[Tensor, "batch rows"]] | None,
    start: Float[Tensor, "batch rows"],
    length: Float[Tensor, "batch rows"],
    pieces: Pieces,
    terms: int,
    heads: int,
) -> Float[Tensor, "batch heads rows pmd"]:
    """Means of ``T_m(x_p(τ)) q(τ)`` over the part of an interval in each piece, as shares of the whole interval.

    An interval lies in one cell of the path, so the integrand is a polynomial and the quadrature exact. ``cell``: its
    number, and where the path is held at the cell's first value instead; None: interval n is cell n. Nothing is divided
    by the length: the mean over an interval of length zero is the value there.
    """
    coefficients, power = path.coefficients, path.coefficients.shape[2]
    nodes, weights = table(gauss_legendre, (terms + power) // 2, start)
    shares = pieces.shares(start, length)
    width = (shares[..., 1:] - shares[..., :-1]).unsqueeze(-1)
    at = shares[..., :-1].unsqueeze(-1) + width * nodes  # [B, rows, P, nodes], in [0, 1] along the interval
    basis = chebyshev_basis(pieces.unit(start[..., None, None] + length[..., None, None] * at), terms)
    s = at
    if cell is not None:
        number, held = cell
        coefficients = pick_rows(coefficients.flatten(2), number).unflatten(2, coefficients.shape[2:])
        begin, size = path.cell(number)
        s = ((start - begin)[..., None, None] + length[..., None, None] * at) / size[..., None, None]
        s = s.masked_fill(held[..., None, None], 0.0)
    powers = torch.stack([width * weights * s**j for j in range(power)], -1)
    numbers = (basis.mT @ powers).flatten(2, 3).to(coefficients.dtype)  # [B, rows, P M, power]
    means = (numbers @ coefficients).unflatten(-1, (heads, -1))
    return means.permute(0, 3, 1, 2, 4).flatten(3)


def running_means(
    series: Float[Tensor, "batch keys pieces terms d"], time: Float[Tensor, "batch keys"], pieces: Pieces, causal: bool
) -> tuple[Float[Tensor, "batch keys pieces terms d"], Float[Tensor, "batch keys pieces d"] | None]:
    """Means of each trajectory from its own time on, as series, and its integrals up to each piece (None: one piece).

    On other pieces than its own a mean begins at the edge that is nearer to the trajectory's time, up to which the
    integral is.
    """
    dtype, terms = series.dtype, series.shape[3]
    nearest = pieces.clamp(time)  # [B, keys, P]: where a mean over a piece begins
    means = running_mean_matrix(pieces.unit(nearest.unsqueeze(-1)).squeeze(-1), terms).to(dtype) @ series
    if pieces.count == 1:
        return means, None
    low, high = pieces.edges[:, None, :-1], pieces.edges[:, None, 1:]
    ends = chebyshev_basis(torch.stack([-torch.ones_like(low), torch.ones_like(low)]), terms).to(dtype)
    to_left, to_right = (
        (end.unsqueeze(-2) @ means).squeeze(-2) * length.to(dtype).unsqueeze(-1)
        for end, length in zip(ends, (nearest - low, high - nearest), strict=True)
    )
    carry = pad(to_right, (0, 0, 1, -1)).cumsum(2)
    if not causal:
        carry = carry + pad(to_left, (0, 0, -1, 1)).flip(2).cumsum(2).flip(2)
    return means, carry


@torch.no_grad()
def series_sizes(
    series: Float[Tensor, "states batch keys pieces terms d"],
    initial: Float[Tensor, "states batch keys d"],
    time: Float[Tensor, "batch keys"],
    shown: Bool[Tensor, "batch keys"],
    pieces: Pieces,
    causal: bool,
) -> Float[Tensor, "three states batch pieces"]:
    """Squares of the last two coefficients, of all, and of the initial values, summed over the keys that are read."""
    used = shown.unsqueeze(-1) & (pieces.edges[:, None, 1:] > time.unsqueeze(-1)) if causal else shown.unsqueeze(-1)
    last = (series[..., -1, :].abs() + series[..., -2, :].abs()).square().sum(-1)
    start = initial.square().sum(-1, keepdim=True).expand_as(last)
    return (torch.stack([last, series.square().sum((-1, -2)), start]) * used).sum(3)


def tail_of(sizes: Float[Tensor, "three states batch pieces"]) -> Float[Tensor, " batch"]:
    """Size of the last two coefficients relative to the curves: about the relative error of the series.

    The largest over states and pieces. Curves that grow over a long window are measured by their size at the start,
    which is where the others read them.
    """
    last, size, start = sizes
    scale = torch.maximum(torch.minimum(start, size), 1e-3 * size).clamp(min=torch.finfo(sizes.dtype).tiny)
    return (last / scale).sqrt().amax((0, 2))
