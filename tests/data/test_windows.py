"""Windows for forecasting at every moment of irregular series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, Series, SeriesSet
from contiformer.data.windows import cut_windows

times_lists = st.lists(st.integers(0, 40), min_size=0, max_size=25).map(sorted)


@given(st.lists(times_lists, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 10), st.integers(1, 4))
def test_windows_are_all_that_there_are(lists, history, reach, least):
    data = SeriesSet([Series.of(t, np.arange(len(t)), id=n) for n, t in enumerate(lists)], channels=["x"])
    wanted = []
    for series in data:
        for cut in sorted({int(np.sum(series.times <= t)) for t in series.times}):
            after = [i for i in range(cut, len(series)) if series.times[i] <= series.times[cut - 1] + reach]
            if cut >= least and after:
                wanted.append((series.values[max(0, cut - history) : cut].ravel().tolist(), [float(i) for i in after]))
    windows = cut_windows(data, history, reach, least=least)
    assert [(w.values.ravel().tolist(), w.target_values.ravel().tolist()) for w in windows] == wanted
    assert windows.lengths.tolist() == [len(w) for w in windows]


@given(times_lists, st.integers(0, 40))
def test_a_border_divides_targets(times, border):
    data = SeriesSet([Series.of(times, np.arange(len(times)))], channels=["x"])
    before = cut_windows(data, 5, 6, between=[(-np.inf, border)])
    after = cut_windows(data, 5, 6, between=[(border, np.inf)])
    assert all((w.target_times <= border).all() for w in before)
    assert all((w.target_times > border).all() for w in after)
    assert all(w.times[-1] < w.target_times[0] for w in [*before, *after])


def test_targets_are_not_shown_and_labels_are_dropped():
    data = SeriesSet([Series.of(range(5), range(5), label="a")], classes=["a"])
    window = cut_windows(data, 10, 1)[0]
    assert window.label is None
    assert window.times.max() < window.target_times.min()


@pytest.mark.parametrize("bad", [{"history": 0}, {"reach": 0.0}, {"reach": float("nan")}, {"least": 0}])
def test_impossible_windows_are_refused(bad):
    data = SeriesSet([Series.of(range(5), range(5))])
    with pytest.raises(DataError, match="history, least and reach must be positive"):
        cut_windows(data, **{"history": 3, "reach": 1.0, **bad})
