"""The compiled attention against the listing: outputs and gradients over all options that it takes."""

import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contiformer import use_kernels
from contiformer.native import library
from contiformer.nn import ContinuousAttention, attention, kernel
from tests.problems import irregular_times, largest, spaced_times

pytestmark = pytest.mark.skipif(library.kernels() is None, reason="no compiler was at hand at installation")

OPTIONS = st.fixed_dictionaries(
    {
        "interpolation": st.sampled_from(["linear", "hermite", "cubic"]),
        "field": st.sampled_from(["concatnorm", "concat", "headwise"]),
        "activation": st.sampled_from(["tanh", "sigmoid"]),
        "degree": st.sampled_from([3, 5, 7, 11]),
        "piece_length": st.sampled_from([None, 0.3, 0.05]),
        "causal": st.booleans(),
    }
)


def results(module, x, times, queries, mask, direction):
    """Output and gradients, and whether the kernel ran."""
    ran = []
    run = kernel.share_out
    kernel.share_out = lambda name, *rest: (ran.append(name), run(name, *rest))[1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = module(x, times, queries, mask)
            gradients = torch.autograd.grad((out * direction).sum(), [x, *module.parameters()])
    finally:
        kernel.share_out = run
    return [out, *gradients], ran


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    options=OPTIONS,
    shape=st.sampled_from([(1, 1), (2, 3), (3, 20), (2, 70), (1, 300)]),
    heads=st.sampled_from([1, 2]),
    queries=st.sampled_from([None, 1, 7, 200]),
    masked=st.booleans(),
    block=st.sampled_from([8, 128]),
    seed=st.integers(0, 99),
)
def test_kernel_equals_listing(options, shape, heads, queries, masked, block, seed):
    if options["causal"] and options["interpolation"] == "cubic":
        options["interpolation"] = "linear"
    torch.manual_seed(seed)
    batch, length = shape
    module = ContinuousAttention(16, heads, **options)
    x = torch.randn(batch, length, 16, requires_grad=True)
    # close pairs make the slopes of cubics too large for a comparison in float32
    draw = irregular_times if options["interpolation"] == "linear" else spaced_times
    times = 0.6 * draw(length).expand(batch, -1)
    asked = None if queries is None else torch.rand(batch, queries, dtype=torch.float64) * 0.8 - 0.1
    mask = torch.rand(batch, length) < 0.7 if masked else None
    direction = torch.randn(batch, length if queries is None else queries, 16)
    before, kernel.BLOCK = kernel.BLOCK, block
    try:
        with use_kernels(True):
            found, ran = results(module, x, times, asked, mask, direction)
        with use_kernels(False):
            expected, none = results(module, x, times, asked, mask, direction)
    finally:
        kernel.BLOCK = before
    assert none == []
    assert "attention_forward" in ran
    for one, other in zip(found, expected, strict=True):
        assert largest(one - other) < 3e-4 * largest(other) + 5e-5


def test_dropped_weights_have_the_right_share_and_gradient():
    """The output is linear in the kept weights, so its mean over draws is the output without dropout."""
    torch.manual_seed(0)
    module = ContinuousAttention(16, 2, dropout=0.3, degree=7)
    x, times = torch.randn(1, 150, 16), torch.rand(1, 150).sort().values
    with torch.no_grad():
        mean = torch.stack([module(x, times) for _ in range(200)]).mean(0)
        plain = module.eval()(x, times)
    assert largest(mean - plain) < 0.05 * largest(plain)
    module.train()
    x.requires_grad_()
    step = 1e-2 * torch.randn_like(x)
    outputs = []
    for moved in (x + step, x - step, x):
        torch.manual_seed(1)
        outputs.append(module(moved, times).square().sum())
    (gradient,) = torch.autograd.grad(outputs[2], x)
    expected = (outputs[0] - outputs[1]).item() / 2
    assert (gradient * step).sum().item() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("masked", [False, True])
def test_only_trajectories_that_need_it_are_refined(masked, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(attention, "AUTO_DEGREES", {5: 1e-3, 7: 1e-3, 15: 1e-3})
    module = ContinuousAttention(32, 4)
    x, times = torch.randn(3, 40, 32, requires_grad=True), torch.rand(3, 40, dtype=torch.float64).sort().values
    mask = torch.rand(3, 40) < 0.8 if masked else None
    counts = []
    run = kernel.share_out
    monkeypatch.setattr(kernel, "share_out", lambda *given: (counts.append(given[2]), run(*given)))
    out = module(x, times, mask=mask)
    whole, *refined = counts[:-1]
    assert whole == 2 * (int(mask.sum()) if masked else 120)
    assert refined
    assert all(0 < count < whole for count in refined)
    gradients = torch.autograd.grad(out.square().sum(), [x, *module.parameters()])
    assert sum(counts[-len(refined) - 1 :]) == whole
    monkeypatch.undo()
    module.degree = 15
    exact = module(x, times, mask=mask)
    assert largest(out - exact) < 1e-3 * largest(exact)
    for one, other in zip(gradients, torch.autograd.grad(exact.square().sum(), [x, *module.parameters()]), strict=True):
        assert largest(one - other) < 2e-2 * largest(other) + 1e-4


@pytest.mark.parametrize("causal", [False, True])
def test_query_at_an_observation_next_to_an_edge_of_pieces(causal):
    """The middle of the window, an edge, is rounded to one side or the other of an observation that is asked about."""
    torch.manual_seed(0)
    module = ContinuousAttention(8, 1, causal=causal)
    x = torch.randn(200, 8, 8)
    times = (0.55 + 0.4 * torch.rand(200, 8, dtype=torch.float64)).sort(1).values
    first = torch.full_like(times[:, :1], -0.02)
    ulps = torch.randint(-2, 3, (200, 1)).double()
    last = (2 * times[:, 4:5] - first) * (1 + torch.finfo(times.dtype).eps * ulps)
    queries = torch.cat([first, times[:, 4:5], last], 1)
    with torch.no_grad():
        found = module(x, times, queries)
        with use_kernels(False):
            expected = module(x, times, queries)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
