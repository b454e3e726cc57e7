"""Gradients of attention, in particular of hand-written backward passes."""

import copy

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from contiformer import use_kernels
from contiformer.nn import ContinuousAttention
from tests.problems import WIDTH, irregular_times, largest, make_attention, normal, sorted_times, spaced_times

# the gradient is that of the discrete sum, resolved or not
pytestmark = pytest.mark.filterwarnings("ignore::contiformer.paths.trajectories.ResolutionWarning")

OPTIONS = [
    {},
    {"causal": True},
    {"interpolation": "hermite", "causal": True},
    {"interpolation": "cubic"},
    {"field": "concat", "activation": "sigmoid"},
    {"field": "linear"},
    {"field": "headwise"},
    {"piece_length": 0.4},
    {"piece_length": 0.4, "causal": True},
    {"rule": "linear"},
    {"rule": "gauss", "points": 2},
    {"rule": "linear", "piece_length": 0.4, "causal": True},
    {"normalize_scores": False},
    {"normalize_values": False, "piece_length": 0.4},
    {"continuous_scores": False},
    {"continuous_values": False},
    {"method": "pairwise", "step_size": 0.5},
    {"method": "pairwise", "step_size": 0.5, "causal": True, "interpolation": "hermite"},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(map(str, o.values())) or "default")
in_both_places = pytest.mark.parametrize("anywhere", [False, True], ids=["at the knots", "anywhere"])


def gradients(output, inputs, seed=1):
    """Of a random functional of the output."""
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.autograd.grad((output * direction.to(output.dtype)).sum(), inputs, allow_unused=True)


