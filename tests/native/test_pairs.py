"""The kernel of the pairwise algorithm against PyTorch."""

import copy

import pytest
import torch
from torch import nn

from benchmarks.contenders import Shape, make_call
from contiformer.native import library as native
from contiformer.native import pairs
from contiformer.nn import ContinuousAttention
from contiformer.nn.fields import ConcatField, fuse
from tests.native.gradients import with_gradients

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")

BOTH_WAYS = ["pairs_forward", "pairs_forward", "pairs_backward", "pairs_backward"]


class Case:
    """Attention with random weights, and sequences with equal times and masked rows."""

    def __init__(self, d=16, *, lengths=9, queries=None, masked=True, **options):
        torch.manual_seed(0)
        options = {"rule": "linear", "step_size": 0.5, **options}
        self.attention = ContinuousAttention(d, 2, method="pairwise", **options)
        for field in (self.attention.key_field, self.attention.value_field):
            for parameter in [] if getattr(field, "norm", None) is None else field.norm.parameters():
                nn.init.normal_(parameter, mean=1, std=0.3)
        self.x = torch.randn(3, lengths, d, requires_grad=True)
        self.times = (3 * torch.rand(3, lengths, dtype=torch.float64)).sort().values
        self.times[:, 4] = self.times[:, 3]
        self.queries = None if queries is None else 4 * torch.rand(3, queries, dtype=torch.float64) - 0.5
        self.mask = torch.rand(3, lengths) > 0.3 if masked else None
        self.direction = torch.randn(3, queries or lengths, d)

    def out(self):
        return self.attention(self.x, self.times, self.queries, self.mask)

    def results(self):
        named = {"x": self.x, **dict(self.attention.named_parameters())}
        return with_gradients("out", self.out(), named, self.direction)


def assert_same(found, expected):
    torch.testing.assert_close(found["out"].to(expected["out"].dtype), expected["out"], atol=2e-6, rtol=1e-5)
    largest = max(float(exact.norm()) for name, exact in expected.items() if name != "out" and exact is not None)
    for name, exact in expected.items():
        if exact is None:
            assert found[name] is None or not found[name].any(), name
            continue
        # what LayerNorm removes has a gradient of nothing but rounding
        assert float((found[name] - exact).norm()) <= 1e-5 * float(exact.norm()) + 1e-6 * largest, name


@pytest.mark.parametrize("field", ["concatnorm", "concat"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"rule": "gauss"}, {"causal": True, "queries": 7}])
def test_equals_torch(options, activation, field, calls, without_kernels):
    case = Case(field=field, activation=activation, **options)
    found = case.results()
    segments = 3 if options.get("rule") == "gauss" else 1
    assert sorted(calls) == sorted(BOTH_WAYS * segments)
    without_kernels()
    expected = case.results()
    assert len(calls) == len(BOTH_WAYS) * segments
    assert_same(found, expected)


@pytest.mark.parametrize(("d", "step_size"), [(8, 2.0), (8, 0.02), (32, 0.3), (40, 0.3)])
def test_equals_double_precision(d, step_size):
    case = Case(d, step_size=step_size, causal=True)
    found = case.results()
    case.attention, case.x = case.attention.double(), case.x.detach().double().requires_grad_()
    case.direction = case.direction.double()
    assert_same(found, case.results())


@pytest.mark.parametrize(
    "options", [{"continuous_scores": False}, {"continuous_values": False}, {"normalize_scores": False}]
)
def test_ablations_equal_torch(options, without_kernels):
    case = Case(causal=True, **options)
    found = case.results()
    without_kernels()
    assert_same(found, case.results())


@pytest.mark.parametrize("change", ["all are masked", "all ask too early"])
def test_rows_without_keys_equal_torch(change, without_kernels):
    case = Case(causal=True, queries=4)
    if change == "all are masked":
        case.mask[:] = False
    else:
        case.queries = case.queries - 10
    found = case.results()
    without_kernels()
    assert_same(found, case.results())


