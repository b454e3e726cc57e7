"""The ODE-RNN kernel against the loop over rows."""

import pytest
import torch
from torch import nn

from contiformer.backbones.flow import Flow, tanh_network
from contiformer.backbones.ode_rnn import FlowingGRU
from contiformer.backbones.recurrence import GatedUpdate
from contiformer.native import library as native
from contiformer.native.rivals import ode_rnn as native_ode_rnn
from tests.native.gradients import with_gradients

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")

SOLVERS = ("euler", "midpoint", "rk4")


class Case:
    """A layer with random weights, inputs and gaps, some of which are 0."""

    def __init__(self, batch=3, rows=6, d=8, *, units=12, depth=2, solver="rk4", longest=0.5):
        self.layer = FlowingGRU(5, d, tanh_network(d, units, depth), Flow(solver, 0.1, 4))
        for parameter in self.layer.field.parameters():
            # wide layers with larger weights make a field so steep that rounding errors grow in any implementation
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        self.x = torch.randn(batch, rows, 5, requires_grad=True)
        gaps = torch.rand(batch, rows, dtype=torch.float64) * longest
        self.gaps = gaps * (torch.rand(batch, rows) < 0.8)
        self.direction = torch.randn(batch, rows, d)

    def states(self):
        return self.layer(self.x, self.gaps)

    def results(self):
        """States, and the gradients of everything that needs one, by name."""
        named = {"x": self.x, **dict(self.layer.named_parameters())}
        return with_gradients("states", self.states(), named, self.direction)


def assert_equals_torch(case, calls, without_kernels):
    found = case.results()
    assert calls == ["flow_forward", "flow_backward"]
    without_kernels()
    expected = case.results()
    assert len(calls) == 2
    torch.testing.assert_close(found["states"], expected["states"], atol=2e-6, rtol=1e-5)
    for name, exact in expected.items():
        if exact is None:
            # a field that nobody follows has no gradient in the loop, and zeros in the kernel
            assert not found[name].any(), name
            continue
        assert found[name].shape == exact.shape
        assert float((found[name] - exact).norm()) <= 2e-5 * float(exact.norm()) + 1e-7, name


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("batch", [1, 3, 8, 17])
def test_equals_torch(batch, depth, solver, calls, without_kernels):
    assert_equals_torch(Case(batch, depth=depth, solver=solver), calls, without_kernels)


@pytest.mark.parametrize(("d", "units"), [(1, 1), (3, 20), (20, 7), (32, 100), (40, 33), (64, 24)])
@pytest.mark.parametrize("batch", [1, 2, 6])
def test_any_width_equals_torch(batch, d, units, calls, without_kernels):
    assert_equals_torch(Case(batch, 3, d, units=units), calls, without_kernels)


def test_layers_of_different_widths_equal_torch(calls, without_kernels):
    case = Case(d=9)
    layers = [nn.Linear(9, 30), nn.Tanh(), nn.Linear(30, 4), nn.Tanh(), nn.Linear(4, 17), nn.Tanh(), nn.Linear(17, 9)]
    case.layer.field = nn.Sequential(*layers)
    assert_equals_torch(case, calls, without_kernels)


@pytest.mark.parametrize("rows", [1, 70])
def test_any_number_of_rows_equals_torch(rows, calls, without_kernels):
    assert_equals_torch(Case(4, rows), calls, without_kernels)


@pytest.mark.parametrize("longest", [0.0, 1e-9, 3.0])
def test_any_gap_equals_torch(longest, calls, without_kernels):
    """None at all, next to none, and more than the most steps are made for."""
    assert_equals_torch(Case(longest=longest), calls, without_kernels)


def test_gaps_in_single_precision_equal_torch(calls, without_kernels):
    case = Case()
    case.gaps = case.gaps.float()
    assert_equals_torch(case, calls, without_kernels)