def assert_same_gradients(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert largest(one - other) <= tolerance * (1 + largest(other))


def queries_off_the_knots(batch):
    """Between the knots, before the first and after the last, where the output is smooth in time."""
    return torch.tensor([0.33, -0.21, 1.27, 0.71], dtype=torch.float64).expand(batch, -1) + 0.01 * torch.rand(batch, 1)


@every_option
@in_both_places
def test_gradients_of_inputs_and_parameters(options, anywhere):
    attention = ContinuousAttention(4, 2, degree=9, **options).double()
    x, times = normal(2, 5, 4).requires_grad_(), irregular_times(5).expand(2, -1)
    queries = queries_off_the_knots(2) if anywhere else None
    names, parameters = zip(*((n, p.detach().requires_grad_()) for n, p in attention.named_parameters()))

    def output(x, *parameters):
        return functional_call(attention, dict(zip(names, parameters)), (x, times, queries))

    assert gradcheck(output, (x, *parameters), fast_mode=True)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_every_single_input_and_parameter(causal):
    """The slow check of all entries, for the default and its causal form."""
    attention = ContinuousAttention(4, 2, degree=5, causal=causal).double()
    x, times = normal(1, 3, 4).requires_grad_(), sorted_times(1, 3)
    names, parameters = zip(*((n, p.detach().requires_grad_()) for n, p in attention.named_parameters()))

    def output(x, *parameters):
        return functional_call(attention, dict(zip(names, parameters)), (x, times))

    assert gradcheck(output, (x, *parameters))


@every_option
def test_gradient_of_query_times_is_the_derivative_of_the_output_in_time(options):
    attention = make_attention(degree=11, **options)
    x, times = normal(2, 5, WIDTH), spaced_times(2, 5)
    queries = queries_off_the_knots(2).clone().requires_grad_()
    assert gradcheck(lambda u: attention(x, times, u), (queries,), fast_mode=True)


def test_derivative_at_the_end_of_a_window_does_not_depend_on_batch_mates():
    attention = make_attention(degree=15)
    x, times = normal(2, 6, WIDTH), sorted_times(2, 6)
    queries = torch.tensor([[1.4], [5.0]], dtype=torch.float64, requires_grad=True)
    (together,) = gradients(attention(x, times, queries)[:1], [queries])
    (alone,) = gradients(attention(x[:1], times[:1], queries[:1]), [queries])
    assert largest(together[0] - alone[0]) < 1e-8


@pytest.mark.parametrize("n", [63, 65, 130])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"field": "concat", "interpolation": "cubic"}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_fused_path_at_the_knots_has_the_gradients_of_the_plain_path(n, options, masked):
    """Asking for the weights takes the plain path, which autograd differentiates."""
    attention = make_attention(degree=9, piece_length=2.0, **options)
    x, times = normal(2, n, WIDTH).requires_grad_(), sorted_times(2, n)
    mask = torch.rand(2, n) < 0.8 if masked else None
    inputs = [x, *attention.parameters()]
    fused = attention(x, times, mask=mask)
    plain, _ = attention(x, times, mask=mask, return_weights=True)
    assert largest(fused - plain) < 1e-11
    assert_same_gradients(gradients(fused, inputs), gradients(plain, inputs), 1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_at_the_knots_are_those_of_queries_at_the_same_times(causal):
    attention = make_attention(degree=24, causal=causal)
    x, times = normal(2, 70, WIDTH).requires_grad_(), sorted_times(2, 70)
    inputs = [x, *attention.parameters()]
    fused, general = attention(x, times), attention(x, times, times.clone())
    assert largest(fused - general) < 1e-10
    assert_same_gradients(gradients(fused, inputs), gradients(general, inputs), 1e-8)


@pytest.fixture(params=[True, False], ids=["kernels", "torch"])
def _with_and_without_kernels(request):
    with use_kernels(request.param):
        yield


@pytest.mark.usefixtures("_with_and_without_kernels")
@pytest.mark.parametrize("field", ["concat", "concatnorm"])
@pytest.mark.parametrize("causal", [False, True])
@in_both_places
def test_float32_has_the_gradients_of_float64(field, causal, anywhere):
    exact = make_attention(degree=11, field=field, causal=causal)
    rounded = copy.deepcopy(exact).float()
    exact.load_state_dict(rounded.state_dict())
    x, times = normal(3, 70, WIDTH).float(), sorted_times(3, 70)
    queries = queries_off_the_knots(3) if anywhere else None
    found, expected = [], []
    for attention, into in ((rounded, found), (exact, expected)):
        values = x.to(attention.q_proj.weight.dtype).requires_grad_()
        output = attention(values, times, queries)
        into += [output, *gradients(output, [values, *attention.parameters()])]
    for one, other in zip(found, expected):
        assert one.dtype == torch.float32
        assert largest(one - other) < 2e-4 * largest(other) + 1e-5


@in_both_places
def test_dropout_repeats_with_its_seed_and_drops_differently_with_another(anywhere):
    attention = make_attention(degree=7, dropout=0.4)
    x, times = normal(2, 70, WIDTH).requires_grad_(), sorted_times(2, 70)
    queries = queries_off_the_knots(2) if anywhere else None
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        output = attention(x, times, queries)
        runs.append((output, *gradients(output, [x, *attention.parameters()])))
    first, again, other = runs
    assert_same_gradients(first, again, 0)
    assert largest(first[0] - other[0]) > 1e-3
    assert largest(first[1] - other[1]) > 1e-3


@in_both_places
def test_gradients_with_dropout(anywhere):
    attention = make_attention(degree=7, dropout=0.4)
    x, times = normal(1, 6, WIDTH).requires_grad_(), sorted_times(1, 6)
    queries = queries_off_the_knots(1) if anywhere else None

    def output(x):
        torch.manual_seed(5)
        return attention(x, times, queries)

    assert gradcheck(output, (x,), fast_mode=True)


def test_dropout_keeps_the_mean():
    attention = make_attention(degree=7, dropout=0.5)
    x, times = normal(1, 20, WIDTH), sorted_times(1, 20)
    with torch.no_grad():
        mean = attention(x.expand(2000, -1, -1), times.expand(2000, -1)).mean(0)
        expected = attention.eval()(x, times)[0]
    assert largest(mean - expected) < 0.1 * largest(expected)


@in_both_places
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_backward_can_be_repeated(anywhere, dtype):
    attention = make_attention(degree=7, dropout=0.2).to(dtype)
    x, times = normal(2, 70, WIDTH).to(dtype).requires_grad_(), sorted_times(2, 70)
    output = attention(x, times, queries_off_the_knots(2) if anywhere else None).square().sum()
    output.backward(retain_graph=True)
    once = [x.grad.clone(), *(p.grad.clone() for p in attention.parameters())]
    output.backward()
    twice = [x.grad, *(p.grad for p in attention.parameters())]
    assert_same_gradients(twice, [2 * g for g in once], 1e-5 if dtype == torch.float32 else 1e-13)


@in_both_places
def test_second_derivatives_of_the_kernel_are_refused(anywhere):
    attention = make_attention(degree=7).float()
    x, times = normal(2, 12, WIDTH).float().requires_grad_(), sorted_times(2, 12)
    output = attention(x, times, queries_off_the_knots(2) if anywhere else None).square().sum()
    with pytest.raises(RuntimeError, match="second derivatives are not available"):
        torch.autograd.grad(output, x, create_graph=True)


@in_both_places
def test_second_derivatives_of_the_listing(anywhere):
    attention = make_attention(degree=5)
    x, times = normal(1, 4, WIDTH).requires_grad_(), spaced_times(1, 4)
    queries = queries_off_the_knots(1) if anywhere else None
    assert gradgradcheck(lambda x: attention(x, times, queries), (x,), fast_mode=True)


def test_the_derivative_in_time_can_be_learned_from():
    """It does not pass through what is written by hand, so it may be differentiated by what is."""
    attention = make_attention(degree=15)
    x, times = normal(2, 12, WIDTH), sorted_times(2, 12)
    queries = queries_off_the_knots(2).requires_grad_()

    def slope(at):
        return torch.autograd.grad(attention(x, times, at).square().sum(), at, create_graph=True)[0]

    weight = attention.k_proj.weight
    (found,) = torch.autograd.grad(slope(queries).square().sum(), weight)
    step = 1e-5
    difference = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[0, 1] += sign * step
        difference.append(slope(queries).square().sum().item())
        with torch.no_grad():
            weight[0, 1] -= sign * step
    assert float(found[0, 1]) == pytest.approx((difference[0] - difference[1]) / (2 * step), rel=1e-5, abs=1e-9)


@in_both_places
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_interleaved_forward_and_backward_passes_are_independent(anywhere, dtype):
    """Buffers are used again, but not while somebody still has to read them."""
    attention = make_attention(degree=7).to(dtype)
    inputs = [normal(2, 70, WIDTH).to(dtype).requires_grad_() for _ in range(3)]
    times = sorted_times(2, 70)
    queries = queries_off_the_knots(2) if anywhere else None
    alone = [gradients(attention(x, times, queries), [x, *attention.parameters()]) for x in inputs]
    outputs = [attention(x, times, queries) for x in inputs]
    with torch.no_grad():
        attention(inputs[0], times, queries)
    for number in (1, 0, 2):
        together = gradients(outputs[number], [inputs[number], *attention.parameters()])
        assert_same_gradients(together, alone[number], 1e-5 if dtype == torch.float32 else 1e-13)


@every_option
@pytest.mark.parametrize("masked", [False, True])
@in_both_places
def test_gradient_of_the_times(options, masked, anywhere):
    attention = make_attention(degree=11, **options)
    x, times = normal(2, 5, WIDTH), spaced_times(2, 5).requires_grad_()
    mask = torch.tensor([[True, True, False, True, True], [True, True, True, False, False]]) if masked else None
    queries = queries_off_the_knots(2) if anywhere else None
    # the window of the pieces moves with the times, which changes the error of the series, not what they stand for
    assert gradcheck(lambda t: attention(x, t, queries, mask), (times,), fast_mode=True, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_discrete_attention_gives_the_gradient_of_the_times(interpolation):
    """Nothing continuous is left but the query path, and that is differentiable in its knots."""
    attention = make_attention(interpolation=interpolation, continuous_scores=False, continuous_values=False)
    x, times, queries = normal(2, 5, WIDTH), spaced_times(2, 5).requires_grad_(), queries_off_the_knots(2)
    assert gradcheck(lambda t: attention(x, t, queries), (times,), fast_mode=True)


@in_both_places
def test_masked_rows_get_no_gradient_whatever_they_hold(anywhere):
    attention = make_attention()
    x, times = normal(2, 6, WIDTH), sorted_times(2, 6)
    mask = torch.tensor([True, False, True, True, True, False]).expand(2, -1)
    x[~mask], times[~mask] = torch.nan, torch.nan
    x.requires_grad_()
    found, *of_parameters = gradients(
        attention(x, times, queries_off_the_knots(2) if anywhere else None, mask), [x, *attention.parameters()]
    )
    assert torch.equal(found[~mask], torch.zeros_like(found[~mask]))
    assert all(g.isfinite().all() for g in (found, *of_parameters))
