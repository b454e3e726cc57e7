"""Kernels of sweeps, softmax, moments and small products against PyTorch."""

import pytest
import torch

from contiformer.native import library as native
from contiformer.nn import ContinuousAttention

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler was at hand at installation")


def relative(a, b):
    return float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1e-12))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [5, 150])
def test_attention_equals_torch(causal, masked, length, without_kernels):
    torch.manual_seed(0)
    attention = ContinuousAttention(16, 4, causal=causal, degree=11)
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
            outputs.append(attention(x, times))
    finally:
        torch.set_num_threads(before)
    # the projections may round differently, the kernels may not
    torch.testing.assert_close(*outputs, atol=1e-6, rtol=1e-6)


def test_a_library_of_other_sources_is_not_used(monkeypatch):
    monkeypatch.setattr(native, "checksum", lambda: -1)
    with pytest.warns(RuntimeWarning, match="changed since it was compiled"):
        assert native.kernels.__wrapped__() is None
