"""The spectral mixture kernel against its formula in PyTorch."""

import copy

import pytest
import torch
from torch import nn

from contiformer.backbones.nstka import NSTKA, SpectralMixtureKernel
from contiformer.data.batch import Batch
from contiformer.native import library as native
from contiformer.native.rivals import spectral_mixture as native_spectral
from tests.native.gradients import with_gradients

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")

BOTH = ["spectral_forward", "spectral_backward"]


class Case:
    """A kernel whose functions vary, between random times; others None: between them and themselves."""

    def __init__(self, batch=2, times=9, others=11, mixtures=4, *, span=1.0):
        self.kernel = SpectralMixtureKernel(mixtures)
        nn.init.normal_(self.kernel.out)
        self.t = span * torch.rand(batch, times)
        self.s = self.t if others is None else span * torch.rand(batch, others)
        self.direction = torch.randn(batch, times, self.s.shape[1])

    def matrix(self):
        return self.kernel(self.t, self.s)

    def results(self):
        """The matrix, and the gradients of all parameters by name."""
        return with_gradients("matrix", self.matrix(), dict(self.kernel.named_parameters()), self.direction)

    def doubled(self):
        """The same in double precision."""
        other = copy.copy(self)
        other.kernel = copy.deepcopy(self.kernel).double()
        other.t, other.s, other.direction = (x.double() for x in (self.t, self.s, self.direction))
        return other


def errors(found, exact):
    assert found.keys() == exact.keys()
    assert all(found[name].shape == exact[name].shape for name in exact)
    return {name: float((found[name] - exact[name]).norm()) / (float(exact[name].norm()) + 1e-30) for name in exact}


def assert_equals_torch(case, calls, without_kernels):
    found = case.results()
    assert calls == BOTH
    without_kernels()
    expected = case.results()
    assert len(calls) == 2
    torch.testing.assert_close(found["matrix"], expected["matrix"], atol=1e-4, rtol=1e-5)
    assert max(errors(found, expected).values()) < 5e-5


@pytest.mark.parametrize("others", [None, 1, 7, 8, 33])
@pytest.mark.parametrize("times", [1, 5, 16, 40])
@pytest.mark.parametrize(("batch", "mixtures"), [(1, 1), (3, 4), (2, 7)])
def test_equals_torch(batch, mixtures, times, others, calls, without_kernels):
    assert_equals_torch(Case(batch, times, others, mixtures), calls, without_kernels)


@pytest.mark.parametrize("fixed", ["hidden.weight", "hidden.bias", "out", "shift"])
def test_no_gradients_for_frozen_parameters(fixed, calls, without_kernels):
    case = Case()
    case.kernel.get_parameter(fixed).requires_grad_(False)
    assert_equals_torch(case, calls, without_kernels)


def test_non_contiguous_tensors_equal_torch(calls, without_kernels):
    case = Case(4, 10, 12)
    case.t, case.s = torch.rand(10, 8).T[::2], torch.rand(12, 4).T
    case.direction = torch.randn(12, 10, 4).permute(2, 1, 0)
    assert_equals_torch(case, calls, without_kernels)


@pytest.mark.parametrize("zeros", ["causal", "rows", "all"])
def test_gradients_that_are_zero_equal_torch(zeros, calls, without_kernels):
    """The pass back leaves out zeros at the ends of rows."""
    case = Case(2, 40, None)
    if zeros == "causal":
        case.direction = case.direction.tril()
    case.direction[:, :: 1 if zeros == "all" else 3] *= 0.0
    assert_equals_torch(case, calls, without_kernels)


@pytest.mark.parametrize("span", [1e-3, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("others", [None, 50])
def test_is_as_exact_as_torch(span, others, calls, without_kernels):
    """Also where phases are many turns: neither may be far from double precision when the other is not."""
    case = Case(3, 50, others, span=span)
    exact = case.doubled().results()
    found = errors(case.results(), exact)
    assert calls == BOTH
    without_kernels()
    expected = errors(case.results(), exact)
    for name, error in found.items():
        assert error <= 5 * expected[name] + 2e-6, name


def test_diagonal_has_no_phase():
    """Phases of late times are large, but those of a pair of equal times cancel."""
    case = Case(1, 6, None, span=1e4)
    case.direction = torch.eye(6).expand(1, -1, -1)
    expected = case.kernel.functions(case.t)[0].square().sum(-1)
    torch.testing.assert_close(case.matrix().diagonal(dim1=1, dim2=2), expected, atol=0.0, rtol=1e-6)
    points = case.kernel._points(case.t).detach().requires_grad_()
    matrix = native_spectral.spectral_mixture(case.t, case.t, points, points)
    (gradient,) = torch.autograd.grad(matrix, points, case.direction)
    assert not gradient[:, 2].any()


def test_kernel_of_distant_times_is_zero():
    case = Case(1, 3, 20)
    case.s += 1e3
    results = case.results()
    assert not any(result.any() for result in results.values())


def test_matrix_is_symmetric_to_the_bit():
    matrix = Case(2, 37, None).matrix()
    assert torch.equal(matrix, matrix.mT)


def test_without_gradients_the_matrix_is_the_same(calls):
    case = Case()
    with torch.no_grad():
        found = case.matrix()
    assert torch.equal(found, case.matrix())
    assert calls == ["spectral_forward"] * 2


def kernel_results(t, s, points, other_points, direction):
    """The kernel alone: PyTorch's networks may round differently for another batch."""
    given = [x.detach().clone().requires_grad_() for x in (points, other_points)]
    matrix = native_spectral.spectral_mixture(t, s, *given)
    return matrix.detach(), *torch.autograd.grad(matrix, given, direction)


def drawn(batch, times, others):
    case = Case(batch, times, others)
    return case.t, case.s, case.kernel._points(case.t), case.kernel._points(case.s), case.direction


def test_threads_do_not_change_the_result():
    given = drawn(5, 60, 70)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            results.append(kernel_results(*given))
    finally:
        torch.set_num_threads(before)
    for several in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], several, strict=True))


