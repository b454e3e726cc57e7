import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contiformer.data.statistics as module
from contiformer.data import Series, SeriesSet, summary_statistics
from contiformer.data.statistics import STATISTICS


def by_hand(series):
    """The statistics one channel after another, with NumPy's own functions."""
    row = []
    for channel in series.values.T:
        known = ~np.isnan(channel)
        t, x = series.times[known] - (series.times[0] if len(series) else 0), channel[known].astype(float)
        if not len(x):
            row += [0] + [np.nan] * (len(STATISTICS) - 1)
            continue
        wide = t[-1] > t[0]
        slope = np.polyfit(t, x, 1)[0] if wide else np.nan
        over_time = np.trapezoid(x, t) / (t[-1] - t[0]) if wide else x.mean()
        row += [len(x), x.mean(), x.min(), x.max(), x[0], x[-1], x.std(), slope, over_time, t[0], t[-1]]
        row.append(series.span - t[-1])
    return [*row, len(series), series.span, *(() if series.static is None else series.static)]


@st.composite
def sets(draw):
    channels, static = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    series = []
    for _ in range(draw(st.integers(1, 6))):
        length = int(rng.integers(0, 8))
        values = rng.normal(size=(length, channels)).astype(np.float32)
        values[rng.random(values.shape) < 0.4] = np.nan
        # tied times as well
        times = np.sort(rng.integers(0, 10, length)).astype(float) + 100
        series.append(Series(times, values, rng.normal(size=static) if static else None))
    return SeriesSet(series)


@settings(deadline=None, max_examples=60)
@given(sets(), st.integers(1, 20))
def test_statistics_are_those_computed_channel_by_channel(data, block):
    usual, module.BLOCK = module.BLOCK, block
    try:
        found, names = summary_statistics(data)
    finally:
        module.BLOCK = usual
    wanted = np.array([by_hand(one) for one in data])
    assert found.dtype == np.float32
    assert found.shape == wanted.shape == (len(data), len(names))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_channel_without_observations_has_a_count_of_zero_and_no_other_statistic():
    nan = float("nan")
    data = SeriesSet([Series.of([0, 1], [[nan, 1.0], [nan, 2.0]], static=[7.0])], channels=["a", "b"])
    row, names = summary_statistics(data)
    found = dict(zip(names, row[0].tolist(), strict=True))
    assert found["a count"] == 0
    assert np.isnan(row[0, 1 : len(STATISTICS)]).all()
    assert found["b slope"] == 1
    assert found["static_0"] == 7


def test_large_offsets_cost_no_digits():
    data = SeriesSet([Series(1e9 + np.arange(4.0), 1e7 + np.array([[0.0], [1.0], [2.0], [3.0]]))])
    row, names = summary_statistics(data)
    found = dict(zip(names, row[0].tolist(), strict=True))
    assert found["channel_0 slope"] == pytest.approx(1, abs=1e-6)
    assert found["channel_0 std"] == pytest.approx(1.25**0.5, abs=1e-6)


def test_set_without_series_has_names_and_no_rows():
    found, names = summary_statistics(SeriesSet([], channels=["a"]))
    assert found.shape == (0, len(names)) == (0, len(STATISTICS) + 2)


def test_time_grows_with_the_values_not_with_the_channels():
    rng = np.random.default_rng(0)

    def seconds(points, channels):
        data = SeriesSet([Series(np.arange(float(points)), rng.normal(size=(points, channels))) for _ in range(200)])
        started = time.perf_counter()
        summary_statistics(data)
        return time.perf_counter() - started

    few, many = (min(seconds(*shape) for _ in range(3)) for shape in ((400, 2), (4, 200)))
    assert many < 5 * few
