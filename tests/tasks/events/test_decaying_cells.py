"""The recurrence of the neural Hawkes process against the formulas of its paper, one event after another."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from contiformer.tasks.events.models.decaying_cells import decaying_cells


def as_printed(gates: Tensor, waits: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mei & Eisner, equations 5 to 7, by autograd."""
    cell = rest = decay = out = gates.new_zeros(gates.shape[1], weight.shape[1])
    rows = []
    for said, wait in zip(gates, waits, strict=True):
        now = rest + (cell - rest) * torch.exp(-decay * wait.unsqueeze(-1))
        hidden = out * (2 * torch.sigmoid(2 * now) - 1)
        forget, forget_rest, write, write_rest, out, new, rate = (said + hidden @ weight.T).chunk(7, -1)
        forget, forget_rest, write, write_rest, out = (
            x.sigmoid() for x in (forget, forget_rest, write, write_rest, out)
        )
        new, decay = 2 * new.sigmoid() - 1, softplus(rate)
        cell, rest = forget * now + write * new, forget_rest * rest + write_rest * new
        rows.append((torch.stack([cell, rest], 1), decay, out))
    both, decays, outs = zip(*rows, strict=True)
    return torch.stack(both), torch.stack(decays), torch.stack(outs)


def problem(count: int, batch: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    gates = torch.randn(count, batch, 7 * d, generator=generator, dtype=torch.float64)
    waits = torch.rand(count, batch, generator=generator, dtype=torch.float64) * 3
    weight = torch.randn(7 * d, d, generator=generator, dtype=torch.float64)
    return gates.requires_grad_(), waits, weight.requires_grad_()


@pytest.mark.parametrize(("count", "batch", "d"), [(1, 1, 1), (2, 3, 4), (9, 2, 3)])
def test_values_and_gradients_are_those_of_the_formulas(count: int, batch: int, d: int) -> None:
    gates, waits, weight = problem(count, batch, d)
    ours, theirs = decaying_cells(gates, waits, weight), as_printed(gates, waits, weight)
    factors = [torch.randn_like(x) for x in theirs]
    sums = [torch.stack([(x * f).sum() for x, f in zip(parts, factors, strict=True)]).sum() for parts in (ours, theirs)]
    for ours_one, theirs_one in zip(ours, theirs, strict=True):
        torch.testing.assert_close(ours_one, theirs_one)
    torch.testing.assert_close(*(torch.autograd.grad(total, [gates, weight]) for total in sums))


def test_gradients_by_differences() -> None:
    gates, waits, weight = problem(4, 2, 2)
    assert torch.autograd.gradcheck(lambda g, w: decaying_cells(g, waits, w), (gates, weight))


def test_mixed_precision_does_not_reach_the_recurrence() -> None:
    gates, waits, weight = (x.detach().float() for x in problem(5, 2, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = decaying_cells(gates.bfloat16(), waits, weight)
    torch.testing.assert_close(low, decaying_cells(gates.bfloat16().float(), waits, weight))
