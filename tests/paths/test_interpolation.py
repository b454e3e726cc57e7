"""Interpolated paths: formulas, ties, gradients and causality."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contiformer.paths.interpolation import INTERPOLATIONS, interpolate, solve_tridiagonal
from tests.problems import largest, normal, sorted_times, spaced_times

every_kind = pytest.mark.parametrize("kind", INTERPOLATIONS)
sizes = pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 40])


def held_linear(t, v, at):
    return np.stack([np.interp(at, t, column) for column in v.T], axis=-1)


def held_hermite(t, v, at):
    """The four Hermite basis polynomials; the slope at a knot is the difference to the knot before it."""
    at = np.clip(at, t[0], t[-1])
    width, slope = np.diff(t)[:, None], np.diff(v, axis=0) / np.diff(t)[:, None]
    cell = np.clip(np.searchsorted(t, at, side="right") - 1, 0, len(t) - 2)
    s = (at[:, None] - t[cell, None]) / width[cell]
    at_start, at_end = slope[np.maximum(cell - 1, 0)], slope[cell]
    basis = [(1 + 2 * s) * (1 - s) ** 2, s * (1 - s) ** 2, s**2 * (3 - 2 * s), s**2 * (s - 1)]
    return sum(b * x for b, x in zip(basis, (v[cell], at_start * width[cell], v[cell + 1], at_end * width[cell])))


def held_natural_spline(t, v, at):
    """One dense system for the four coefficients of every cell: values, C1, C2, and no curvature at the ends."""
    cells = len(t) - 1
    equations, right = [], []

    def demand(terms, value):
        row = np.zeros(4 * cells)
        for cell, s, derivative, sign in terms:
            factors = [np.polynomial.Polynomial(np.eye(4)[k]).deriv(derivative)(s) for k in range(4)]
            row[4 * cell : 4 * cell + 4] += sign * np.array(factors) / (t[cell + 1] - t[cell]) ** derivative
        equations.append(row)
        right.append(value)

    for cell in range(cells):
        demand([(cell, 0.0, 0, 1)], v[cell])
        demand([(cell, 1.0, 0, 1)], v[cell + 1])
    for cell in range(cells - 1):
        for derivative in (1, 2):
            demand([(cell, 1.0, derivative, 1), (cell + 1, 0.0, derivative, -1)], np.zeros(v.shape[1]))
    demand([(0, 0.0, 2, 1)], np.zeros(v.shape[1]))
    demand([(cells - 1, 1.0, 2, 1)], np.zeros(v.shape[1]))
    coefficients = np.linalg.solve(np.array(equations), np.array(right)).reshape(cells, 4, -1)
    at = np.clip(at, t[0], t[-1])
    cell = np.clip(np.searchsorted(t, at, side="right") - 1, 0, cells - 1)
    s = (at - t[cell]) / (t[cell + 1] - t[cell])
    return np.einsum("qk,qkd->qd", s[:, None] ** np.arange(4), coefficients[cell])


REFERENCES = {"linear": held_linear, "hermite": held_hermite, "cubic": held_natural_spline}


@every_kind
@pytest.mark.parametrize("n", [2, 3, 4, 9, 30])
def test_path_is_the_textbook_formula_inside_outside_and_at_the_knots(kind, n):
    times, values = sorted_times(2, n), normal(2, n, 3)
    queries = torch.cat([torch.rand(2, 20).double() * 2 - 0.5, times], dim=1)
    found = interpolate(kind, times, values)(queries)
    for row in range(2):
        expected = REFERENCES[kind](times[row].numpy(), values[row].numpy(), queries[row].numpy())
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@every_kind
@sizes
def test_end_values_are_held_outside_the_data(kind, n):
    times, values = sorted_times(1, n), normal(1, n, 2)
    found = interpolate(kind, times, values)(torch.tensor([[-1e9, -1.0, 2.0, 1e9]]))
    assert torch.equal(found[0, :2], values[0, :1].expand(2, -1))
    assert torch.allclose(found[0, 2:], values[0, -1:].expand(2, -1), rtol=1e-12)


@every_kind
def test_distinct_knots_flag_gives_the_same_path(kind):
    times, values, queries = sorted_times(2, 9), normal(2, 9, 3), torch.rand(2, 30).double()
    merged, promised = (interpolate(kind, times, values, distinct=d)(queries) for d in (False, True))
    assert largest(merged - promised) < 1e-12


@every_kind
@pytest.mark.parametrize("length", [1, 2, 5])
def test_padding_behind_the_length_is_ignored(kind, length):
    times, values, queries = sorted_times(1, length), normal(1, length, 3), torch.rand(1, 20).double() * 2 - 0.5
    garbage_times = torch.tensor([[torch.nan, -7.0, torch.inf]], dtype=torch.float64)
    padded = interpolate(
        kind,
        torch.cat([times, garbage_times], dim=1),
        torch.cat([values, torch.full((1, 3, 3), torch.nan, dtype=torch.float64)], dim=1),
        torch.tensor([length]),
    )
    assert largest(padded(queries) - interpolate(kind, times, values)(queries)) < 1e-12


@every_kind
@given(seed=st.integers(0, 10**6), groups=st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_equal_times_are_one_knot_with_the_mean_in_any_order(kind, seed, groups):
    torch.manual_seed(seed)
    distinct = sorted_times(1, len(groups))
    repeats = torch.tensor(groups)
    times, values = distinct.repeat_interleave(repeats, dim=1), normal(1, sum(groups), 2)
    means = torch.stack([part.mean(1) for part in values.split(groups, dim=1)], dim=1)
    queries = torch.cat([torch.rand(1, 15).double() * 1.4 - 0.2, distinct], dim=1)
    expected = interpolate(kind, distinct, means)(queries)
    scale = 1 + largest(expected)
    assert largest(interpolate(kind, times, values)(queries) - expected) < 1e-9 * scale
    shuffled = torch.cat([part[:, torch.randperm(part.shape[1])] for part in values.split(groups, dim=1)], dim=1)
    assert largest(interpolate(kind, times, shuffled)(queries) - expected) < 1e-9 * scale


@every_kind
@pytest.mark.parametrize("lengths", [None, [6, 3]], ids=["full", "padded"])
def test_gradients_of_values_knot_times_and_query_times(kind, lengths):
    times, values = spaced_times(2, 6).requires_grad_(), normal(2, 6, 2).requires_grad_()
    queries = (torch.rand(2, 5).double() * 1.4 - 0.2).requires_grad_()
    count = None if lengths is None else torch.tensor(lengths)
    torch.autograd.gradcheck(lambda t, v, q: interpolate(kind, t, v, count)(q), (times, values, queries))


@every_kind
def test_derivative_in_time_is_zero_outside_the_data(kind):
    queries = torch.tensor([[-1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(interpolate(kind, sorted_times(1, 5), normal(1, 5, 2))(queries).sum(), queries)
    assert torch.equal(slope, torch.zeros_like(slope))


@pytest.mark.parametrize("kind", ["linear", "hermite"])
def test_cells_depend_on_no_later_knot_than_their_own_end(kind):
    times, values = sorted_times(1, 8), normal(1, 8, 2)
    later_times, later_values = times.clone(), values.clone()
    later_times[:, 5:] += torch.rand(1, 3).double().sort().values
    later_values[:, 5:] = normal(1, 3, 2)
    before, after = interpolate(kind, times, values), interpolate(kind, later_times, later_values)
    assert torch.equal(before.coefficients[:, :4], after.coefficients[:, :4])
    assert not torch.equal(before.coefficients[:, 4], after.coefficients[:, 4])


def test_natural_spline_does_depend_on_later_knots():
    times, values = sorted_times(1, 8), normal(1, 8, 2)
    changed = torch.cat([values[:, :7], normal(1, 1, 2)], dim=1)
    before, after = interpolate("cubic", times, values), interpolate("cubic", times, changed)
    assert largest(before.coefficients[:, 0] - after.coefficients[:, 0]) > 0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 17, 64])
def test_tridiagonal_solver_is_a_dense_solve(n):
    lower, upper, right = 0.5 * torch.rand(2, n, 1).double(), 0.5 * torch.rand(2, n, 1).double(), normal(2, n, 3)
    dense = torch.eye(n, dtype=torch.float64).expand(2, -1, -1).clone()
    dense += torch.diag_embed(lower[:, 1:, 0], -1) + torch.diag_embed(upper[:, :-1, 0], 1)
    assert largest(solve_tridiagonal(lower, upper, right) - torch.linalg.solve(dense, right)) < 1e-10


def test_unknown_kind_is_refused_by_name():
    with pytest.raises(ValueError, match="interpolation"):
        interpolate("quadratic", sorted_times(1, 3), normal(1, 3, 1))


@every_kind
@sizes
def test_a_refined_path_is_the_same_path(kind, n):
    times = spaced_times(1, n)
    path = interpolate(kind, times, torch.randn(1, n, 3, dtype=torch.float64))
    between = torch.cat([torch.rand(1, 30, dtype=torch.float64) * 4 - 1, times, times], 1).sort().values
    refined = path.refined(between)
    assert refined.coefficients.shape == (1, between.shape[1], *path.coefficients.shape[2:])
    at = torch.linspace(-2, 5, 200, dtype=torch.float64)[None]
    torch.testing.assert_close(refined(at), path(at))
