"""Attention with sizes that no value decides on, against attention that chooses them itself."""

import pytest
import torch

from contiformer.nn import ContinuousAttention
from contiformer.nn.attention import FixedShapes
from contiformer.paths.trajectories import counted_pieces, fixed_pieces
from tests.problems import largest


def problem(spans=(0.5, 2.7, 6.2), obs=20):
    torch.manual_seed(0)
    times = torch.rand(len(spans), obs, dtype=torch.float64).sort(1).values * torch.tensor(spans)[:, None]
    mask = torch.arange(obs) < torch.tensor([obs, obs - 3, obs - 7])[:, None]
    return torch.randn(len(spans), obs, 16), times, mask


@pytest.mark.filterwarnings("ignore::contiformer.paths.trajectories.ResolutionWarning")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_enough_pieces_and_levels_are_those_of_the_automatic_choice(causal, asked, speed):
    x, times, mask = problem()
    attention = ContinuousAttention(16, 2, causal=causal).eval()
    with torch.no_grad():
        for name, parameter in attention.named_parameters():
            if "_field" in name:
                parameter.mul_(speed)
        queries = times.flip(1) + 0.01 if asked else None
        wanted, weights = attention(x, times, queries, mask, return_weights=True)
        attention.shapes = FixedShapes(attention.pieces_for(x, times, queries, mask) + 1, 4)
        found, found_weights = attention(x, times, queries, mask, return_weights=True)
        assert largest(found - attention(x, times, queries, mask)) == 0
    assert largest(found - wanted) < 1e-5
    assert largest(found_weights - weights) < 1e-5


def test_pieces_needed_by_a_window():
    x, times, mask = problem()
    attention = ContinuousAttention(16, 2, piece_length=1.0)
    assert attention.pieces_for(x, times, None, mask) == int(torch.ceil((times * mask).amax(1) - times[:, 0]).max())
    assert attention.pieces_for(x[:, :0], times[:, :0]) == 1


def test_counted_pieces_are_the_fixed_ones_with_empty_ones_behind():
    _, times, _ = problem(obs=200)
    wanted = fixed_pieces(times, 0.5, 100).edges
    found = counted_pieces(times[:, 0], times[:, -1], 0.5, wanted.shape[1] + 2).edges
    assert torch.equal(found[:, : wanted.shape[1]], wanted)
    assert torch.equal(found[:, wanted.shape[1] :], wanted[:, -1:].expand(-1, 3)[:, : found.shape[1] - wanted.shape[1]])


def test_last_of_too_few_pieces_reaches_the_end():
    _, times, _ = problem()
    edges = counted_pieces(times[:, 0], times[:, -1], 0.5, 2).edges
    assert edges.shape == (3, 3)
    assert bool((edges[:, -1] >= times[:, -1]).all())
