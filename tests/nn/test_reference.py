"""The listing of attention: derivatives near and at observations, blocks of keys, tails."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import exact_attention
from tests.problems import WIDTH, largest, make_attention, normal, spaced_times

PATHS = [("linear", False), ("hermite", False), ("cubic", False), ("linear", True), ("hermite", True)]
pytestmark = pytest.mark.filterwarnings("ignore::contiformer.paths.trajectories.ResolutionWarning")
every_path = pytest.mark.parametrize(("interpolation", "causal"), PATHS)


def derivative_in_time(attention, x, times, at):
    at = at.clone().requires_grad_()
    output = attention(x[None], times[None], at[None])[0]
    return torch.stack([torch.autograd.grad(output[:, c].sum(), at, retain_graph=True)[0] for c in range(WIDTH)], -1)


def difference_of_the_oracle(attention, x, times, at, step=1e-4):
    """Second-order difference from the right, of the converged reference."""
    here, near, far = (exact_attention(attention, x, times, at + n * step) for n in range(3))
    return (4 * near - 3 * here - far) / (2 * step)


@every_path
@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-9, 1e-7, 1e-5, 1e-2])
@pytest.mark.parametrize("piece_length", [2.0, 0.3])
def test_derivative_in_time_near_and_at_observations_is_that_of_the_oracle(interpolation, causal, gap, piece_length):
    options = {"interpolation": interpolation, "causal": causal, "piece_length": piece_length}
    attention = make_attention(degree=24, **options)
    x, times = normal(6, WIDTH), spaced_times(6)
    at = times + gap
    found = derivative_in_time(attention, x, times, at)
    expected = difference_of_the_oracle(attention, x, times, at)
    assert largest(found - expected) < 1e-5 * (1 + largest(expected))


@pytest.mark.parametrize("gap", [0.0, 1e-7, 1e-3])
def test_derivative_in_time_near_and_at_observations_in_float32(gap):
    attention = make_attention(degree=15)
    x, times = normal(6, WIDTH), spaced_times(6)
    expected = difference_of_the_oracle(attention, x, times, times + gap)
    found = derivative_in_time(attention.float(), x.float(), times, times + gap)
    assert largest(found - expected) < 1e-3 * (1 + largest(expected))


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    path=st.sampled_from(PATHS),
    rule=st.sampled_from(["exact", "linear", "gauss"]),
    between=st.booleans(),
    length=st.integers(1, 17),
    normalize=st.booleans(),
    piece_length=st.sampled_from([2.0, 0.4]),
    masked=st.booleans(),
)
def test_blocks_of_keys_change_nothing(seed, path, rule, between, length, normalize, piece_length, masked):
    attention = make_attention(
        seed=seed,
        interpolation=path[0],
        causal=path[1],
        rule=rule,
        degree=7,
        normalize_scores=normalize,
        normalize_values=normalize,
        piece_length=piece_length,
    )
    x, times = normal(2, length, WIDTH).requires_grad_(), spaced_times(2, length)
    queries = 1.6 * torch.rand(2, 5, dtype=torch.float64) - 0.3 if between else None
    mask = torch.rand(2, length) < 0.7 if masked else None

    def outcome():
        out = attention(x, times, queries, mask)
        return [out, *torch.autograd.grad(out.sin().sum(), [x, *attention.parameters()], allow_unused=True)]

    with pytest.MonkeyPatch.context() as patch:
        whole = outcome()
        patch.setattr("contiformer.nn.attention.SCORES_AT_ONCE", 2 * 2 * 5 * 3)
        blocks = outcome()
    for one, other in zip(whole, blocks, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert largest(one - other) < 1e-11 * (1 + largest(one))
