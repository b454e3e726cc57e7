"""Kernels of sweeps, softmax, moments and small products against PyTorch."""

import pytest
import torch
from torch.autograd import forward_ad

from contiformer.native import library as native
from contiformer.native.small_matmul import small_products
from contiformer.nn import ContinuousAttention

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")


def relative(a, b):
    return float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1e-12))


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


def test_a_library_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(native, "_ABI", -1)
    assert native.kernels.__wrapped__() is None


def test_kernels_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("CONTIFORMER_NATIVE", "0")
    assert native.kernels.__wrapped__() is None


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
