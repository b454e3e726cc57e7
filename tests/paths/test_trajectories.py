"""Trajectories of ODEs as Chebyshev series."""

from itertools import pairwise

import pytest
import torch
from torchdiffeq import odeint

from contiformer.nn.fields import ConcatField, FusedField, HeadwiseField, stack_fields
from contiformer.paths.trajectories import (
    Pieces,
    evaluate_basis,
    fixed_pieces,
    nodes_for_degree,
    solve_trajectories,
    window_pieces,
)
from tests.problems import largest, normal, sorted_times

STATES, OBS, BATCH, WIDTH = 2, 5, 3, 4
LIMIT = 64


def solve(field, initial, times, pieces, degree, **options):
    return solve_trajectories(field, initial, times, pieces, nodes_for_degree(degree), **options)


def curves(coefficients, pieces, queries):
    """States [S, B, N, Q, d] at query times [B, Q]."""
    basis = evaluate_basis(pieces, queries, coefficients.shape[4])
    return torch.einsum("bqpm,sbnpmd->sbnqd", basis, coefficients)


def whole_window(length=10.0):
    zero = torch.zeros(BATCH, dtype=torch.float64)
    return window_pieces(zero, zero + torch.tensor([1.0, 0.7, 1.6]), length, LIMIT)


def draw_problem():
    return normal(STATES, BATCH, OBS, WIDTH), 0.7 * sorted_times(BATCH, OBS)


def oscillator(t, x):
    """Nonlinear, coupled, and driven by time; one field for each of the two states."""
    scale = torch.tensor([1.0, 2.0], dtype=x.dtype)[:, None, None, None]
    return torch.sin(scale * x.roll(1, -1) + 3 * t) - 0.3 * x


def by_dopri5(initial, times, queries):
    """All pairs at once, each over its own interval mapped to [0, 1]."""
    gap = (queries[:, None, :] - times[..., None]).flatten(1)
    start = times[..., None].expand(-1, -1, queries.shape[1]).flatten(1)
    state = initial[:, :, :, None].expand(-1, -1, -1, queries.shape[1], -1).flatten(2, 3)

    def slope(s, x):
        return gap[..., None] * oscillator((start + s * gap)[..., None], x)

    end = odeint(slope, state, torch.tensor([0.0, 1.0], dtype=torch.float64), rtol=1e-10, atol=1e-12)[-1]
    return end.unflatten(2, (OBS, -1))


@pytest.mark.parametrize("length", [10.0, 0.4], ids=["one piece", "several pieces"])
def test_linear_field_gives_matrix_exponentials(length):
    initial, times = draw_problem()
    matrices, pieces = normal(STATES, WIDTH, WIDTH), whole_window(length)
    solved = solve(lambda t, x: torch.einsum("sij,sbnj->sbni", matrices, x), initial, times, pieces, 24)
    queries = torch.rand(BATCH, 7).double() * torch.tensor([[1.0], [0.7], [1.6]])
    gap = queries[None, :, None] - times[None, :, :, None]
    flow = torch.linalg.matrix_exp((gap[..., None, None] * matrices[:, None, None, None]).contiguous())
    expected = (flow @ initial[:, :, :, None, :, None]).squeeze(-1)
    assert largest(curves(solved, pieces, queries) - expected) < 1e-7 * largest(expected)


@pytest.mark.parametrize("length", [10.0, 0.5], ids=["one piece", "several pieces"])
def test_nonlinear_field_gives_what_dopri5_gives_before_and_after_the_observation(length):
    initial, times = draw_problem()
    pieces = whole_window(length)
    solved = solve(oscillator, initial, times, pieces, 31)
    queries = torch.tensor([[0.0, 0.31], [0.7, 0.5], [1.6, 1.1]], dtype=torch.float64)
    assert largest(curves(solved, pieces, queries) - by_dopri5(initial, times, queries)) < 1e-7


