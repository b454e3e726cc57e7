"""Pooling of states over unmasked points."""

import pytest
import torch

from contiformer.tasks import Pooling

MASK = torch.tensor([[True, True, False, True], [False, True, False, False], [False] * 4])


@pytest.mark.parametrize("kind", ["learned", "mean", "last"])
def test_pooling_weights_sum_to_one_over_unmasked_points(kind):
    states = torch.randn(3, 4, 8)
    pooling = Pooling(8, kind)
    for parameter in pooling.parameters():
        torch.nn.init.normal_(parameter)
    weights = pooling.weights(states, MASK)
    assert (weights >= 0).all()
    assert not weights[~MASK.unsqueeze(1).expand_as(weights)].any()
    torch.testing.assert_close(weights.sum(-1), MASK.any(1).float()[:, None].expand(-1, weights.shape[1]))
    pooled = pooling(states, MASK)
    assert pooled.shape == (3, pooling.size)
    assert not pooled[2].any()
    want = (weights @ states).flatten(1)
    torch.testing.assert_close(pooled[:, : want.shape[1]], want)
    # what is masked is not looked at
    changed = torch.where(MASK[..., None], states, 1e6)
    torch.testing.assert_close(pooling(changed, MASK), pooled)


def test_learned_pooling_starts_as_mean_and_maximum():
    states = torch.randn(3, 4, 8)
    learned, mean = Pooling(8, "learned")(states, MASK), Pooling(8, "mean")(states, MASK)
    torch.testing.assert_close(learned[:, :32], mean.repeat(1, 4))
    torch.testing.assert_close(mean[0], states[0, [0, 1, 3]].mean(0))
    torch.testing.assert_close(learned[0, 32:], states[0, [0, 1, 3]].amax(0))


def test_last_pooling_takes_the_last_unmasked_point():
    states = torch.randn(3, 4, 8)
    pooled = Pooling(8, "last")(states, MASK)
    torch.testing.assert_close(pooled, torch.stack([states[0, 3], states[1, 1], torch.zeros(8)]))


@pytest.mark.parametrize("kind", ["learned", "mean", "last"])
def test_pooling_of_no_points_is_zero(kind):
    pooled = Pooling(8, kind)(torch.zeros(2, 0, 8), torch.zeros(2, 0, dtype=torch.bool))
    assert not pooled.any()
    assert pooled.shape == (2, Pooling(8, kind).size)


def test_unknown_pooling_is_refused():
    with pytest.raises(ValueError, match="pooling must be one of learned, mean, last"):
        Pooling(8, "max")
