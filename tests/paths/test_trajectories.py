"""Trajectories of ODEs as Chebyshev series."""

from itertools import pairwise

import pytest
import torch
from torchdiffeq import odeint

from contiformer.nn.fields import ConcatField, stack_fields
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


def curves(solved, queries):
    """States [S, N, B, Q, d] at query times [B, Q]."""
    basis = evaluate_basis(solved.pieces, queries, solved.terms)
    return torch.einsum("bqpm,pmsnbd->snbqd", basis, solved.coefficients)


def whole_window(length=10.0):
    zero = torch.zeros(BATCH, dtype=torch.float64)
    return window_pieces(zero, zero + torch.tensor([1.0, 0.7, 1.6]), length, LIMIT)


def draw_problem():
    return normal(STATES, OBS, BATCH, WIDTH), 0.7 * sorted_times(BATCH, OBS).T


def oscillator(t, x):
    """Nonlinear, coupled, and driven by time; one field for each of the two states."""
    scale = torch.tensor([1.0, 2.0], dtype=x.dtype)[:, None, None, None]
    return torch.sin(scale * x.roll(1, -1) + 3 * t) - 0.3 * x


def by_dopri5(initial, times, queries):
    """All pairs at once, each over its own interval mapped to [0, 1]."""
    gap = (queries - times[..., None]).flatten(1)
    start = times[..., None].expand(-1, -1, queries.shape[1]).flatten(1)
    state = initial[:, :, :, None].expand(-1, -1, -1, queries.shape[1], -1).flatten(2, 3)

    def slope(s, x):
        return gap[..., None] * oscillator((start + s * gap)[..., None], x)

    end = odeint(slope, state, torch.tensor([0.0, 1.0], dtype=torch.float64), rtol=1e-10, atol=1e-12)[-1]
    return end.unflatten(2, (BATCH, -1))


@pytest.mark.parametrize("length", [10.0, 0.4], ids=["one piece", "several pieces"])
def test_linear_field_gives_matrix_exponentials(length):
    initial, times = draw_problem()
    matrices = normal(STATES, WIDTH, WIDTH)
    solved = solve_trajectories(
        lambda t, x: torch.einsum("sij,snbj->snbi", matrices, x), initial, times, whole_window(length), 24
    )
    queries = torch.rand(BATCH, 7).double() * torch.tensor([[1.0], [0.7], [1.6]])
    gap = queries[None, None] - times[None, :, :, None]
    flow = torch.linalg.matrix_exp((gap[..., None, None] * matrices[:, None, None, None]).contiguous())
    expected = (flow @ initial[:, :, :, None, :, None]).squeeze(-1)
    assert largest(curves(solved, queries) - expected) < 1e-7 * largest(expected)


@pytest.mark.parametrize("length", [10.0, 0.5], ids=["one piece", "several pieces"])
def test_nonlinear_field_gives_what_dopri5_gives_before_and_after_the_observation(length):
    initial, times = draw_problem()
    solved = solve_trajectories(oscillator, initial, times, whole_window(length), 24)
    queries = torch.tensor([[0.0, 0.31], [0.7, 0.5], [1.6, 1.1]], dtype=torch.float64)
    assert largest(curves(solved, queries) - by_dopri5(initial, times, queries)) < 1e-7


def test_error_falls_with_the_degree():
    initial, times = draw_problem()
    queries = torch.rand(BATCH, 20).double() * 0.7
    fine = curves(solve_trajectories(oscillator, initial, times, whole_window(), 40), queries)
    errors = [
        largest(curves(solve_trajectories(oscillator, initial, times, whole_window(), degree), queries) - fine)
        for degree in (3, 7, 15, 31)
    ]
    assert all(finer < coarser / 10 for coarser, finer in pairwise(errors))


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 12])
def test_there_are_enough_terms_for_the_degree(degree):
    initial, times = draw_problem()
    solved = solve_trajectories(oscillator, initial, times, whole_window(), degree)
    assert solved.terms == 2 * nodes_for_degree(degree)
    assert solved.terms > degree


def without_its_own_sweep(field):
    return lambda t, x: field(t, x)  # noqa: PLW0108


@pytest.mark.parametrize("fused", [True, False])
def test_causal_trajectories_are_the_same_after_the_observation(fused):
    initial, times = draw_problem()
    field = stack_fields([ConcatField(WIDTH).double() for _ in range(STATES)], torch.float64)
    field = field if fused else without_its_own_sweep(field)
    pieces = fixed_pieces(torch.zeros(BATCH).double(), torch.full((BATCH,), 1.6).double(), 0.4, LIMIT)
    queries = torch.rand(BATCH, 30).double() * 1.6
    both, onward = (
        curves(solve_trajectories(field, initial, times, pieces, 15, causal=causal), queries)
        for causal in (False, True)
    )
    after = (queries[None] >= times[..., None])[None, ..., None]
    assert largest((both - onward) * after) < 1e-12
    assert largest((both - onward) * ~after) > 1e-3


