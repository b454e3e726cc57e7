"""Summary statistics of channels."""

import numpy as np
import torch

from contiformer.nn.summaries import KINDS, channel_summaries


def test_summaries_equal_numpy():
    values, observed = torch.randn(4, 9, 3), torch.rand(4, 9, 3) < 0.6
    observed[1, :, 2] = False
    observed[2, :, 0] = False
    observed[2, 4, 0] = True
    told = channel_summaries(torch.where(observed, values, 0.0), observed).numpy()
    assert told.shape == (4, 3, KINDS)
    for b in range(4):
        for c in range(3):
            seen = values[b, observed[b, :, c], c].numpy()
            if not len(seen):
                assert not told[b, c].any()
                continue
            ends = [seen[0], seen[-1], np.log1p(len(seen)), 1.0]
            wanted = [seen.mean(), seen.std(), seen.min(), seen.max(), *ends]
            np.testing.assert_allclose(told[b, c], wanted, rtol=1e-4, atol=1e-5)


def test_unobserved_values_are_ignored():
    values, observed = torch.randn(2, 6, 2), torch.rand(2, 6, 2) < 0.5
    other = torch.where(observed, values, 100.0)
    torch.testing.assert_close(channel_summaries(values, observed), channel_summaries(other, observed))


def test_padding_is_ignored_and_empty_series_give_zero():
    values, observed = torch.randn(2, 6, 2), torch.rand(2, 6, 2) < 0.5
    longer = torch.cat([values, torch.zeros(2, 3, 2)], 1), torch.cat([observed, torch.zeros(2, 3, 2, dtype=bool)], 1)
    torch.testing.assert_close(channel_summaries(*longer), channel_summaries(values, observed))
    assert not channel_summaries(torch.zeros(2, 0, 3), torch.zeros(2, 0, 3, dtype=bool)).any()
