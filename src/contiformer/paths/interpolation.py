"""Continuous paths through irregular knots: linear, natural cubic, and backward-difference Hermite.

Every interpolant is a :class:`PiecewisePolynomial`: on the cell between two knots a polynomial in the local
variable ``s`` in [0, 1]. Outside the data the end values are held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from contiformer.paths.tables import traced

Interpolation = Literal["linear", "cubic", "hermite"]
INTERPOLATIONS: tuple[str, ...] = get_args(Interpolation)


@dataclass(frozen=True)
class PiecewisePolynomial:
    """A path ``p(t) = Σ_k coefficients[n, k] s^k`` with ``s = (t - t_n) / (t_{n+1} - t_n)`` on cell ``n``.

    There are as many cells as knots: the last one, which starts at the last knot, holds its value for ever.
    Before the first knot the first value is held. Of knots that coincide, all have the value there.

    Shapes: knots [B, N] (not decreasing; repeated knots bound empty cells), coefficients [B, N, K, d].

    Example:
        >>> import torch
        >>> from contiformer.paths import interpolate
        >>> path = interpolate("linear", torch.tensor([[0.0, 1.0]]), torch.tensor([[[2.0], [4.0]]]))
        >>> path(torch.tensor([[0.5, 3.0]])).flatten().tolist()
        [3.0, 4.0]
    """

    knots: Float[Tensor, "batch knots"]
    coefficients: Float[Tensor, "batch knots power d"]

    def locate(
        self, t: Float[Tensor, "batch query"]
    ) -> tuple[Int[Tensor, "batch query"], Float[Tensor, "batch query"]]:
        """The cell of each time and the local variable ``s`` there; ``s`` is differentiable in ``t``."""
        cell = (count_until(self.knots, t) - 1).clamp(min=0)
        return cell, self.local(t, cell)

    def cell(self, number: Int[Tensor, "batch query"]) -> tuple[Tensor, Tensor]:
        """Start and length of the cells with these numbers; 1 for the length of empty ones and the last."""
        following = (number + 1).clamp(max=self.knots.shape[1] - 1)
        start = self.knots.gather(1, number)
        length = self.knots.gather(1, following) - start
        return start, length.masked_fill(length <= 0, 1.0)

    def local(self, t: Float[Tensor, "batch query"], cell: Int[Tensor, "batch query"]) -> Float[Tensor, "batch query"]:
        """``s`` of time ``t`` in the given cell, clamped to [0, 1]."""
        start, length = self.cell(cell)
        return ((t - start) / length).clamp(0.0, 1.0)

    def __call__(self, t: Float[Tensor, "batch query"]) -> Float[Tensor, "batch query d"]:
        """Values at the times ``t`` [B, Q] -> [B, Q, d], differentiable in ``t`` and in the coefficients."""
        cell, s = self.locate(t.to(self.knots.dtype))
        s = s.to(self.coefficients.dtype).unsqueeze(-1)
        *lower, value = self._terms(cell)
        for term in reversed(lower):
            value = value * s + term
        return value

    def _terms(self, cell: Int[Tensor, "batch query"]) -> list[Float[Tensor, "batch query d"]]:
        """The coefficients of each of the given cells, by power."""
        return list(pick_rows(self.coefficients, cell).unbind(2))

    def refined(
        self,
        points: Float[Tensor, "batch points"],
        cells: tuple[Int[Tensor, "batch points"], Bool[Tensor, "batch points"]] | None = None,
    ) -> PiecewisePolynomial:
        """The same path with a cell from each of the points to the next: they do not decrease, and include the knots.

        On the part ``s = a + w u`` of a cell the coefficients are ``w^j Σ_k binomial(k, j) a^(k-j) c_k``. ``cells``:
        numbers of the cells, for points in any order, and where the path is held at the cell's first value instead.
        """
        points = points.to(self.knots.dtype)
        following = torch.cat([points[:, 1:], points[:, -1:]], dim=1)
        cell = self.locate(points)[0] if cells is None else cells[0]
        begin, end = self.local(points, cell), self.local(following, cell)
        if cells is not None:
            begin, end = (x.masked_fill(cells[1], 0.0) for x in (begin, end))
        part = end - begin
        begin, part = (x.to(self.coefficients.dtype).unsqueeze(-1) for x in (begin, part))
        terms = self._terms(cell)
        for done in range(len(terms) - 1):
            for k in range(len(terms) - 2, done - 1, -1):
                terms[k] = terms[k] + begin * terms[k + 1]
        return PiecewisePolynomial(points, torch.stack([term * part**j for j, term in enumerate(terms)], dim=2))


def count_until(knots: Float[Tensor, "batch knots"], t: Float[Tensor, "batch query"]) -> Int[Tensor, "batch query"]:
    """Count the sorted knots at or before each time.

    Example:
        >>> import torch
        >>> from contiformer.paths.interpolation import count_until
        >>> count_until(torch.tensor([[0.0, 1.0]]), torch.tensor([[-1.0, 0.0, 0.5, 1.0]])).tolist()
        [[0, 1, 1, 2]]
    """
    knots, t = knots.detach(), t.detach()
    # by comparisons where they are few: an ONNX file, torch.func.vmap and accelerators have no search
    if traced(knots, t) or knots.shape[1] <= 64:
        return (knots.unsqueeze(1) <= t.unsqueeze(2)).sum(-1)
    return torch.searchsorted(knots.contiguous(), t.contiguous(), right=True)


def pick_rows(
    x: Float[Tensor, "batch rows *shape"], index: Int[Tensor, "batch some"]
) -> Float[Tensor, "batch some *shape"]:
    """Rows of each sequence at the given positions."""
    shape = x.shape[2:]
    return x.gather(1, index.view(*index.shape, *(1 for _ in shape)).expand(*index.shape, *shape))


def interpolate(
    kind: Interpolation,
    times: Float[Tensor, "batch knots"],
    values: Float[Tensor, "batch knots d"],
    lengths: Int[Tensor, " batch"] | None = None,
    *,
    distinct: bool = False,
) -> PiecewisePolynomial:
    """The path of the given kind through ``values`` at ``times``.

    Args:
        kind: "linear"; "cubic", the natural cubic spline (it depends on future knots); or "hermite", the cubic whose
            slope at a knot is the backward difference (its cells depend on no later knot than their own end).
        times: [B, N], not decreasing along each row up to its length.
        values: [B, N, d].
        lengths: number of valid knots of each row, at least 1 (None: all are valid).
        distinct: promise that all knots are valid and no two of a row coincide, which skips the merging below.

    Knots at equal times become one with the mean of their values: a path has one value at a time, and the order of
    rows that share a time must not matter.

    Example:
        >>> import torch
        >>> from contiformer.paths.interpolation import interpolate
        >>> path = interpolate("linear", torch.tensor([[0.0, 2.0]]), torch.tensor([[[0.0], [1.0]]]))
        >>> path(torch.tensor([[-1.0, 0.5, 9.0]])).flatten().tolist()
        [0.0, 0.25, 1.0]
    """
    if kind not in INTERPOLATIONS:
        raise ValueError(f"interpolation must be one of {INTERPOLATIONS}, got {kind!r}")
    if distinct:
        return PiecewisePolynomial(times, _coefficients(kind, times, values, None))
    merged, means, count, group = _merge_equal_times(times, values, lengths)
    coefficients = _coefficients(kind, merged, means, count)
    return PiecewisePolynomial(merged.gather(1, group), pick_rows(coefficients, group))


def _coefficients(
    kind: Interpolation,
    times: Float[Tensor, "batch knots"],
    values: Float[Tensor, "batch knots d"],
    lengths: Int[Tensor, " batch"] | None,
) -> Float[Tensor, "batch knots power d"]:
    """Coefficients of every cell between distinct knots; behind the last one, knots repeat it."""
    knots = times.shape[1]
    following = torch.cat([values[:, 1:], values[:, -1:]], dim=1)
    rise = following - values
    if kind == "linear":
        return torch.stack([values, rise], dim=2)
    width = torch.cat([times[:, 1:] - times[:, :-1], torch.zeros_like(times[:, :1])], dim=1)
    width = width.to(values.dtype).unsqueeze(-1)
    proper = width > 0
    safe = torch.where(proper, width, 1.0)
    if kind == "hermite":
        slope = rise / safe
        before = torch.cat([slope[:, :1], slope[:, :-1]], dim=1)
        start, end = before * width, slope * width
        square, cube = 3 * rise - 2 * start - end, start + end - 2 * rise
    else:
        curvature = _natural_curvature(safe, rise, proper, knots if lengths is None else lengths)
        after = torch.cat([curvature[:, 1:], curvature[:, -1:]], dim=1)
        scale = width**2 / 6
        start = rise - scale * (2 * curvature + after)
        square, cube = 3 * scale * curvature, scale * (after - curvature)
    flat = [torch.where(proper, term, 0.0) for term in (start, square, cube)]
    return torch.stack([values, *flat], dim=2)


def _merge_equal_times(
    times: Float[Tensor, "batch knots"], values: Float[Tensor, "batch knots d"], lengths: Int[Tensor, " batch"] | None
) -> tuple[Tensor, Tensor, Int[Tensor, " batch"], Int[Tensor, "batch knots"]]:
    """Distinct knots at the front of each row, the last one repeated behind them; and where each knot went.

    Values that share a time are replaced by their mean.
    """
    batch, knots, _ = values.shape
    index = torch.arange(knots, device=times.device)
    if lengths is None:
        lengths = torch.full((batch,), knots, device=times.device)
    valid = index < lengths[:, None]
    fresh = torch.cat([torch.ones_like(valid[:, :1]), times[:, 1:] > times[:, :-1]], 1) & valid
    group = fresh.cumsum(1) - 1
    count = torch.zeros_like(times, dtype=values.dtype).scatter_add(1, group, valid.to(values.dtype))
    shown = torch.where(valid[..., None], values, 0.0)
    mean = torch.zeros_like(values).scatter_add(1, group[..., None].expand_as(values), shown)
    mean = mean / count.clamp(min=1)[..., None]
    # only the first row of a group gives its time: the others would count again in the gradient
    merged = torch.zeros_like(times).scatter_add(1, group, torch.where(fresh, times, 0.0))
    distinct = group[:, -1] + 1
    keep = torch.minimum(index.expand_as(group), distinct[:, None] - 1)
    return merged.gather(1, keep), pick_rows(mean, keep), distinct, group


def _natural_curvature(
    width: Float[Tensor, "batch knots 1"],
    rise: Float[Tensor, "batch knots d"],
    proper: Tensor,
    lengths: Int[Tensor, " batch"] | int,
) -> Float[Tensor, "batch knots d"]:
    """Second derivatives ``m`` of the natural spline at the knots, zero at both ends.

    ``h_{n-1} m_{n-1} + 2 (h_{n-1} + h_n) m_n + h_n m_{n+1} = 6 (Δ_n - Δ_{n-1})``, each row divided by its diagonal.
    """
    knots = width.shape[1]
    index = torch.arange(knots, device=width.device)
    last = (lengths if isinstance(lengths, int) else lengths.unsqueeze(1)) - 1
    inner = ((index > 0) & (index < last)).unsqueeze(-1).expand_as(proper)
    slope = torch.where(proper, rise / width, 0.0)
    previous = torch.cat([width[:, :1], width[:, :-1]], dim=1)
    jump = slope - torch.cat([slope[:, :1], slope[:, :-1]], dim=1)
    diagonal = 2 * (previous + width)
    lower = torch.where(inner, previous / diagonal, 0.0)
    upper = torch.where(inner, width / diagonal, 0.0)
    right = torch.where(inner, 6 * jump / diagonal, 0.0)
    # each pass squares what couples the equations, at first a half: after six nothing of it is left in float64
    passes = 6 if traced(right) else min(6, (knots - 1).bit_length())
    return solve_tridiagonal(lower, upper, right, passes)


def solve_tridiagonal(
    lower: Float[Tensor, "batch n 1"],
    upper: Float[Tensor, "batch n 1"],
    right: Float[Tensor, "batch n d"],
    passes: int | None = None,
) -> Float[Tensor, "batch n d"]:
    """Solve ``lower_i y_{i-1} + y_i + upper_i y_{i+1} = right_i`` by cyclic reduction in parallel, O(n log n).

    After pass ``p`` each equation couples unknowns ``2^p`` apart, so ``log2 n`` passes (None) decouple them all. Stable
    for diagonally dominant systems such as the spline's.
    """
    n = right.shape[1]

    def shifted(x: Tensor, by: int) -> Tensor:
        """``x`` moved along the rows, zeros where there is none."""
        return pad(x, (0, 0, by, 0))[:, :n] if by > 0 else pad(x, (0, 0, 0, -by))[:, -by:]

    for number in range((n - 1).bit_length() if passes is None else passes):
        stride = 2**number
        low_up, up_low = shifted(upper, stride), shifted(lower, -stride)
        scale = 1 / (1 - lower * low_up - upper * up_low)
        right = scale * (right - lower * shifted(right, stride) - upper * shifted(right, -stride))
        lower, upper = -scale * lower * shifted(lower, stride), -scale * upper * shifted(upper, -stride)
    return right