def test_observation_is_on_its_own_trajectory():
    initial, times = draw_problem()
    solved = solve_trajectories(oscillator, initial, times, whole_window(0.4), 24)
    own = torch.diagonal(curves(solved, times.T), dim1=1, dim2=3)
    assert largest(own.permute(0, 3, 1, 2) - initial) < 1e-7


def test_piece_of_length_zero_holds_the_end_value():
    initial, times = draw_problem()
    edges = torch.tensor([[0.0, 0.7, 1.4], [0.0, 0.7, 0.7], [0.0, 0.8, 1.6]], dtype=torch.float64)
    solved = solve_trajectories(oscillator, initial, times, Pieces(edges), 15)
    empty = solved.coefficients[1, :, :, :, 1]
    end_of_first = solved.coefficients[0, :, :, :, 1].sum(0)
    assert largest(empty.sum(0) - end_of_first) < 1e-12
    assert largest(empty[1:]) < 1e-12


@pytest.mark.parametrize(("speed", "resolved"), [(1.0, True), (30.0, False)])
def test_tail_is_small_where_the_series_resolve_the_curves(speed, resolved):
    initial, times = draw_problem()

    def rotation(t, x):
        return speed * torch.cos(speed * t) * torch.ones_like(x)

    solved = solve_trajectories(rotation, initial, times, whole_window(), 12)
    queries = torch.rand(BATCH, 30).double() * 0.7
    exact = initial[:, :, :, None] + (torch.sin(speed * queries) - torch.sin(speed * times)[..., None])[None, ..., None]
    error = largest(curves(solved, queries) - exact)
    tail = solved.tail(torch.ones(1, OBS, BATCH, dtype=torch.bool))
    assert tail.shape == (BATCH,)
    if resolved:
        assert float(tail.max()) < 1e-6
        assert error < 1e-6
    else:
        assert float(tail.max()) > 1e-2
        assert error > 1e-2


def test_tail_looks_at_used_trajectories_only():
    initial, times = draw_problem()
    initial[:, 0] = 0.0

    def spins_only_from_zero(t, x):
        return torch.where(x.abs() < 1e-2, 0.0, torch.cos(40 * t).expand_as(x))

    initial[:, 1:] = initial[:, 1:].abs() + 3
    solved = solve_trajectories(spins_only_from_zero, initial, times, whole_window(), 7)
    used = torch.zeros(1, OBS, BATCH, dtype=torch.bool)
    used[:, 0] = True
    assert float(solved.tail(used).max()) == 0
    assert float(solved.tail(~used).min()) > 0


@pytest.mark.parametrize("normalize", [True, False], ids=["concatnorm", "concat"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [10.0, 0.4], ids=["one piece", "several pieces"])
def test_fused_sweep_equals_the_generic_one_in_values_and_gradients(normalize, activation, causal, length):
    fields = [ConcatField(WIDTH, normalize=normalize, activation=activation).double() for _ in range(STATES)]
    parameters = [p for f in fields for p in f.parameters()]
    initial, times = draw_problem()
    initial.requires_grad_()
    pieces = whole_window(length)
    results = []
    for fused in (True, False):
        stacked = stack_fields(fields, torch.float64)
        field = stacked if fused else without_its_own_sweep(stacked)
        found = solve_trajectories(field, initial, times, pieces, 11, causal=causal).coefficients
        torch.manual_seed(1)
        results.append((found, torch.autograd.grad((found * torch.randn_like(found)).sum(), [initial, *parameters])))
    (fast, fast_gradients), (plain, plain_gradients) = results
    assert hasattr(stacked, "sweep")
    assert largest(fast - plain) < 1e-11
    for quick, slow in zip(fast_gradients, plain_gradients):
        assert largest(quick - slow) < 1e-9 * (1 + largest(slow))


@pytest.mark.parametrize("normalize", [True, False], ids=["concatnorm", "concat"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_stacked_fields_are_the_fields_themselves(normalize, activation):
    fields = [ConcatField(WIDTH, normalize=normalize, activation=activation).double() for _ in range(STATES)]
    t, x = torch.rand(OBS, BATCH, 1).double(), normal(STATES, OBS, BATCH, WIDTH)
    together = stack_fields(fields, torch.float64)(t, x)
    apart = torch.stack([field(t, state) for field, state in zip(fields, x)])
    assert largest(together - apart) < 1e-12
