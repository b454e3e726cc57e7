"""The neural CDE kernel against the loop over steps."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from contiformer.backbones.neural_cde import CONTROLS, MatrixField, NeuralCDE
from contiformer.data import Series, collate
from contiformer.native import library as native
from contiformer.native.rivals import neural_cde as native_neural_cde
from tests.native.gradients import with_gradients

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")


class Case:
    """A model with random weights, and series of different lengths with missing values; some rows at one time."""

    def __init__(self, batch=3, rows=6, d=8, *, channels=2, queries=0, span=2.0, whole=False, **options):
        self.model = NeuralCDE(channels, d, dropout=0.0, **{"step": 0.1, "max_steps": 4, **options})
        series = []
        for n in range(batch):
            length = max(1, rows - n % 4)
            # rows that are nearly at one time make a path so steep that rounding errors grow in any implementation
            times = (0.5 + torch.rand(length, dtype=torch.float64)).cumsum(0) * span / rows
            times[length // 2] = times[length // 2 - 1] if length > 1 else times[0]
            values = torch.randn(length, channels)
            values[torch.rand(length, channels) < (0.0 if whole else 0.3)] = torch.nan
            series.append(Series.of(times.tolist(), values.tolist()))
        found = collate(series)
        self.values = found.values.detach().float().requires_grad_()
        self.batch = found
        # before the first row, between rows and behind the last
        self.queries = torch.rand(batch, queries, dtype=torch.float64) * (span + 1) - 0.5 if queries else None
        self.direction = torch.randn(batch, queries or found.times.shape[1], d)

    def states(self):
        return self.model(replace(self.batch, values=self.values), self.queries)

    def results(self):
        """States, and the gradients of everything that needs one, by name."""
        named = {"values": self.values, **dict(self.model.named_parameters())}
        return with_gradients("states", self.states(), named, self.direction)


def assert_equals_torch(case, calls, without_kernels):
    found = case.results()
    assert set(calls) == {"drive_forward", "drive_backward"}
    calls.clear()
    without_kernels()
    expected = case.results()
    assert not calls
    torch.testing.assert_close(found["states"], expected["states"], atol=2e-6, rtol=1e-5)
    for name, exact in expected.items():
        if exact is None:
            # a field that nobody follows has no gradient in the loop, and zeros in the kernel
            assert found[name] is None or not found[name].any(), name
            continue
        assert found[name].shape == exact.shape
        assert float((found[name] - exact).norm()) <= 1e-5 * float(exact.norm()) + 1e-7, name


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("queries", [0, 5])
@pytest.mark.parametrize("batch", [3, 35])
def test_equals_torch(batch, queries, control, calls, without_kernels):
    # with seed 0 a ReLU is at its kink, on either side of it by the processor's rounding
    torch.manual_seed(1)
    assert_equals_torch(Case(batch, queries=queries, control=control), calls, without_kernels)


@pytest.mark.parametrize(("d", "units", "channels"), [(1, 1, 1), (3, 20, 2), (20, 7, 4), (64, 32, 9), (40, 33, 1)])
@pytest.mark.parametrize("batch", [1, 6])
def test_any_width_equals_torch(batch, d, units, channels, calls, without_kernels):
    assert_equals_torch(Case(batch, 3, d, units=units, channels=channels), calls, without_kernels)


@pytest.mark.parametrize("n_layers", [1, 2, 4])
@pytest.mark.parametrize("count_unit", [None, 10.0])
def test_any_depth_and_counts_equal_torch(n_layers, count_unit, calls, without_kernels):
    assert_equals_torch(Case(n_layers=n_layers, count_unit=count_unit), calls, without_kernels)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("rows", [1, 25])
def test_any_number_of_rows_equals_torch(rows, control, calls, without_kernels):
    assert_equals_torch(Case(4, rows, queries=2, control=control), calls, without_kernels)


@pytest.mark.parametrize("control", ["cubic", "rectilinear"])
@pytest.mark.parametrize("span", [0.0, 1e-9, 0.5, 30.0])
def test_any_span_equals_torch(span, control, calls, without_kernels):
    """No time at all, next to none, and more than the most steps are made for."""
    assert_equals_torch(Case(span=span, control=control, max_steps=2), calls, without_kernels)


def test_whole_rows_equal_torch(calls, without_kernels):
    assert_equals_torch(Case(whole=True), calls, without_kernels)


def test_layers_of_different_widths_equal_torch(calls, without_kernels):
    case = Case(d=9)
    layers = [nn.Linear(9, 30), nn.ReLU(), nn.Linear(30, 4), nn.ReLU(), nn.Linear(4, 45), nn.Tanh()]
    case.model.field.network = nn.Sequential(*layers)
    assert_equals_torch(case, calls, without_kernels)


def test_a_single_layer_equals_torch(calls, without_kernels):
    case = Case()
    case.model.field.network = nn.Sequential(nn.Linear(8, 40), nn.Tanh())
    assert_equals_torch(case, calls, without_kernels)


@pytest.mark.parametrize("fixed", ["values", "field", "initial", "all but values"])
@pytest.mark.parametrize("control", ["cubic", "rectilinear"])
def test_no_gradients_for_frozen_parameters(fixed, control, calls, without_kernels):
    case = Case(control=control)
    case.values.requires_grad_(fixed != "values")
    case.model.field.requires_grad_(fixed not in ("field", "all but values"))
    case.model.initial.requires_grad_(fixed not in ("initial", "all but values"))
    assert_equals_torch(case, calls, without_kernels)


@pytest.mark.parametrize("control", CONTROLS)
def test_times_that_need_gradients_fall_back_to_torch(control, calls):
    """The loop can be differentiated twice, also by steps of length 0 between rows at one time; the kernel cannot."""
    case = Case(control=control, queries=2)
    times = case.batch.times.clone().requires_grad_()
    case.batch = replace(case.batch, times=times)
    (slope,) = torch.autograd.grad((case.states() * case.direction).sum(), times, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.square().sum(), times)
    assert slope.any()
    assert curvature.any()
    assert not calls


def test_without_gradients_the_states_are_the_same(calls):
    case = Case()
    with torch.no_grad():
        found = case.states()
    assert torch.equal(found, case.states())
    assert set(calls) == {"drive_forward"}


class Alone:
    """The kernel alone, on steps of random size."""

    def __init__(self, batch, steps=9, d=12, channels=5, units=20):
        self.field = MatrixField(d, channels, units, 2)
        self.start = torch.randn(batch, d)
        self.pieces = torch.randn(batch, steps, 3, channels) / 8
        self.count = torch.randint(0, steps + 1, (batch,))
        self.direction = torch.randn(batch, steps + 1, d)

    def results(self, chosen):
        start, pieces = (part[chosen].clone().requires_grad_() for part in (self.start, self.pieces))
        states = native_neural_cde.driven(start, pieces, self.count[chosen], self.field.known())
        parameters = list(self.field.parameters())
        return states.detach(), *torch.autograd.grad(states, [start, pieces, *parameters], self.direction[chosen])


def test_threads_do_not_change_a_sequence():
    case = Alone(77, 20, 24)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(case.results(slice(None)))
    finally:
        torch.set_num_threads(before)
    for several in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0][:3], several[:3], strict=True))
        for one, other in zip(results[0][3:], several[3:], strict=True):
            assert float((one - other).norm() / one.norm()) < 1e-5


def test_batch_mates_do_not_change_a_sequence():
    case = Alone(41)
    # a channel that moves in some sequences only
    case.pieces[::2, ..., 1] = 0.0
    whole = case.results(slice(None))
    for chosen in ([4], [40], [0, 7], [3, 2, 1], list(range(5, 12)), list(range(40, -1, -1))):
        for mine, all_of_them in zip(case.results(chosen)[:3], whole[:3], strict=True):
            assert torch.equal(mine, all_of_them[chosen])


def test_state_is_constant_after_the_last_step():
    case = Alone(5)
    states, *_ = case.results(slice(None))
    for state, count in zip(states, case.count.tolist(), strict=True):
        assert (state[count:] == state[count]).all()


def test_an_empty_batch_has_no_states(calls):
    assert Alone(0).results(slice(None))[0].shape == (0, 10, 12)
    assert calls


def test_nan_stays_in_its_sequence():
    case = Alone(3)
    case.count[:] = 9
    expected, *_ = case.results(slice(None))
    case.pieces[1, 4] = torch.nan
    found, *_ = case.results(slice(None))
    assert found[1, 5:].isnan().all()
    assert torch.equal(found[::2], expected[::2])
    assert torch.equal(found[1, :5], expected[1, :5])


class Other(nn.Linear):
    """Not what its weights say."""

    def forward(self, x):
        return 2 * super().forward(x)


class OtherField(MatrixField):
    """Nor this."""

    def forward(self, z, step):
        return 2 * super().forward(z, step)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: setattr(model, "field", OtherField(8, 5, 7, 1)),
        lambda model: setattr(model.field, "network", nn.Sequential(Other(8, 40), nn.Tanh())),
        lambda model: setattr(model.field, "network", nn.Sequential(nn.Linear(8, 40, bias=False), nn.Tanh())),
        lambda model: setattr(model.field, "network", nn.Linear(8, 40)),
        lambda model: setattr(model.field, "network", nn.Sequential(nn.Tanh())),
        lambda model: setattr(model.field, "network", nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Tanh())),
        lambda model: model.field.network[0].register_forward_hook(lambda module, given, out: 2 * out),
        lambda model: model.field.register_forward_hook(lambda module, given, out: 2 * out),
    ],
    ids=["double", "field", "subclass", "no bias", "linear", "only tanh", "relu", "hook in f", "hook of f"],
)
def test_unsupported_input_falls_back_to_torch(change, calls):
    case = Case(queries=2)
    change(case.model)
    if isinstance(case.model.field.network, nn.Sequential) and len(case.model.field.network) == 1:
        # 8 numbers are no matrix of 5 channels: it is enough that the kernel does not take them
        assert case.model.field.known() is None
        return
    assert case.states().shape == (3, 2, 8)
    assert not calls


def test_autocast_falls_back_to_torch(calls):
    case = Case()
    with torch.autocast("cpu", torch.bfloat16):
        case.states()
    assert not calls


def test_functorch_transforms_fall_back_to_torch(calls):
    case = Case(whole=True)
    expected = case.states()
    calls.clear()

    def total(values):
        return (case.model(replace(case.batch, values=values)) * case.direction).sum()

    gradient = torch.func.grad(total)(case.values.detach())
    assert not calls
    (exact,) = torch.autograd.grad(expected, case.values, case.direction)
    torch.testing.assert_close(gradient, exact, atol=1e-5, rtol=1e-4)


def test_nan_gaps_are_refused():
    case = Case()
    times = case.batch.times.clone()
    times[0, 1] = torch.nan
    case.batch = replace(case.batch, times=times)
    with pytest.raises(ValueError, match="nan"):
        case.states()


def test_compilation_falls_back_to_torch(calls, monkeypatch):
    case = Case(queries=2)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    case.states()
    assert not calls