def test_batch_mates_do_not_change_the_result():
    given = drawn(6, 20, 19)
    every = kernel_results(*given)
    for chosen in ([4], [5, 0], [3, 2, 1]):
        some = kernel_results(*(x[chosen] for x in given))
        assert all(torch.equal(one, other[chosen]) for one, other in zip(some, every, strict=True))


@pytest.mark.parametrize(("batch", "times", "others"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_inputs_give_empty_matrices(batch, times, others):
    results = Case(batch, times, others).results()
    assert results.pop("matrix").shape == (batch, times, others)
    assert not any(gradient.any() for gradient in results.values())


def test_nan_stays_in_its_row():
    t, s, points, other_points, _ = drawn(3, 9, 10)
    expected = native_spectral.spectral_mixture(t, s, points, other_points)
    t[1, 4] = torch.nan
    found = native_spectral.spectral_mixture(t, s, points, other_points)
    assert found[1, 4].isnan().all()
    other = torch.arange(9) != 4
    assert torch.equal(found[:, other], expected[:, other])
    assert torch.equal(found[::2], expected[::2])


def test_weights_of_zero_have_finite_gradients(calls):
    case = Case()
    with torch.no_grad():
        case.kernel.out[0] = 0.0
        case.kernel.shift[0, 1] = -200.0
    results = case.results()
    assert calls == BOTH
    assert all(result.isfinite().all() for result in results.values())
    assert results["shift"][0, 0] != 0.0
    assert not results["shift"][:, 1].any()


@pytest.mark.parametrize("change", ["double", "times", "others"])
def test_unsupported_input_falls_back_to_torch(change, calls):
    case = Case()
    if change == "double":
        case = case.doubled()
    else:
        (case.t if change == "times" else case.s).requires_grad_()
    case.results()
    assert not calls


def test_autocast_gives_about_the_same():
    case = Case()
    expected = case.matrix().detach()
    with torch.autocast("cpu", torch.bfloat16):
        found = case.matrix().detach()
    assert float((found - expected).norm() / expected.norm()) < 0.2


def test_hooks_on_the_networks_are_called(calls):
    case = Case()
    seen = []
    case.kernel.hidden.register_forward_hook(lambda *rest: seen.append(rest))
    case.matrix()
    assert len(seen) == 2
    assert calls


def test_functorch_transforms_fall_back_to_torch(calls):
    case = Case()
    parameters = dict(case.kernel.named_parameters())

    def total(values):
        return (torch.func.functional_call(case.kernel, values, (case.t, case.s)) * case.direction).sum()

    found = torch.func.grad(total)({name: value.detach() for name, value in parameters.items()})
    assert not calls
    expected = case.results()
    assert max(errors(found, {name: expected[name] for name in found}).values()) < 5e-5


@pytest.mark.no_array_checks
def test_compiled_kernel_gives_what_the_kernel_gives():
    case = Case()
    compiled = torch.compile(case.kernel, backend="eager")
    torch.testing.assert_close(compiled(case.t, case.s), case.matrix(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_model_gives_what_it_gives_in_torch(asked, causal, calls, without_kernels):
    model = NSTKA(2, 16, n_heads=2, causal=causal)
    times, values = torch.rand(3, 20, dtype=torch.float64).sort(-1).values, torch.randn(3, 20, 2)
    observed = torch.rand(3, 20, 2) < 0.7
    batch = Batch(times, values, observed, torch.tensor([20, 20, 20]))
    queries = torch.rand(3, 5, dtype=torch.float64) if asked else None
    direction = torch.randn(3, 5 if asked else 20, 16)

    def results():
        torch.manual_seed(0)
        states = model(batch, queries)
        gradients = torch.autograd.grad(states, list(model.parameters()), direction, allow_unused=True)
        named = zip(("states", *dict(model.named_parameters())), (states.detach(), *gradients), strict=True)
        return {name: result for name, result in named if result is not None}

    found = results()
    assert sorted(calls) == sorted(2 * BOTH)
    without_kernels()
    assert max(errors(found, results()).values()) < 1e-4
