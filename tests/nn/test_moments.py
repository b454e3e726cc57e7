"""Moments of a path against Chebyshev polynomials."""

import numpy as np
import pytest
import torch

from contiformer.nn.moments import held_moments, interval_moments
from contiformer.paths.interpolation import INTERPOLATIONS, interpolate
from contiformer.paths.trajectories import Pieces, evaluate_basis
from tests.problems import largest, normal

TERMS = 8
KNOTS = torch.tensor([[0.0, 0.2, 0.5, 0.55, 0.9]], dtype=torch.float64)
PIECES = Pieces(torch.tensor([[-0.5, 0.5, 1.5]], dtype=torch.float64))


def fine_quadrature(function, start, end, cuts):
    """Gauss-Legendre with 40 points between the given cuts, where the integrand may have kinks."""
    inside = [c for c in cuts if start < c < end]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    total = 0.0
    for low, high in zip([start, *inside], [*inside, end]):
        at = torch.tensor((low + high) / 2 + nodes * (high - low) / 2)
        total = total + (high - low) / 2 * torch.einsum("g,g...->...", torch.tensor(weights), function(at))
    return total


def basis_at(at):
    return evaluate_basis(PIECES, at[None], TERMS)[0].flatten(1)


@pytest.mark.parametrize("kind", INTERPOLATIONS)
def test_moments_of_the_path_are_integrals_of_basis_times_path(kind):
    path = interpolate(kind, KNOTS, normal(1, 5, 3))
    intervals = [(-0.4, -0.1), (0.0, 0.2), (0.05, 0.17), (0.21, 0.5), (0.5, 0.52), (0.6, 0.9), (1.0, 1.4), (0.3, 0.3)]
    start, end = torch.tensor(intervals, dtype=torch.float64).T[:, None]
    middle = (start + end) / 2
    found = interval_moments(path, PIECES, TERMS, start, end, path.locate(middle)[0], PIECES.locate(middle))
    for number, (low, high) in enumerate(intervals):
        expected = fine_quadrature(lambda at: basis_at(at)[:, :, None] * path(at[None])[0][:, None], low, high, [])
        assert largest(found[0, 0, number] - expected) < 1e-12


@pytest.mark.parametrize("kind", INTERPOLATIONS)
def test_cells_default_to_the_intervals(kind):
    path = interpolate(kind, KNOTS, normal(1, 5, 3))
    end = torch.cat([KNOTS[:, 1:], KNOTS[:, -1:]], dim=1)
    piece = PIECES.locate((KNOTS + end) / 2)
    cell = torch.arange(5)[None]
    named, unnamed = (interval_moments(path, PIECES, TERMS, KNOTS, end, c, piece) for c in (cell, None))
    assert largest(named - unnamed) < 1e-13


def test_moments_of_a_held_value_run_through_pieces():
    intervals = [(-0.5, 1.5), (0.1, 0.2), (0.2, 0.8), (0.5, 0.5), (0.7, 1.1)]
    start, end = torch.tensor(intervals, dtype=torch.float64).T[:, None]
    value = normal(1, len(intervals), 3)
    found = held_moments(value, PIECES, TERMS, start, end)
    for number, (low, high) in enumerate(intervals):
        expected = fine_quadrature(basis_at, low, high, [0.5])[:, None] * value[0, number]
        assert largest(found[0, 0, number] - expected) < 1e-12


def test_moments_are_differentiable_in_the_ends_and_the_path():
    values = normal(1, 5, 2).requires_grad_()
    start = torch.tensor([[0.02, 0.6]], dtype=torch.float64, requires_grad=True)
    end = torch.tensor([[0.18, 0.8]], dtype=torch.float64, requires_grad=True)

    def both(values, start, end):
        path = interpolate("linear", KNOTS, values)
        middle = ((start + end) / 2).detach()
        return (
            interval_moments(path, PIECES, 4, start, end, path.locate(middle)[0], PIECES.locate(middle)),
            held_moments(values[:, :2], PIECES, 4, start, end),
        )

    torch.autograd.gradcheck(both, (values, start, end))


def test_moments_by_head_split_the_width():
    path = interpolate("linear", KNOTS, normal(1, 5, 6))
    end = torch.cat([KNOTS[:, 1:], KNOTS[:, -1:]], dim=1)
    piece = PIECES.locate((KNOTS + end) / 2)
    whole, parts = (interval_moments(path, PIECES, TERMS, KNOTS, end, None, piece, heads) for heads in (1, 3))
    assert torch.equal(whole, torch.cat(parts.split(1, dim=1), dim=-1))
    value = normal(1, 5, 6)
    whole, parts = (held_moments(value, PIECES, TERMS, KNOTS, end, heads) for heads in (1, 3))
    assert torch.equal(whole, torch.cat(parts.split(1, dim=1), dim=-1))
