"""Block size of the score integrals."""

from __future__ import annotations

import pytest
import torch

from contiformer.nn import ContinuousAttention, score_integrals

OPTIONS = [
    {},
    {"causal": True},
    {"interpolation": "cubic"},
    {"normalize_scores": False},
    {"rule": "linear"},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("between", [False, True], ids=["at the points", "between"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("length", [23, 30])
def test_block_size_does_not_change_outputs_or_gradients(monkeypatch, length, options, between, dtype):
    torch.manual_seed(0)
    attention = ContinuousAttention(8, 2, degree=11, **options).to(dtype)
    x = torch.randn(2, length, 8, dtype=dtype, requires_grad=True)
    times = torch.rand(2, length, dtype=torch.float64).sort(dim=1).values
    queries = torch.rand(2, 17, dtype=torch.float64).sort(dim=1).values * 1.2 - 0.1 if between else None
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[1, 20:] = False

    def outcome() -> list[torch.Tensor]:
        out = attention(x, times, query_times=queries, mask=mask)
        return [out, *torch.autograd.grad(out.sin().sum(), [x, *attention.parameters()], allow_unused=True)]

    monkeypatch.setattr(score_integrals, "ALONE", 256)
    whole = outcome()
    monkeypatch.setattr(score_integrals, "ALONE", 4)
    monkeypatch.setattr(score_integrals, "BLOCK", 7)
    for one, other in zip(whole, outcome(), strict=True):
        if one is None:
            assert other is None
            continue
        tolerance = 1e-4 if dtype == torch.float32 else 1e-10
        torch.testing.assert_close(other, one, atol=tolerance * max(1.0, float(one.detach().abs().max())), rtol=0)
