"""Dot-product attention with dropout against PyTorch's."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from contiformer.nn.dot_product import dot_product_attention

ROWS, OTHERS, WIDTH = 5, 7, 4


def _parts(others=OTHERS):
    torch.manual_seed(0)
    shapes = (ROWS, others, others)
    return [torch.randn(2, 3, rows, WIDTH, dtype=torch.float64, requires_grad=True) for rows in shapes]


def _bias(learned):
    some = torch.randn(2, 1, ROWS, OTHERS, dtype=torch.float64).masked_fill(torch.rand(ROWS, OTHERS) < 0.3, -torch.inf)
    some[..., 0] = 0.0
    return some.requires_grad_(learned)


@pytest.mark.parametrize("kind", ["none", "flags", "bias", "learned", "causal"])
def test_values_and_gradients_are_those_of_torch(kind, monkeypatch):
    """The products made here, and dropout of nothing."""
    monkeypatch.setattr("contiformer.nn.dot_product.drop", lambda x, share: x)
    q, k, v = _parts(ROWS if kind == "causal" else OTHERS)
    mask = None if kind in ("none", "causal") else _bias(kind == "learned")
    if kind == "flags":
        mask = mask > -torch.inf
    leaves = [q, k, v, *([mask] if kind == "learned" else [])]
    ours = dot_product_attention(q, k, v, mask, 0.5, causal=kind == "causal")
    theirs = scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal")
    assert (ours - theirs).abs().max() < 1e-12
    weight = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, leaves, weight), torch.autograd.grad(theirs, leaves, weight), strict=True
    ):
        assert (a - b).abs().max() < 1e-12


def test_dropout_drops_its_share_of_the_weights():
    torch.manual_seed(0)
    rows = torch.zeros(1, 400, WIDTH)
    # all weights are 1 / 400, and a row's sum of kept ones is what the values of one say
    said = dot_product_attention(rows, rows, torch.ones(1, 400, WIDTH), dropout=0.25)
    kept = said[0, :, 0] * 0.75
    assert (said - said[..., :1]).abs().max() < 1e-6
    # 160,000 draws, five standard deviations
    assert abs(float(kept.mean()) - 0.75) < 5 * (0.75 * 0.25 / 160_000) ** 0.5
    assert kept.std() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_left_to_torch(dtype):
    """Which has its products and weights in single precision there."""
    parts = [part.detach().to(dtype) for part in _parts()]
    said = []
    for attend in (dot_product_attention, scaled_dot_product_attention):
        torch.manual_seed(0)
        said.append(attend(*parts, None, 0.5))
    assert torch.equal(*said)


def test_mask_together_with_causal_is_refused():
    q, k, v = _parts(ROWS)
    with pytest.raises(ValueError, match="mask must be None where causal"):
        dot_product_attention(q, k, v, torch.ones(ROWS, ROWS, dtype=torch.bool), 0.5, causal=True)


@pytest.mark.parametrize("learned", [False, True])
def test_no_random_numbers_are_drawn_without_dropout(learned):
    """In PyTorch's attention and in the products made here, which a learned mask goes through."""
    q, k, v = _parts()
    mask = _bias(learned)
    before = torch.get_rng_state()
    assert torch.equal(dot_product_attention(q, k, v, mask), dot_product_attention(q, k, v, mask))
    assert torch.equal(torch.get_rng_state(), before)
