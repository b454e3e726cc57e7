"""Observations that the clock does not tell apart."""

from __future__ import annotations

import pytest
import torch

from contiformer.nn.observations import snap_ties
from tests.problems import WIDTH, largest, make_attention, normal

PATHS = [("linear", False), ("hermite", False), ("cubic", False), ("linear", True), ("hermite", True)]
pytestmark = pytest.mark.filterwarnings("ignore::contiformer.paths.trajectories.ResolutionWarning")


def close_times(origin, dtype):
    """Times with two that are equal, and the same times with these two one step of the floating-point numbers apart."""
    equal = (origin + torch.tensor([[0.0, 0.2, 0.5, 0.5, 0.7, 1.0]], dtype=torch.float64)).to(dtype)
    apart = equal.clone()
    apart[:, 3] = torch.nextafter(equal[:, 3], torch.full_like(equal[:, 3], torch.inf))
    return equal, apart


@pytest.mark.parametrize(("interpolation", "causal"), PATHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("anywhere", [False, True])
def test_times_next_to_each_other_are_one_knot(interpolation, causal, dtype, anywhere):
    attention = make_attention(interpolation=interpolation, causal=causal)
    x, (equal, apart) = normal(1, 6, WIDTH), close_times(0.0, dtype)
    queries = torch.tensor([[-0.1, 0.3, 0.501, 0.9]], dtype=torch.float64) if anywhere else None
    expected = attention(x, equal, queries)
    assert largest(attention(x, apart, queries) - expected) < 1e-6 * largest(expected)


@pytest.mark.parametrize("interpolation", ["linear", "hermite"])
def test_far_from_zero_the_order_of_close_rows_does_not_matter(interpolation):
    attention = make_attention(interpolation=interpolation, causal=True, field="linear")
    x, (_, apart) = normal(1, 6, WIDTH), close_times(1e9, torch.float64)
    swap = torch.tensor([0, 1, 3, 2, 4, 5])
    assert largest(attention(x[:, swap], apart) - attention(x, apart)[:, swap]) < 1e-9


def test_close_rows_do_not_depend_on_batch_mates():
    attention = make_attention(interpolation="cubic")
    x, (_, apart) = normal(2, 6, WIDTH), close_times(0.0, torch.float64)
    times = torch.cat([apart, 1e3 * apart])
    mask = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    assert largest(attention(x, times, mask=mask)[:1] - attention(x[:1], apart)) < 1e-9


def test_later_times_do_not_change_which_are_close():
    times = torch.tensor([[0.0, 0.5, 0.5 + 1e-9, 1.0, 1e6]], dtype=torch.float64)
    assert torch.equal(snap_ties(times, torch.float64)[:, :4], snap_ties(times[:, :4], torch.float64))


def test_gradient_of_close_times_goes_to_the_first():
    times = close_times(0.0, torch.float64)[1].requires_grad_()
    (gradient,) = torch.autograd.grad(snap_ties(times, torch.float64).sum(), times)
    assert gradient.tolist() == [[1.0, 1.0, 2.0, 0.0, 1.0, 1.0]]
