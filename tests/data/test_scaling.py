import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, Scaling, Schema, Series, SeriesSet


def data(shift=0.0, unit=1.0):
    rng = np.random.default_rng(0)
    series = []
    for n in range(5):
        times = shift + unit * np.sort(rng.uniform(0, 10, 7))
        values = rng.normal(5, [1, 100, 0], (7, 3))
        values[rng.uniform(size=values.shape) < 0.3] = np.nan
        series.append(Series.of(times, values, static=[n, np.nan], target_values=values[:, :1] * 2))
    return SeriesSet(series)


def test_values_have_mean_zero_and_deviation_one():
    train = data()
    scaled = Scaling.fit(train).apply(train)
    stacked = np.concatenate([s.values for s in scaled])
    assert np.allclose(np.nanmean(stacked, 0), 0, atol=1e-12)
    assert np.allclose(np.nanstd(stacked, 0)[:2], 1)
    assert np.isfinite(stacked[~np.isnan(np.concatenate([s.values for s in train]))]).all()


@given(st.floats(-1e9, 1e9), st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]), st.sampled_from(["first", "global"]))
def test_shift_and_unit_of_time_change_nothing(shift, unit, origin):
    plain, moved = data(), data(shift, unit)
    a = Scaling.fit(plain, origin=origin).apply(plain)
    b = Scaling.fit(moved, origin=origin).apply(moved)
    precision = np.finfo(float).eps * (abs(shift) / unit + 10) * 4 / 5
    for one, other in zip(a, b, strict=True):
        assert np.allclose(one.times, other.times, atol=precision, rtol=1e-9)


def test_json_round_trip_is_exact():
    scaling = Scaling.fit(data(), origin="global")
    assert Scaling.from_dict(json.loads(json.dumps(scaling.to_dict()))) == scaling
    for saved in ("scaling", [], {}, {"format": 99}, {"format": 1, "mean": 3}):
        with pytest.raises(DataError):
            Scaling.from_dict(saved)


def test_statistics_come_from_training_only_and_undo():
    train, test = data()[:3], data()[3:]
    scaling = Scaling.fit(train)
    assert scaling.mean != Scaling.fit(test).mean
    back = scaling.undo_values(scaling.apply(test)[0].values)
    assert np.allclose(back, test[0].values, equal_nan=True)
    assert np.allclose(
        scaling.undo_targets(scaling.apply(test)[0].target_values), test[0].target_values, equal_nan=True
    )


def test_scaled_times_are_no_dates_and_whole_numbers_are_undone():
    train = SeriesSet([Series.of([0, 60], [[1.0], [3.0]])], schema=Schema(("x",), ("mV",), dates=True, time_unit="s"))
    scaling = Scaling.fit(train)
    assert scaling.apply(train).schema == Schema(("x",))
    assert scaling.undo_values(np.array([[1]])).tolist() == [[3.0]]


def test_constant_never_observed_and_single_points_are_defined():
    train = SeriesSet([Series.of([3.0], [[7.0, np.nan]])])
    scaled = Scaling.fit(train).apply(train)[0]
    assert scaled.values[0, 0] == 0
    assert np.isnan(scaled.values[0, 1])
    assert scaled.times.tolist() == [0]


def test_large_offset_loses_no_digits():
    train = SeriesSet([Series.of(np.arange(100), 1e9 + np.arange(100.0) % 2)])
    assert Scaling.fit(train).std[0] == pytest.approx(0.5, rel=1e-9)


def test_wrong_channels_and_units_are_refused():
    scaling = Scaling.fit(data())
    with pytest.raises(DataError, match="channels"):
        scaling.apply_to(Series.of([0], [[1.0]]))
    other = SeriesSet([Series.of([0], [[1.0, 2.0, 3.0]])], channels=["x", "y", "z"])
    with pytest.raises(DataError, match="channels"):
        scaling.apply(other)
    with pytest.raises(DataError, match="static"):
        scaling.apply_to(Series.of([0], [[1.0, 2.0, 3.0]], static=[1, 2, 3]))
    with pytest.raises(DataError, match="unit"):
        Scaling.fit(data(), unit=0.0)
    with pytest.raises(DataError, match="origin"):
        Scaling.fit(data(), origin="last")


