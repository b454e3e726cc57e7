import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import Series, SeriesSet
from contiformer.data.catalog import drop_points, load_uea
from contiformer.data.errors import DataError

shares = st.sampled_from([0.0, 0.3, 0.5, 0.7]) | st.floats(0, 0.99)


def _set(lengths, named=True):
    draw = np.random.default_rng(0)
    return SeriesSet(
        [
            Series.of(np.sort(draw.random(n)), draw.random((n, 2)), label="a", id=f"s{i}" if named else None)
            for i, n in enumerate(lengths)
        ],
        channels=["x", "y"],
    )


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), shares, st.integers(0, 99), st.booleans())
def test_exactly_the_share_goes_and_the_rest_is_untouched(lengths, share, seed, named):
    data = _set(lengths, named)
    for before, after in zip(data, drop_points(data, share, seed), strict=True):
        assert len(before) - len(after) <= share * len(before) + 1e-6 < len(before) - len(after) + 1 + 2e-6
        rows = {(t, *v) for t, v in zip(before.times, before.values.tolist(), strict=True)}
        assert all((t, *v) in rows for t, v in zip(after.times, after.values.tolist(), strict=True))
        assert (np.diff(after.times) >= 0).all()
        assert (after.id, after.label) == (before.id, before.label)


@pytest.mark.parametrize(
    ("length", "share", "staying"),
    [(8, 0.7, 3), (36, 0.3, 26), (45, 0.5, 23), (90, 0.7, 27), (100, 0.29, 71), (8, 1 - 1e-12, 1)],
)
def test_the_number_dropped_is_rounded_down(length, share, staying):
    assert drop_points(_set([length]), share).lengths.tolist() == [staying]


@given(st.permutations(range(6)), st.integers(0, 9))
def test_a_series_loses_the_same_points_in_any_company(order, seed):
    data = _set([30, 31, 32, 33, 34, 35])
    alone = {series.id: series for series in drop_points(data, 0.5, seed)}
    for series in drop_points(data.select(list(order)[:4]), 0.5, seed):
        assert series == alone[series.id]


def test_seed_and_series_matter():
    data = SeriesSet([Series.of(range(100), range(100), id=i) for i in range(2)])
    kept = [tuple(series.times) for seed in (0, 1) for series in drop_points(data, 0.5, seed)]
    assert len(set(kept)) == 4


def test_the_points_are_those_of_ever():
    data = SeriesSet([Series.of(range(10), range(10), id="test/0")])
    assert drop_points(data, 0.7, seed=3)[0].times.tolist() == [3.0, 7.0, 9.0]


def test_every_point_is_as_likely_to_go():
    data = SeriesSet([Series.of(range(20), range(20), id=i) for i in range(4000)])
    counts = np.bincount(np.concatenate([series.times for series in drop_points(data, 0.3)]).astype(int), minlength=20)
    # binomial: 4000 draws with probability 0.7, five standard deviations
    assert np.abs(counts - 2800).max() < 5 * np.sqrt(4000 * 0.7 * 0.3)


class _Source:
    def __init__(self, items):
        self.items = items
        self.lengths = np.array([len(item) for item in items])
        self.blocks = np.arange(len(items))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_lazy_sets_stay_lazy_and_give_the_same():
    data = _set([5, 9, 14])
    lazy = SeriesSet(_Source(list(data)), schema=data.schema)
    thin = drop_points(lazy, 0.5, seed=1)
    assert thin.lazy
    assert list(thin) == list(drop_points(data, 0.5, seed=1))
    assert thin.lengths.tolist() == [len(series) for series in thin]


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_impossible_shares(share):
    with pytest.raises(DataError, match="cannot be dropped"):
        drop_points(_set([3]), share)


def test_empty_series_stay_empty():
    assert drop_points(_set([0, 4]), 0.5).lengths.tolist() == [0, 2]


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_on_real_data(shared, share):
    data = load_uea("JapaneseVowels", "test")
    thin = drop_points(data, share)
    assert thin.lengths.tolist() == [n - int(10 * share) * n // 10 for n in data.lengths.tolist()]
    assert thin == drop_points(data, share)