def test_non_contiguous_tensors_equal_torch(calls, without_kernels):
    case = Case(4, 7)
    case.x = torch.randn(5, 7, 4).permute(2, 1, 0).requires_grad_()
    case.gaps = torch.rand(7, 8, dtype=torch.float64).T[::2]
    case.direction = torch.randn(8, 7, 4).permute(2, 1, 0)
    case.layer.update.gates.weight = nn.Parameter(torch.randn(8, 16).T)
    assert_equals_torch(case, calls, without_kernels)


@pytest.mark.parametrize("fixed", ["x", "field", "update", "all but x"])
def test_no_gradients_for_frozen_parameters(fixed, calls, without_kernels):
    case = Case()
    case.x.requires_grad_(fixed != "x")
    case.layer.field.requires_grad_(fixed not in ("field", "all but x"))
    case.layer.update.requires_grad_(fixed not in ("update", "all but x"))
    assert_equals_torch(case, calls, without_kernels)


def test_without_gradients_the_states_are_the_same(calls):
    case = Case()
    with torch.no_grad():
        found = case.states()
    assert torch.equal(found, case.states())
    assert calls == ["flow_forward"] * 2


def kernel_results(inputs, gaps, direction, layer):
    """The kernel alone: PyTorch's product of the input may round differently for another batch."""
    inputs = inputs.clone().requires_grad_()
    network = native_ode_rnn.Network.of(layer.field)
    weights = (layer.update.gates.weight, layer.update.candidate.weight)
    states = native_ode_rnn.flowing_gru(inputs, *weights, network, layer.flow.plan(gaps))
    return states.detach(), *torch.autograd.grad(states, [inputs, *layer.parameters()], direction, allow_unused=True)


def test_threads_do_not_change_a_sequence():
    case = Case(37, 20, 16, units=40)
    inputs = torch.randn(37, 20, 48)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(kernel_results(inputs, case.gaps, case.direction, case.layer))
    finally:
        torch.set_num_threads(before)
    for several in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0][:2], several[:2], strict=True))
        for one, other in zip(results[0][2:], several[2:], strict=True):
            # nothing is known of the weights of the input here
            assert (one is None and other is None) or float((one - other).norm() / one.norm()) < 1e-5


def test_batch_mates_do_not_change_a_sequence():
    case = Case(21, 20, 12, units=40, longest=0.9)
    inputs = torch.randn(21, 20, 36)
    states, gradients, *_ = kernel_results(inputs, case.gaps, case.direction, case.layer)
    for chosen in ([4], [20], [0, 7], [3, 2, 1], list(range(5, 12)), list(range(20, -1, -1))):
        some = (part[chosen] for part in (inputs, case.gaps, case.direction))
        mine, my_gradients, *_ = kernel_results(*some, case.layer)
        assert torch.equal(mine, states[chosen])
        assert torch.equal(my_gradients, gradients[chosen])


def test_an_empty_batch_has_no_states(calls):
    case = Case(0)
    assert case.results()["states"].shape == (0, 6, 8)
    assert calls


def test_nan_stays_in_its_sequence():
    case = Case(3, 4)
    expected = case.states()
    with torch.no_grad():
        case.x[1, 2, 0] = torch.nan
    found = case.states()
    assert found[1, 2:].isnan().all()
    assert torch.equal(found[::2], expected[::2])
    assert torch.equal(found[1, :2], expected[1, :2])


def test_nan_gaps_are_refused():
    case = Case()
    case.gaps[0, 1] = torch.nan
    with pytest.raises(ValueError, match="nan"):
        case.states()


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e-2, 1.0, 5.0, 30.0, 1e30])
def test_tanh_keeps_the_digits_of_small_numbers(size):
    """A candidate with z = 1 and nothing else is the tanh of its input."""
    inputs = torch.full((1, 1, 24), 100.0)
    inputs[..., 16:] = size * torch.linspace(-1, 1, 8)
    network = native_ode_rnn.Network((torch.zeros(8, 8),), (torch.zeros(8),))
    steps = native_ode_rnn.Steps(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1), "euler")
    found = native_ode_rnn.flowing_gru(inputs, torch.zeros(16, 8), torch.zeros(8, 8), network, steps)
    torch.testing.assert_close(found, inputs[..., 16:].double().tanh().float(), atol=0.0, rtol=4e-7)