def test_error_falls_with_the_degree():
    initial, times = draw_problem()
    pieces, queries = whole_window(), torch.rand(BATCH, 20).double() * 0.7
    fine, *coarser = (
        curves(solve(oscillator, initial, times, pieces, degree), pieces, queries) for degree in (40, 3, 7, 15, 31)
    )
    errors = [largest(found - fine) for found in coarser]
    assert all(finer < coarser / 10 for coarser, finer in pairwise(errors))


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 12])
def test_there_are_enough_terms_for_the_degree(degree):
    solved = solve(oscillator, *draw_problem(), whole_window(), degree)
    assert solved.shape == (STATES, BATCH, OBS, 1, 2 * nodes_for_degree(degree), WIDTH)
    assert 2 * nodes_for_degree(degree) > degree


def test_causal_trajectories_are_the_same_after_the_observation():
    initial, times = draw_problem()
    field = stack_fields([ConcatField(WIDTH).double() for _ in range(STATES)], torch.float64)
    pieces = fixed_pieces(torch.linspace(0, 1.6, 9).double().expand(BATCH, -1), 0.4, LIMIT)
    queries = torch.rand(BATCH, 30).double() * 1.6
    both, onward = (
        curves(solve(field, initial, times, pieces, 15, causal=causal), pieces, queries) for causal in (False, True)
    )
    after = (queries[:, None] >= times[..., None])[None, ..., None]
    assert largest((both - onward) * after) < 1e-12
    assert largest((both - onward) * ~after) > 1e-3


def test_a_causal_trajectory_that_explodes_backwards_stays_finite():
    initial, times = draw_problem()
    pieces = fixed_pieces(torch.linspace(-400, 1, 402).double().expand(BATCH, -1), 1.0, 1000)
    assert solve(lambda t, x: -9 * x, initial, times, pieces, 7, causal=True).isfinite().all()
    assert not solve(lambda t, x: -9 * x, initial, times, pieces, 7).isfinite().all()


def test_observation_is_on_its_own_trajectory():
    initial, times = draw_problem()
    pieces = whole_window(0.4)
    own = torch.diagonal(curves(solve(oscillator, initial, times, pieces, 24), pieces, times), dim1=2, dim2=3)
    assert largest(own.mT - initial) < 1e-7


def test_piece_of_length_zero_holds_the_end_value():
    initial, times = draw_problem()
    edges = torch.tensor([[0.0, 0.7, 1.4], [0.0, 0.7, 0.7], [0.0, 0.8, 1.6]], dtype=torch.float64)
    solved = solve(oscillator, initial, times, Pieces(edges), 15)
    end_of_first, empty = solved[:, 1, :, 0].sum(2), solved[:, 1, :, 1]
    assert largest(empty.sum(2) - end_of_first) < 1e-12
    assert largest(empty[:, :, 1:]) < 1e-12


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [10.0, 0.4], ids=["one piece", "several pieces"])
def test_gradients_of_initial_values_times_and_parameters(causal, length):
    initial, times = draw_problem()
    pieces, matrix = whole_window(length), normal(WIDTH, WIDTH)

    def coefficients(initial, times, matrix):
        field = lambda t, x: torch.sin(x @ matrix + 3 * t)  # noqa: E731
        return solve(field, initial, times, pieces, 5, causal=causal)

    inputs = [x.requires_grad_() for x in (initial, times, matrix)]
    assert torch.autograd.gradcheck(coefficients, inputs, fast_mode=True)


@pytest.mark.parametrize("normalize", [True, False], ids=["concatnorm", "concat"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_stacked_fields_are_the_fields_themselves(normalize, activation):
    fields = [ConcatField(WIDTH, normalize=normalize, activation=activation).double() for _ in range(STATES)]
    t, x = torch.rand(BATCH, OBS, 1).double(), normal(STATES, BATCH, OBS, WIDTH)
    together = stack_fields(fields, torch.float64)(t, x)
    apart = torch.stack([field(t, state) for field, state in zip(fields, x)])
    assert largest(together - apart) < 1e-12


def test_stacked_headwise_fields_are_the_fields_themselves():
    fields = [HeadwiseField(WIDTH, 2).double() for _ in range(STATES)]
    t, x = torch.rand(BATCH, OBS, 1).double(), normal(STATES, BATCH, OBS, WIDTH)
    together = stack_fields(fields, torch.float64)
    assert isinstance(together, FusedField)
    assert largest(together(t, x) - torch.stack([field(t, state) for field, state in zip(fields, x)])) < 1e-12
