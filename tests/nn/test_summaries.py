"""Summary statistics of channels."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import Series, SeriesSet, collate, summary_statistics
from contiformer.data.statistics import STATISTICS
from contiformer.nn.summaries import KINDS, channel_summaries


def _random(seed: int, lengths: tuple[int, ...] = (1, 2, 6, 11), channels: int = 3) -> SeriesSet:
    random = np.random.default_rng(seed)
    series = []
    for length in lengths:
        values = random.normal(size=(length, channels))
        values[random.random(values.shape) < 0.5] = np.nan
        # a series begins and ends with its first and last observation
        values[[0, -1], random.integers(channels, size=2)] = 1.5
        series.append(Series.of(5 + np.sort(random.integers(0, 20, length)) / 4, values))
    return SeriesSet(series)


@given(st.integers(0, 10_000))
def test_summaries_equal_the_statistics_of_tables(seed):
    data = _random(seed)
    batch = collate(list(data))
    told = channel_summaries(batch.values, batch.times, batch.observed).numpy()
    table = summary_statistics(data)[0][:, : 3 * len(STATISTICS)].reshape(len(data), 3, len(STATISTICS))
    observed = table[..., 0] > 0
    table[..., 0] = np.log1p(table[..., 0])
    np.testing.assert_allclose(told[..., :-1], np.nan_to_num(table), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(told[..., -1], observed)


def test_unobserved_values_are_ignored():
    batch = collate(list(_random(0)))
    other = torch.where(batch.observed, batch.values, 100.0)
    expected = channel_summaries(batch.values, batch.times, batch.observed)
    torch.testing.assert_close(channel_summaries(other, batch.times, batch.observed), expected)


def test_padding_is_ignored_and_empty_series_give_zero():
    batch = collate(list(_random(1)))
    expected = channel_summaries(batch.values, batch.times, batch.observed)
    size = len(batch)
    longer = [torch.cat([x, x.new_zeros(size, 3, 3)], 1) for x in (batch.values, batch.observed)]
    times = torch.cat([batch.times, batch.times[:, -1:].expand(-1, 3) + 7], 1)
    torch.testing.assert_close(channel_summaries(longer[0], times, longer[1]), expected)
    assert not channel_summaries(torch.zeros(2, 0, 3), torch.zeros(2, 0), torch.zeros(2, 0, 3, dtype=bool)).any()
    nothing = torch.zeros(2, 4, 3, dtype=bool)
    assert channel_summaries(torch.zeros(2, 4, 3), torch.rand(2, 4), nothing).shape == (2, 3, KINDS)
    assert not channel_summaries(torch.zeros(2, 4, 3), torch.rand(2, 4), nothing).any()
