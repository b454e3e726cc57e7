"""Batches and small tasks."""

import numpy as np

from contiformer.backbones import make_backbone
from contiformer.data import Series, SeriesSet
from contiformer.tasks import InputOptions, Inputs


def some_series(n=6, channels=2, seed=0, label=None):
    draw = np.random.default_rng(seed)
    series = []
    for i in range(n):
        times = np.sort(draw.uniform(0, 1, draw.integers(2, 9)))
        values = draw.normal(size=(len(times), channels))
        values[1:][draw.random((len(times) - 1, channels)) < 0.3] = np.nan
        series.append(Series.of(times, values, label=None if label is None else label(i), id=i))
    return series


def some_set(**options):
    return SeriesSet(some_series(**options))


def parts(channels=2, **options):
    """A backbone of 8 numbers and the inputs that it sees."""
    inputs = Inputs(InputOptions(channels=channels, **{"window": 2, "spacing": 0.1, "gaps": True, **options}))
    return make_backbone("contiformer", inputs.size, d_model=8, n_heads=2), inputs
