"""Integrals of a path against the Chebyshev basis: what a matrix product with the coefficients turns into ``∫ q·k``."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contiformer.native.small_matmul import small_products
from contiformer.nn.heads import split_heads
from contiformer.paths.chebyshev import chebyshev_basis
from contiformer.paths.interpolation import PiecewisePolynomial
from contiformer.paths.quadrature import gauss_legendre
from contiformer.paths.trajectories import Pieces


def interval_moments(
    path: PiecewisePolynomial,
    pieces: Pieces,
    terms: int,
    start: Float[Tensor, "batch interval"],
    end: Float[Tensor, "batch interval"],
    cell: Int[Tensor, "batch interval"] | None,
    piece: Int[Tensor, "batch interval"],
    heads: int = 1,
) -> Float[Tensor, "batch heads interval pieces_terms dk"]:
    """``∫_start^end T_m(x_p(τ)) q(τ) dτ`` for each interval, which must lie in one cell of the path and one piece.

    The integrand is a polynomial there, so Gauss-Legendre with enough points is exact. The result has a slot for each
    (piece, term); those of other pieces are zero. ``cell=None`` says that interval n lies in cell n. The width of the
    path is split into ``heads``.
    """
    numbers = _basis_power_integrals(path, pieces, terms, start, end, cell, piece)
    power, width = path.coefficients.shape[2:]
    coefficients = path.coefficients
    if cell is not None:
        coefficients = coefficients.gather(1, cell[..., None, None].expand(-1, -1, power, width))
    by_head = coefficients.unflatten(-1, (heads, -1)).permute(0, 3, 1, 2, 4)
    return _into_slots(small_products(numbers.to(coefficients.dtype), by_head), piece, pieces.count)


def held_moments(
    value: Float[Tensor, "batch interval d"],
    pieces: Pieces,
    terms: int,
    start: Float[Tensor, "batch interval"],
    end: Float[Tensor, "batch interval"],
    heads: int = 1,
) -> Float[Tensor, "batch heads interval pieces_terms dk"]:
    """``value ∫_start^end T_m(x_p(τ)) dτ`` for intervals that may run through several pieces."""
    nodes, weights = _rule(terms, end)
    low, high = pieces.edges[:, None, :-1], pieces.edges[:, None, 1:]
    first, last = start[..., None].clamp(low, high), end[..., None].clamp(low, high)
    length = last - first
    tau = first[..., None] + length[..., None] * nodes
    index = torch.arange(pieces.count, device=tau.device)[:, None].expand_as(tau)
    basis = chebyshev_basis(pieces.local(tau, index), terms)
    numbers = torch.einsum("bxpgm,g,bxp->bxpm", basis, weights, length).flatten(-2)
    by_head = split_heads(value, heads)
    return numbers.to(value.dtype)[:, None, :, :, None] * by_head.unsqueeze(-2)


def _rule(degree: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1], exact up to ``degree``."""
    nodes, weights = gauss_legendre(degree // 2 + 1)
    return torch.as_tensor(nodes).to(like), torch.as_tensor(weights).to(like)


def _basis_power_integrals(
    path: PiecewisePolynomial,
    pieces: Pieces,
    terms: int,
    start: Tensor,
    end: Tensor,
    cell: Tensor | None,
    piece: Tensor,
) -> Float[Tensor, "batch interval terms power"]:
    """``∫ T_m(x) s^k dτ`` over each interval."""
    power = path.coefficients.shape[2]
    nodes, weights = _rule(terms + power - 2, end)
    first, last = pieces.local(start, piece).unsqueeze(-1), pieces.local(end, piece).unsqueeze(-1)
    basis = chebyshev_basis(torch.lerp(first, last, nodes), terms)
    if cell is None:
        s = nodes
    else:
        s = torch.lerp(path.local(start, cell).unsqueeze(-1), path.local(end, cell).unsqueeze(-1), nodes)
    powers = torch.stack([weights.expand_as(s), *(weights * s**k for k in range(1, power))], dim=-1)
    return (basis * (end - start)[..., None, None]).mT @ powers


def _into_slots(moments: Tensor, piece: Tensor, count: int) -> Tensor:
    """[B, H, X, M, d] -> [B, H, X, P M, d] with zeros outside the interval's own piece."""
    if count == 1:
        return moments
    slot = torch.nn.functional.one_hot(piece, count).to(moments.dtype)
    return (slot[:, None, ..., None, None] * moments.unsqueeze(3)).flatten(3, 4)
