"""Kernels of sweeps, softmax, moments and small products against PyTorch."""

import pytest
import torch
from torch.autograd import forward_ad

from contiformer.native import library as native
from contiformer.native.small_matmul import small_products
from contiformer.native.sources import struct_of
from contiformer.nn import ContinuousAttention
from contiformer.nn.fields import ConcatField, stack_fields
from contiformer.nn.moments import interval_moments
from contiformer.paths.interpolation import interpolate
from contiformer.paths.trajectories import fixed_pieces, solve_trajectories_fast, window_pieces

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")


def relative(a, b):
    return float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1e-12))


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("causal", "degree", "length"), [(False, 7, 1.0), (False, 24, 0.5), (True, 11, 2.0), (True, 7, 0.3)]
)
def test_sweep_equals_torch(activation, normalize, causal, degree, length, without_kernels):
    torch.manual_seed(0)
    fields = [ConcatField(24, normalize=normalize, activation=activation) for _ in range(2)]
    if normalize:
        for field in fields:
            torch.nn.init.uniform_(field.norm.weight, 0.5, 1.5)
            torch.nn.init.normal_(field.norm.bias)
    parameters = [p for field in fields for p in field.parameters()]
    times = torch.rand(40, 3, dtype=torch.float64).sort(0).values
    times[7] = times[6]
    pieces = (fixed_pieces if causal else window_pieces)(times[0], times[-1], length, 10)
    # a causal model leaves what lies before an observation's piece undefined
    used = (pieces.edges.T[1:, None] > times) | torch.tensor(not causal)
    start = torch.randn(2, 40, 3, 24, requires_grad=True)
    direction = None
    results = []
    for attempt in range(2):
        if attempt == 1:
            without_kernels()
        field = stack_fields(fields, torch.float32)
        solved = solve_trajectories_fast(field, start, times, pieces, degree, causal=causal).coefficients
        solved = solved * used[:, None, None, :, :, None]
        direction = torch.randn_like(solved) if direction is None else direction
        results.append((solved, torch.autograd.grad((solved * direction).sum(), [start, *parameters])))
    (values, gradients), (expected, expected_gradients) = results
    assert relative(values, expected) < 1e-5
    assert max(relative(a, b) for a, b in zip(gradients, expected_gradients, strict=True)) < 1e-3


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_sweep_solves_what_is_valid_and_leaves_the_rest_zero(share):
    torch.manual_seed(0)
    fields = [ConcatField(16, normalize=True, activation="tanh") for _ in range(2)]
    parameters = [p for field in fields for p in field.parameters()]
    times = torch.rand(23, 5, dtype=torch.float64).sort(0).values
    valid = torch.rand(23, 5) < share
    pieces = window_pieces(times[0], times[-1], 2.0, 10)
    start = torch.randn(2, 23, 5, 16, requires_grad=True)
    results = []
    for mask in (None, valid):
        field = stack_fields(fields, torch.float32)
        solved = solve_trajectories_fast(field, start, times, pieces, 7, heads=2, valid=mask)
        series = torch.stack(solved.series).transpose(2, 3)
        kept = torch.where(valid.T[None, :, :, None, None, None, None], series, 0.0)
        weighed = (kept * torch.linspace(0.5, 1.5, kept.numel()).view(kept.shape)).sum()
        results.append((kept, series, solved.squares, torch.autograd.grad(weighed, [start, *parameters])))
    (expected, _, squares, expected_gradients), (found, all_found, found_squares, gradients) = results
    assert torch.equal(found, expected)
    assert torch.equal(all_found, found)
    assert torch.equal(found_squares, squares * valid[None, None, ..., None])
    for ours, exact in zip(gradients, expected_gradients, strict=True):
        assert float((ours - exact).abs().max()) <= 1e-5 * float(exact.abs().max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [5, 150])
def test_attention_equals_torch(causal, masked, length, without_kernels):
    torch.manual_seed(0)
    attention = ContinuousAttention(16, 4, causal=causal)
    x = torch.randn(3, length, 16, requires_grad=True)
    times = torch.rand(3, length, dtype=torch.float64).sort().values
    mask = None
    if masked:
        mask = torch.rand(3, length) > 0.3
        mask[1] = False
    direction = torch.randn(3, length, 16)
    results = []
    for attempt in range(2):
        if attempt == 1:
            without_kernels()
        out = attention(x, times, mask=mask)
        results.append((out, torch.autograd.grad((out * direction).sum(), [x, *attention.parameters()])))
    (out, gradients), (expected, expected_gradients) = results
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
    assert max(relative(a, b) for a, b in zip(gradients, expected_gradients, strict=True)) < 1e-3


