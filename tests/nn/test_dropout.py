"""Dropout from packed random bits."""

import pytest
import torch

from contiformer.nn.dropout import Dropout, drop, kept


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropped_share_and_mean(share):
    torch.manual_seed(0)
    factors = kept(torch.empty(1_000_001), share)
    assert factors.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)], rel=1e-3)
    error = 4 * (share * (1 - share) / 1e6) ** 0.5
    assert float((factors == 0).double().mean()) == pytest.approx(share, abs=error + 2**-17)
    assert float(factors.double().mean()) == pytest.approx(1.0, abs=error / (1 - share))


def test_neighbours_are_independent():
    # four elements come from one number of the generator
    torch.manual_seed(0)
    dropped = (kept(torch.empty(400_000), 0.3) == 0).double().view(-1, 4)
    correlation = torch.corrcoef(torch.cat([dropped, dropped.roll(1, 0)], 1).T)
    off = correlation - torch.eye(8)
    assert float(off.abs().max()) < 5 / 100_000**0.5


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (1.0, 0.0), (1e-9, 1.0)])
def test_shares_zero_and_one(share, value):
    assert torch.equal(kept(torch.empty(3, 5), share), torch.full((3, 5), value))


def test_module_follows_the_seed_and_is_off_in_evaluation():
    x = torch.randn(7, 9, 5, dtype=torch.float64, requires_grad=True)
    dropout = Dropout(0.4)
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(dropout(x))
    assert torch.equal(*results)
    assert torch.equal(dropout.eval()(x), x)


def test_gradient_passes_what_was_kept():
    x = torch.randn(20, 30, requires_grad=True)
    out = Dropout(0.25)(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient * x.detach(), out.detach())
    assert 0 < int((gradient == 0).sum()) < 600


def test_non_contiguous_tensors():
    torch.manual_seed(0)
    x = torch.ones(64, 50).T
    out = Dropout(0.5)(x)
    assert out.shape == x.shape
    assert 0.4 < float((out == 0).double().mean()) < 0.6


def test_dropout_compiles_to_one_graph():
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), Dropout(0.5), torch.nn.Linear(4, 4))
    compiled = torch.compile(layers, backend="eager", fullgraph=True)
    assert compiled(torch.randn(3, 4)).shape == (3, 4)


@pytest.mark.parametrize("share", [-0.5, 1.5])
def test_shares_outside_0_and_1_are_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        drop(torch.ones(4), share)


def test_drop_with_share_zero_and_one():
    x = torch.randn(5)
    assert torch.equal(drop(x, 0.0), x)
    assert not drop(x, 1.0).any()


def test_dropout_works_under_vmap():
    """By torch.func, which has no rule for the way numbers are drawn here."""
    torch.manual_seed(0)
    x = torch.ones(3, 4000)
    dropped = torch.func.vmap(lambda row: drop(row, 0.25), randomness="different")(x)
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert not torch.equal(dropped[0], dropped[1])