def test_only_unmasked_causal_pairs_are_solved(monkeypatch):
    followed = []

    def counted(name, works, items):
        followed.append(items)
        return native.share_out(name, works, items)

    monkeypatch.setattr(pairs, "share_out", counted)
    case = Case(causal=True)
    case.times[:, 4] += 1e-9
    case.out()
    length = case.mask.sum(1)
    assert followed == [int((length * (length + 1) // 2).sum())] * 2


def test_fully_masked_sequences_equal_torch(calls, without_kernels):
    case = Case(causal=True)
    case.mask[1] = False
    found = case.results()
    assert sorted(calls) == sorted(BOTH_WAYS)
    without_kernels()
    assert_same(found, case.results())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_result_does_not_depend_on_batch_mates_or_threads(threads):
    torch.manual_seed(0)
    field = fuse([ConcatField(16)], torch.float32)
    states, begin = torch.randn(101, 16), torch.rand(101)
    end = begin + torch.rand(101)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        together = field.along(states, begin, end, 20)
    finally:
        torch.set_num_threads(before)
    alone = [field.along(states[n : n + 1], begin[n : n + 1], end[n : n + 1], 20) for n in range(101)]
    assert torch.equal(together, torch.cat(alone))


def parameters_of(field):
    return [field.matrix, field.slope, field.bias, field.gain, field.shift]


def test_long_sums_lose_no_digits():
    """Of 400 pairs and 400 steps every parameter has 640,000 terms; summed up in one float they were 4e-4 off."""
    torch.manual_seed(0)
    states, begin = torch.randn(400, 8, requires_grad=True), torch.zeros(400)
    end = torch.rand(400)
    with torch.no_grad():
        field = fuse([ConcatField(8)], torch.float32)
    learned = [x.requires_grad_() for x in parameters_of(field)]
    # of one sign, so that the sums grow
    found = torch.autograd.grad(field.along(states, begin, end, 400).sum(), [states, *learned])
    few = 10
    exact = [torch.zeros_like(x, dtype=torch.float64) for x in learned]
    for n in range(0, 400, few):
        some = slice(n, n + few)
        ends = field.along(states[some], begin[some], end[some], 400)
        for total, part in zip(exact, torch.autograd.grad(ends.sum(), learned), strict=True):
            total.add_(part)
    for ours, truth in zip(found[1:], exact, strict=True):
        assert float((ours - truth).abs().max()) <= 1e-5 * float(truth.abs().max())


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_the_gradients(threads):
    torch.manual_seed(0)
    with torch.no_grad():
        field = fuse([ConcatField(16)], torch.float32)
    states, begin = torch.randn(101, 16, requires_grad=True), torch.rand(101)
    end = begin + torch.rand(101)
    learned = [x.requires_grad_() for x in parameters_of(field)]
    before, results = torch.get_num_threads(), []
    # a gradient that does not lie as the kernel reads it
    direction = torch.randn(16, 101).T
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            results.append(torch.autograd.grad(field.along(states, begin, end, 20), [states, *learned], direction))
    finally:
        torch.set_num_threads(before)
    (one, *alone), (other, *shared) = results
    assert torch.equal(one, other)
    for exact, found in zip(alone, shared, strict=True):
        assert float((found - exact).abs().max()) <= 2e-6 * float(exact.abs().max())


def test_steps_converge_with_order_four():
    torch.manual_seed(0)
    module = ConcatField(16)
    states, begin, end = torch.randn(20, 16), torch.zeros(20), torch.full((20,), 4.0)
    with torch.no_grad():
        exact = states.double()
        fine = copy.deepcopy(module).double()
        for n in range(400):
            t, h = n * 0.01, 0.01
            k1 = fine(t, exact)
            k2 = fine(t + h / 2, exact + h / 2 * k1)
            k3 = fine(t + h / 2, exact + h / 2 * k2)
            exact = exact + h / 6 * (k1 + 2 * k2 + 2 * k3 + fine(t + h, exact + h * k3))
        field = fuse([module], torch.float32)
        coarse, finer = (float((field.along(states, begin, end, steps) - exact).abs().max()) for steps in (4, 8))
    assert 9 < coarse / finer < 27


class Twice(ConcatField):
    """A field that is not the paper's."""

    def forward(self, t, x):
        return 2 * super().forward(t, x)


class Double(nn.Linear):
    """A layer that is not what it looks like."""

    def forward(self, x):
        return 2 * super().forward(x)


def with_parts(**parts):
    field = ConcatField(16)
    for name, part in parts.items():
        setattr(field, name, part)
    return field


OTHER_FIELDS = {
    "a subclass": Twice(16),
    "another field": "linear",
    "another layer": with_parts(inner=Double(16, 16)),
    "no bias": with_parts(outer=nn.Linear(16, 16, bias=False)),
    "another norm": with_parts(norm=nn.RMSNorm(16)),
    "a norm without gain": with_parts(norm=nn.LayerNorm(16, elementwise_affine=False)),
    "a norm without shift": with_parts(norm=nn.LayerNorm(16, bias=False)),
}


@pytest.mark.parametrize("field", OTHER_FIELDS.values(), ids=OTHER_FIELDS)
def test_other_fields_fall_back_to_torch(field, calls, without_kernels):
    case = Case(causal=True, field=field)
    found = case.results()
    assert calls == []
    without_kernels()
    assert_same(found, case.results())


@pytest.mark.parametrize("field", OTHER_FIELDS.values(), ids=OTHER_FIELDS)
def test_spectral_method_agrees_for_modified_fields(field):
    case = Case(causal=True, field=field, step_size=0.1)
    expected = case.out()
    case.attention.method, case.attention.degree = "spectral", 15
    torch.testing.assert_close(case.out(), expected, atol=1e-4, rtol=1e-4)


def hooked(case):
    case.attention.key_field.norm.register_forward_hook(lambda module, given, out: 2 * out)
    case.attention.value_field.register_forward_hook(lambda module, given, out: 2 * out)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"rule": "exact"}, None),
        ({"d": 12}, None),
        ({"masked": False}, lambda case: case.times.requires_grad_()),
        ({}, hooked),
    ],
    ids=["exact integrals", "odd width", "gradients of times", "hooks"],
)
def test_unsupported_input_falls_back_to_torch(options, change, calls, without_kernels):
    case = Case(causal=True, **options)
    if change is not None:
        change(case)
    found = case.results()
    assert calls == []
    without_kernels()
    assert_same(found, case.results())


def test_hooks_are_called_by_the_spectral_method_too():
    case = Case(causal=True, step_size=0.1)
    hooked(case)
    expected = case.out()
    case.attention.method, case.attention.degree = "spectral", 15
    torch.testing.assert_close(case.out(), expected, atol=1e-4, rtol=1e-4)


def test_second_derivatives_are_refused():
    case = Case()
    (gradient,) = torch.autograd.grad(case.out().sum(), case.x, create_graph=False)
    assert torch.isfinite(gradient).all()
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(case.out().sum(), case.x, create_graph=True)


def test_benchmark_of_the_pairwise_method_runs_in_torch(calls):
    make_call("pairwise", Shape(1, 5, 8, 2))()
    assert calls == []