def test_several_threads_give_the_same_bits():
    torch.manual_seed(0)
    attention = ContinuousAttention(16, 4)
    x, times = torch.randn(2, 200, 16), torch.rand(2, 200, dtype=torch.float64).sort().values
    before = torch.get_num_threads()
    try:
        outputs = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            field = stack_fields([attention.key_field], torch.float32)
            pieces = window_pieces(times[:, 0], times[:, -1], 1.0, 64)
            start = attention.k_proj(x).transpose(0, 1)[None].contiguous()
            outputs.append(solve_trajectories_fast(field, start, times.T, pieces, 7).coefficients)
    finally:
        torch.set_num_threads(before)
    # the products with the coefficient matrix may round differently, the sweeps may not
    torch.testing.assert_close(*outputs, atol=1e-6, rtol=1e-6)


def test_a_library_of_other_sources_is_not_used(monkeypatch):
    monkeypatch.setattr(native, "checksum", lambda: -1)
    with pytest.warns(RuntimeWarning, match="changed since it was compiled"):
        assert native.kernels.__wrapped__() is None


def test_times_in_single_precision_are_read_as_such():
    times = torch.rand(5, 1).sort(0).values
    start = torch.randn(1, 5, 1, 8)
    field = stack_fields([ConcatField(8, normalize=True)], torch.float32)
    found = [
        solve_trajectories_fast(
            field, start, t, window_pieces(t[0].min()[None], t[-1].max()[None], 1.0, 4), 7
        ).coefficients
        for t in (times, times.double())
    ]
    assert torch.allclose(*found, atol=1e-5)


def test_zero_items_are_accepted():
    native.share_out("softmax_forward", [struct_of("gap_softmax.c", "Softmax")()], 0)


def test_heads_must_divide_the_width():
    times = torch.rand(5, 1, dtype=torch.float64).sort(0).values
    field = stack_fields([ConcatField(8, normalize=True)], torch.float32)
    pieces = window_pieces(times[0], times[-1], 1.0, 4)
    with pytest.raises(ValueError, match="heads"):
        solve_trajectories_fast(field, torch.randn(1, 5, 1, 8), times, pieces, 7, heads=3)


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(8, 8, 8), (1, 8, 8), (5, 3, 7), (16, 16, 16), (1, 24, 2), (2, 1, 1)]
)
def test_small_products_equal_torch(rows, inner, columns, without_kernels):
    torch.manual_seed(0)
    left, right = torch.randn(2, 5, rows, inner), torch.randn(2, 5, 3, inner, columns).transpose(1, 2).requires_grad_()
    gradient = torch.randn(2, 3, 5, rows, columns)
    found = []
    for _ in range(2):
        out = small_products(left, right)
        found.append((out, *torch.autograd.grad(out, right, gradient)))
        without_kernels()
    for mine, theirs in zip(*found, strict=True):
        assert relative(mine, theirs) < 1e-5


@pytest.mark.no_array_checks
def test_small_products_fall_back_to_torch():
    left, right = torch.randn(1, 5, 4, 3), torch.randn(2, 3, 5, 3, 2)
    assert torch.equal(small_products(left, right), left.unsqueeze(1) @ right)
    with pytest.raises(RuntimeError, match="size"):
        small_products(torch.randn(2, 4, 4, 3), right)
    whole = left.repeat(2, 1, 1, 1)
    with forward_ad.dual_level():
        out = small_products(forward_ad.make_dual(whole, torch.ones_like(whole)), right)
        tangent = forward_ad.unpack_dual(out).tangent
    assert relative(tangent, torch.ones_like(whole).unsqueeze(1) @ right) < 1e-6


@pytest.mark.parametrize("named", [True, False], ids=["cells named", "cells in order"])
def test_moments_equal_torch(named, without_kernels):
    torch.manual_seed(0)
    knots = torch.rand(3, 9, dtype=torch.float64).sort(1).values
    values = torch.randn(3, 9, 8, requires_grad=True)
    pieces = window_pieces(knots[:, 0], knots[:, -1], 0.4, 10)
    end = torch.cat([knots[:, 1:], knots[:, -1:]], dim=1)
    cell = torch.arange(9).expand(3, -1).clamp(max=7) if named else None
    found = []
    for _ in range(2):
        path = interpolate("linear", knots, values)
        moments = interval_moments(path, pieces, 8, knots, end, cell, pieces.locate((knots + end) / 2), 2)
        found.append((moments, *torch.autograd.grad(moments.square().sum(), values)))
        without_kernels()
    for mine, theirs in zip(*found, strict=True):
        assert relative(mine, theirs) < 1e-5