class Other(nn.Linear):
    """Not what its weights say."""

    def forward(self, x):
        return 2 * super().forward(x)


_MORE = ("hook before backward", "patched", "bias in the GRU")


@pytest.mark.parametrize(
    "change",
    [
        lambda case: case.layer.double() and setattr(case, "x", case.x.detach().double().requires_grad_()),
        lambda case: case.gaps.requires_grad_(),
        lambda case: setattr(case.layer, "field", nn.Sequential(Other(8, 8))),
        lambda case: setattr(case.layer, "field", nn.Sequential(nn.Linear(8, 8, bias=False))),
        lambda case: setattr(case.layer, "field", nn.Sequential(nn.Linear(8, 8), nn.Tanh())),
        lambda case: setattr(case.layer, "field", nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))),
        lambda case: case.layer.field[0].register_forward_hook(lambda module, given, out: 2 * out),
        lambda case: case.layer.update.gates.register_forward_hook(lambda module, given, out: 2 * out),
        lambda case: case.layer.field[0].register_full_backward_pre_hook(lambda module, gradient: None),
        lambda case: setattr(case.layer.field[0], "forward", lambda x: x.new_zeros(*x.shape[:-1], 12)),
        lambda case: setattr(case.layer.update, "gates", nn.Linear(8, 16)),
    ],
    ids=["double", "gaps", "subclass", "no bias", "tanh at the end", "relu", "hook in f", "hook in the GRU", *_MORE],
)
def test_unsupported_input_falls_back_to_torch(change, calls):
    case = Case()
    change(case)
    assert case.states().shape == (3, 6, 8)
    assert not calls


def test_autocast_falls_back_to_torch(calls):
    case = Case()
    expected = case.states()
    calls.clear()
    with torch.autocast("cpu", torch.bfloat16):
        found = case.states()
    assert not calls
    torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.1)


class Still(GatedUpdate):
    """Not what its weights say."""

    def forward(self, h, row):
        return torch.zeros_like(h)


def test_subclass_of_the_update_is_called(calls):
    case = Case()
    case.layer.update.__class__ = Still
    assert not case.states().any()
    assert not calls


def test_default_device_of_the_user_does_not_matter(calls):
    case = Case()
    expected = case.states()
    with torch.device("meta"):
        assert torch.equal(case.states(), expected)
    assert calls == ["flow_forward"] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced_layer_gives_what_the_layer_gives(calls):
    case = Case(2, 2)
    expected = case.states()
    calls.clear()
    traced = torch.jit.trace(case.layer, (case.x, case.gaps), check_trace=False)
    assert not calls
    torch.testing.assert_close(traced(case.x, case.gaps), expected, atol=2e-6, rtol=1e-5)


def test_global_module_hooks_are_called(calls):
    seen = []
    with torch.nn.modules.module.register_module_forward_hook(lambda *rest: seen.append(rest)):
        Case().states()
    assert len(seen) > 10
    assert not calls


def test_functorch_transforms_fall_back_to_torch(calls):
    case = Case()
    expected = case.states()
    calls.clear()
    gradient = torch.func.grad(lambda x: (case.layer(x, case.gaps) * case.direction).sum())(case.x.detach())
    assert not calls
    (exact,) = torch.autograd.grad(expected, case.x, case.direction)
    torch.testing.assert_close(gradient, exact, atol=1e-5, rtol=1e-4)


@pytest.mark.no_array_checks
def test_compiled_layer_gives_what_the_layer_gives():
    case = Case(2, 1, solver="euler", depth=0)
    compiled = torch.compile(case.layer, backend="eager")
    torch.testing.assert_close(compiled(case.x, case.gaps), case.states(), atol=2e-6, rtol=1e-5)
