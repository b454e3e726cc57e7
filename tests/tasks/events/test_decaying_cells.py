"""The recurrence of the neural Hawkes process with its derivatives by hand, against the loop that autograd follows.

The loop is compared with the formulas of the paper in ``test_models``.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from contiformer.tasks.events import nhp as module
from contiformer.tasks.events.nhp import decaying_cells, one_by_one


@pytest.fixture
def by_hand(monkeypatch):
    """How often the derivatives by hand were asked for."""
    seen = []
    by_hand = module._DecayingCells.apply
    monkeypatch.setattr(module._DecayingCells, "apply", lambda *given: seen.append(1) or by_hand(*given))
    return seen


def problem(count: int, batch: int, d: int) -> tuple[Tensor, Tensor, nn.Linear]:
    gates = torch.randn(count, batch, 7 * d, dtype=torch.float64, requires_grad=True)
    waits = torch.rand(count, batch, dtype=torch.float64) * 3
    from_state = nn.Linear(d, 7 * d, bias=False, dtype=torch.float64)
    nn.init.normal_(from_state.weight)
    return gates, waits, from_state


@pytest.mark.parametrize(("count", "batch", "d"), [(1, 1, 1), (2, 3, 4), (9, 2, 3), (3, 0, 2)])
def test_values_and_gradients_are_those_of_the_loop(count, batch, d, by_hand):
    gates, waits, from_state = problem(count, batch, d)
    ours, theirs = decaying_cells(gates, waits, from_state), one_by_one(gates, waits, from_state)
    assert len(by_hand) == 1
    torch.testing.assert_close(ours, theirs)
    factors = [torch.randn_like(x) for x in theirs]
    sums = [torch.stack([(x * f).sum() for x, f in zip(parts, factors, strict=True)]).sum() for parts in (ours, theirs)]
    torch.testing.assert_close(*(torch.autograd.grad(total, [gates, from_state.weight]) for total in sums))


def test_gradients_by_differences():
    gates, waits, from_state = problem(4, 2, 2)
    assert torch.autograd.gradcheck(lambda g, _: decaying_cells(g, waits, from_state), (gates, from_state.weight))


def test_mixed_precision_does_not_reach_the_recurrence():
    gates, waits, from_state = (x.detach().float() if isinstance(x, Tensor) else x.float() for x in problem(5, 2, 3))
    expected = decaying_cells(gates.bfloat16().float(), waits, from_state)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(decaying_cells(gates.bfloat16(), waits, from_state), expected)


def test_gradients_with_respect_to_waits_are_left_to_autograd(by_hand):
    gates, waits, from_state = problem(4, 2, 2)
    assert torch.autograd.gradcheck(lambda w: decaying_cells(gates, w, from_state), waits.requires_grad_())
    assert not by_hand


def test_changed_layers_are_called(by_hand):
    gates, waits, from_state = problem(4, 2, 2)
    prune.l1_unstructured(from_state, "weight", 0.5)
    with torch.no_grad():
        from_state.weight_orig.zero_()
    found = decaying_cells(gates, waits, from_state)
    assert not by_hand
    nn.init.zeros_(prune.remove(from_state, "weight").weight)
    torch.testing.assert_close(found, decaying_cells(gates, waits, from_state))


@pytest.mark.parametrize("level", ["func", "forward", "double"])
def test_other_derivatives_are_left_to_autograd_or_refused(level):
    gates, waits, from_state = problem(3, 2, 2)

    def total(given):
        return decaying_cells(given, waits, from_state)[0].square().sum()

    (expected,) = torch.autograd.grad(total(gates), gates)
    if level == "func":
        torch.testing.assert_close(torch.func.grad(total)(gates.detach()), expected)
    elif level == "forward":
        direction = torch.randn_like(gates)
        _, found = torch.func.jvp(total, (gates.detach(),), (direction,))
        torch.testing.assert_close(found, (expected * direction).sum())
    else:
        with pytest.raises(RuntimeError, match="second derivatives are not available"):
            torch.autograd.grad(total(gates), gates, create_graph=True)
