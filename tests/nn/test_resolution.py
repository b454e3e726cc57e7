"""Warnings about unresolved trajectories and the automatic degree."""

import warnings

import pytest
import torch

from contiformer.paths.trajectories import ResolutionWarning
from tests.problems import WIDTH, Swing, largest, make_attention, normal, sorted_times


def problem(batch=1):
    times = sorted_times(batch, 6)
    times[:, 0], times[:, -1] = 0.0, 1.0
    return normal(batch, 6, WIDTH), times


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [None, torch.tensor([[0.2, 0.9]])])
def test_low_degree_warns_with_the_tail_and_what_to_raise(causal, queries):
    attention = make_attention(field=Swing(20.0), degree=5, causal=causal)
    with pytest.warns(ResolutionWarning, match=r"degree 5.* \d\.\de[-+]\d\d .*Raise degree.*piece_length"):
        attention(*problem(), queries)


def test_enough_degree_does_not_warn():
    x, times = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_attention(field=Swing(20.0), degree=40)(x, times)


def test_smaller_pieces_do_not_warn():
    x, times = problem()
    fine = make_attention(field=Swing(20.0), degree=40)(x, times)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = make_attention(field=Swing(20.0), degree=9, piece_length=0.1)(x, times)
    assert largest(cut - fine) < 1e-3


@pytest.mark.parametrize("speed", [6.0, 20.0])
@pytest.mark.parametrize("queries", [None, torch.tensor([[0.2, 0.9], [0.4, 0.5]])])
@pytest.mark.parametrize("return_weights", [False, True])
def test_automatic_degree_rises_until_the_curves_are_resolved(speed, queries, return_weights):
    x, times = problem(batch=2)
    automatic, fine, fixed = (make_attention(field=Swing(speed), degree=d) for d in ("auto", 31, 7))
    found = automatic(x, times, queries, return_weights=return_weights)
    expected = fine(x, times, queries, return_weights=return_weights)
    with pytest.warns(ResolutionWarning):
        unresolved = fixed(x, times, queries, return_weights=return_weights)
    if return_weights:
        assert largest(found[1] - expected[1]) < 1e-3
        found, expected, unresolved = found[0], expected[0], unresolved[0]
    assert largest(found - expected) < 1e-3 * largest(expected)
    assert largest(unresolved - expected) > 5 * largest(found - expected)


# with 6 what was solved for all is kept for the resolved ones, with 2 it is not worth it
@pytest.mark.parametrize("batch", [2, 6])
def test_automatic_degree_raises_only_what_needs_it(batch):
    x, times = problem(batch)
    times[:-1] *= 0.05
    fixed, automatic = (make_attention(field=Swing(6.0), degree=d) for d in (7, "auto"))
    with pytest.warns(ResolutionWarning):
        lowest = fixed(x, times)
    found = automatic(x, times)
    assert largest(found[:-1] - lowest[:-1]) < 1e-12
    assert largest(found[-1] - lowest[-1]) > 1e-5


def test_automatic_degree_warns_where_its_bound_does_not_do():
    attention = make_attention(field=Swing(100.0))
    with pytest.warns(ResolutionWarning, match="degree 31"):
        attention(*problem())


@pytest.mark.parametrize("batch", [2, 6])
def test_gradients_flow_through_a_raised_degree(batch):
    x, times = problem(batch)
    times[:-1] *= 0.05
    x.requires_grad_()
    attention, fine = (make_attention(field=Swing(6.0), degree=d) for d in ("auto", 31))
    fine.load_state_dict(attention.state_dict())
    inputs = [x, *attention.parameters()]
    found = torch.autograd.grad(attention(x, times).square().sum(), inputs)
    expected = torch.autograd.grad(fine(x, times).square().sum(), [x, *fine.parameters()])
    for ours, exact in zip(found, expected, strict=True):
        assert largest(ours - exact) < 1e-3 * largest(exact)


def test_causal_model_does_not_let_the_data_choose_its_degree():
    """A degree that rises with the future would tell the past about it."""
    x, times = problem()
    attention = make_attention(field=Swing(6.0), causal=True)
    explicit = make_attention(field=Swing(6.0), causal=True, degree=11)
    assert torch.equal(attention(x, times), explicit(x, times))


def test_rows_that_are_masked_are_not_measured():
    """A masked row neither warns nor raises the degree, whatever it holds."""
    attention = make_attention(degree=7, field="concat")
    x, times = problem()
    mask = torch.ones(1, 6, dtype=torch.bool)
    mask[:, 3] = False
    x[:, 3] = 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention(x, times, mask=mask)
