"""Value heads: point, Gaussian and quantile losses, calibration."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal

from contiformer.tasks.heads import INSIDE_90, ValueHead, gaussian_loss, masked_sums

LEVELS = (0.05, 0.25, 0.5, 0.9)


def head_of(law, scale=1.0, features=0):
    torch.manual_seed(0)
    head = ValueHead(4, 3, features, law=law, quantiles=LEVELS if law == "quantiles" else ())
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return head


@pytest.mark.parametrize(("law", "numbers"), [("point", 1), ("gaussian", 2), ("quantiles", 5)])
def test_untrained_head_returns_the_base(law, numbers):
    head = ValueHead(4, 3, 2, law=law, quantiles=LEVELS if law == "quantiles" else ())
    base = torch.randn(2, 5, 3)
    said = head(torch.randn(2, 5, 4), torch.randn(2, 5, 3, 2), base)
    assert said.shape == (2, 5, 3, numbers)
    torch.testing.assert_close(head.location(said), base)
    if law == "gaussian":
        torch.testing.assert_close(head.std(said), torch.ones(2, 5, 3), atol=2e-3, rtol=0)
    else:
        assert head.std(said) is None


@given(st.floats(0.01, 100), st.integers(0, 1000))
def test_quantiles_never_cross(scale, seed):
    head = head_of("quantiles", scale)
    said = head(scale * torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(seed)))
    assert (said[..., 1:].diff(dim=-1) >= 0).all()
    assert torch.isfinite(said).all()


def test_losses_against_closed_forms():
    truth, mean, std = torch.randn(2, 5, 3), torch.randn(2, 5, 3), torch.rand(2, 5, 3) + 0.1
    torch.testing.assert_close(gaussian_loss(mean, std, truth), -Normal(mean, std).log_prob(truth))
    torch.testing.assert_close(head_of("point").losses(mean[..., None], truth), (mean - truth) ** 2)
    gaussian = head_of("gaussian").losses(torch.stack([mean, std], -1), truth)
    torch.testing.assert_close(gaussian, -Normal(mean, std).log_prob(truth))
    said = torch.randn(2, 5, 3, 5)
    want = (said[..., 0] - truth) ** 2
    for level, quantile in zip(LEVELS, said[..., 1:].unbind(-1), strict=True):
        miss = truth - quantile
        want = want + torch.where(miss > 0, level * miss, (level - 1) * miss) / len(LEVELS)
    torch.testing.assert_close(head_of("quantiles").losses(said, truth), want)


def test_the_pinball_loss_is_least_at_the_quantile():
    head = head_of("quantiles")
    sample = torch.randn(20000)
    grid = torch.linspace(-3, 3, 121)
    said = torch.zeros(1, len(sample), 1, 5)
    for n, level in enumerate(LEVELS):
        costs = []
        for value in grid:
            said[..., 1 + n] = value
            costs.append(head.losses(said, sample[None, :, None]).mean())
        assert float(grid[torch.stack(costs).argmin()]) == pytest.approx(
            float(Normal(0, 1).icdf(torch.tensor(level))), abs=0.1
        )


def test_calibration_corrects_the_coverage():
    head = head_of("gaussian")
    said = torch.stack([torch.zeros(1, 4000, 3), torch.ones(1, 4000, 3)], -1)
    miss = 0.5 * torch.randn(1, 4000, 3)
    for _ in range(2):  # a second time changes nothing
        head.calibrate((miss / head.std(said)).abs().flatten())
        assert float(head.std_factor) == pytest.approx(0.5, rel=0.05)
        assert float((miss.abs() <= INSIDE_90 * head.std(said)).float().mean()) == pytest.approx(0.9, abs=1e-3)
    head.calibrate(torch.full((49,), 100.0))
    assert float(head.std_factor) == pytest.approx(0.5, rel=0.05)
    head.calibrate(torch.full((100,), 1e9))
    assert float(head.std_factor) == pytest.approx(5.0, rel=0.05)


def test_masked_sums_weigh_known_values_by_series():
    each, known = torch.tensor([[[1.0, math.nan]], [[3.0, 5.0]]]), torch.tensor([[[True, False]], [[True, True]]])
    total, weight = masked_sums(each, known, torch.tensor([2.0, 0.5]))
    assert (float(total), float(weight)) == (6.0, 3.0)


@pytest.mark.parametrize("quantiles", [(), (0.5, 0.1), (0.0, 0.5), (0.5, 1.0), (0.5, 0.5)])
def test_invalid_quantiles_are_refused(quantiles):
    with pytest.raises(ValueError, match="quantiles must increase"):
        ValueHead(4, 3, law="quantiles", quantiles=quantiles)


def test_unknown_law_is_refused():
    with pytest.raises(ValueError, match="law must be one of point, gaussian, quantiles"):
        ValueHead(4, 3, law="cauchy")