def skewed(n=200):
    draw = np.random.default_rng(0)
    return SeriesSet(
        [
            Series.of(range(10), np.exp(2 * draw.normal(size=(10, 2))) * [1.0, 1e6], static=[draw.exponential()])
            for _ in range(n)
        ]
    )


def test_normal_scores_are_normal_whatever_the_values_are():
    data = skewed()
    scaled = Scaling.fit(data, law="normal scores").apply(data)
    for column in (*np.concatenate([one.values for one in scaled]).T, np.array([one.static[0] for one in scaled])):
        assert abs(column.mean()) < 0.05
        assert abs(column.std() - 1) < 0.1
        assert np.abs(column).max() < 3.2


def test_normal_scores_keep_the_order_and_end_outliers():
    data = skewed()
    scaling = Scaling.fit(data, law="normal scores")
    values = np.array([[-1e9, 0.0], [0.1, 0.0], [1.0, 0.0], [7.0, 0.0], [1e9, 1e30], [np.nan, 0.0]])
    scores = scaling.apply_to(Series.of(range(6), values, static=[1.0])).values
    assert (np.diff(scores[:5, 0]) > 0).all()
    assert np.isnan(scores[5, 0])
    assert np.abs(scores[:5]).max() < 3.2


def test_normal_scores_of_any_increasing_function_are_the_same():
    data = skewed()
    logs = data.map(lambda one: Series.of(one.times, np.log(one.values), static=np.log(one.static)))
    same = [Scaling.fit(one, law="normal scores").apply(one) for one in (data, logs)]
    for a, b in zip(*same, strict=True):
        # between the knots the maps are straight, and logarithms are not, most of all in the tails
        body = np.abs(b.values) < 1.8
        np.testing.assert_allclose(a.values[body], b.values[body], atol=0.1)


def test_normal_scores_come_back_from_json_and_cannot_be_undone():
    data = skewed(20)
    scaling = Scaling.fit(data, law="normal scores")
    assert Scaling.from_dict(json.loads(json.dumps(scaling.to_dict()))) == scaling
    with pytest.raises(DataError, match="cannot be turned back"):
        scaling.undo_values(np.zeros((1, 2)))
    with pytest.raises(DataError, match="law='ranks' is unknown"):
        Scaling.fit(data, law="ranks")


def test_normal_scores_of_channels_that_tell_nothing():
    nothing = Series.of(range(3), [[np.nan, 5.0]] * 3)
    scaling = Scaling.fit(SeriesSet([nothing]), law="normal scores")
    scores = scaling.apply_to(Series.of(range(2), [[1.0, 5.0], [2.0, 6.0]])).values
    assert np.isfinite(scores).all()


def test_outliers_count_as_the_limit_and_leave_the_statistics_alone():
    draw = np.random.default_rng(0)
    clean = [Series.of(np.arange(50.0), draw.normal(7.4, 0.1, (50, 2)), id=f"p{n}") for n in range(40)]
    wrong = clean[3].values.copy()
    wrong[7, 0], wrong[8, 0] = 740.0, 1e12
    faulty = SeriesSet([*clean[:3], Series.of(np.arange(50.0), wrong, id="p3"), *clean[4:]])
    limited, plain = Scaling.fit(faulty, limit=20.0), Scaling.fit(SeriesSet(clean))
    assert np.allclose(limited.mean, plain.mean, rtol=1e-4)
    assert np.allclose(limited.std, plain.std, rtol=1e-2)
    scaled = limited.apply(faulty)[3].values
    assert scaled[7:9, 0].tolist() == [20.0, 20.0]
    assert limited.outliers(faulty) == {"channel_0": (2, "p3", 1e12)}
    assert Scaling.from_dict(limited.to_dict()) == limited
    # nothing changes where nothing is beyond the limit
    same = Scaling.fit(SeriesSet(clean), limit=20.0)
    assert (same.mean, same.std) == (plain.mean, plain.std)
    assert same.apply(SeriesSet(clean)) == plain.apply(SeriesSet(clean))
    assert not same.outliers(SeriesSet(clean))


def test_rare_events_in_a_constant_channel_are_no_outliers():
    values = np.zeros((2000, 1))
    values[1500] = 1.0
    train = SeriesSet([Series.of(np.arange(2000.0), values)])
    assert Scaling.fit(train, limit=20.0).std == Scaling.fit(train).std
