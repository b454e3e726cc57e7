"""Batches with missing channels, and their series one by one."""

from __future__ import annotations

import torch

from contiformer.data.batch import Batch
from tests.problems import normal, sorted_times

CHANNELS = 3


def draw(batch=3, obs=7, share=0.7, seed=0):
    """Missing channels, and a second row without any in every series."""
    torch.manual_seed(seed)
    observed = torch.rand(batch, obs, CHANNELS) < share
    observed[:, 0, 0] = observed[:, -1, 1] = True
    observed[:, 1] = False
    values = normal(batch, obs, CHANNELS) * observed
    return Batch(sorted_times(batch, obs), values, observed, torch.full((batch,), obs))


def one_series(batch, row):
    """Times, values and marks of the rows of one series in which anything was observed."""
    kept = batch.observed[row].any(-1)
    return batch.times[row, kept], batch.values[row, kept], batch.observed[row, kept].double()


def jumbled_queries(batch=3):
    """Query times in any order, also before and after the series."""
    return 1.6 * torch.rand(batch, 6, dtype=torch.float64) - 0.3
