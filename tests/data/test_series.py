import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, EventSequence, Series
from contiformer.data.conversion import as_datetimes, as_times


def test_points_are_sorted_by_time_and_equal_times_keep_their_order():
    series = Series.of([2, 1, 2], [[1.0], [2.0], [3.0]], target_times=[5, 4], target_values=[50, 40])
    assert series.times.tolist() == [1, 2, 2]
    assert series.values.ravel().tolist() == [2, 1, 3]
    assert series.target_times.tolist() == [4, 5]
    assert series.target_values.ravel().tolist() == [40, 50]


@given(st.permutations(range(6)))
def test_order_of_rows_changes_nothing(order):
    times, values = np.array([0.0, 0.5, 1.5, 7.0, 8.0, 9.0]), np.arange(12.0).reshape(6, 2)
    assert Series.of(times[order], values[order]) == Series.of(times, values)


def test_float32_stays_and_integers_become_float64():
    assert Series.of([0], np.ones((1, 1), np.float32)).values.dtype == np.float32
    assert Series.of([0], [[1]]).values.dtype == np.float64


def test_dates_are_seconds_in_utc_to_the_microsecond():
    late = dt.datetime(2199, 12, 31, 23, 59, 59, 999999)
    stamps = as_times([dt.datetime(1970, 1, 1, 0, 0, 1), late])
    assert stamps[0] == 1.0
    assert as_datetimes(stamps)[1] == np.datetime64(late)
    east = dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert as_times([east]).tolist() == [0.0]
    assert as_times(np.array(["1970-01-02"], "datetime64[D]")).tolist() == [86400.0]
    assert as_times([dt.timedelta(minutes=2)]).tolist() == [120.0]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0.0, float("nan")], "position 1"),
        ([0.0, float("inf")], "not a finite time"),
        (["noon"], "noon"),
        ([[0.0]], "shape"),
        ([[0.0], [1.0, 2.0]], "ragged"),
        ([1j], "complex"),
        (np.array(["400000"], "datetime64[Y]"), "too far"),
        ([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], "time zone"),
        (np.array(["NaT"], "datetime64[s]"), "not a finite time"),
        ([dt.datetime(2020, 1, 1), dt.timedelta(1)], "mix"),
        ([dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))], "years"),
    ],
)
def test_bad_times_are_named(times, message):
    with pytest.raises(DataError, match=message):
        Series.of(times, np.zeros((len(times), 1)), id="p1")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0]], "2 times but 1 rows"),
        ([["a"], ["b"]], "not numbers"),
        ([[1.0], [float("inf")]], "row 1"),
        (np.zeros((2, 1, 1)), "shape"),
        ([[1.0], [1.0, 2.0]], "equal rows"),
        ([[1 + 2j], [1]], "not numbers"),
        (np.array([["2020"], ["2021"]], "datetime64[Y]"), "not numbers"),
        ([[10**400], [1]], "not numbers"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(DataError, match=message):
        Series.of([0, 1], values)


def test_targets_need_their_times():
    with pytest.raises(DataError, match="target"):
        Series.of([0, 1], [1, 2], target_values=[1, 2, 3])
    with pytest.raises(DataError, match="target_times without"):
        Series.of([0, 1], [1, 2], target_times=[1])


def test_numbers_of_numpy_become_plain_and_static_is_flat():
    series = Series.of([0], [1], id=np.int64(3), label=np.str_("a"))
    assert (type(series.id), type(series.label)) == (int, str)
    with pytest.raises(DataError, match="static"):
        Series.of([0], [1], static=[[1, 2], [3, 4]])
    with pytest.raises(DataError, match="too far"):
        as_datetimes(np.array([1e14]))


def test_equality_sees_every_field():
    a = Series.of([0, 1], [[1.0], [np.nan]], static=[1.0], label="x", id=1)
    assert a == Series.of([0, 1], [[1.0], [np.nan]], static=[1.0], label="x", id=1)
    for other in (
        Series.of([0, 2], [[1.0], [np.nan]], static=[1.0], label="x", id=1),
        Series.of([0, 1], [[1.0], [2.0]], static=[1.0], label="x", id=1),
        Series.of([0, 1], [[1.0], [np.nan]], static=[2.0], label="x", id=1),
        Series.of([0, 1], [[1.0], [np.nan]], static=[1.0], label="y", id=1),
        Series.of([0, 1], [[1.0], [np.nan]], label="x", id=2),
    ):
        assert a != other


def test_between_is_half_open():
    part = Series.of([0, 1, 2], [1, 2, 3], target_values=[1, 2, 3]).between(1, 2)
    assert part.times.tolist() == [1]
    assert part.target_times.tolist() == [1]


def test_events_are_sorted_and_checked():
    events = EventSequence.of([3, 1], [0, 2], features=[[1.0], [2.0]])
    assert events.types.tolist() == [2, 0]
    assert events.features.ravel().tolist() == [2, 1]
    assert EventSequence.of([1.0, 2.0]).types.tolist() == [0, 0]
    for types in ([-1], [0.5], ["a"], [0, 1]):
        with pytest.raises(DataError):
            EventSequence.of([1.0], types)
