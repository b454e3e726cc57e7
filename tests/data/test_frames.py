import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import DataError, from_frame, to_frame
from tests.data.strategies import series_sets

WIDE = {"who": ["b", "a", "a", "b"], "t": [0.0, 2.0, 1.0, 5.0], "x": [1.0, 3.0, 2.0, None], "y": [None, 1.0, 1.0, 2.0]}
LONG = {"who": ["a", "a", "a"], "t": [1.0, 0.0, 1.0], "what": ["x", "x", "y"], "value": [2.0, 1.0, 5.0]}
both_kinds = pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict])


@both_kinds
def test_one_column_for_each_channel(make):
    data = from_frame(make(WIDE), id="who", time="t")
    assert data.ids == ["a", "b"]
    assert data.channels == ("x", "y")
    assert data[0].times.tolist() == [1, 2]
    assert data[0].values.tolist() == [[2, 1], [3, 1]]
    assert np.isnan(data[1].values).tolist() == [[False, True], [True, False]]


@both_kinds
def test_one_row_for_each_value(make):
    data = from_frame(make(LONG), id="who", time="t", variable="what", value="value")
    assert data.channels == ("x", "y")
    assert data[0].times.tolist() == [0, 1]
    assert np.array_equal(data[0].values, [[1, np.nan], [2, 5]], equal_nan=True)


@given(st.permutations(range(8)), st.sampled_from(["mean", "keep"]))
def test_order_of_rows_changes_nothing(order, duplicates):
    frame = pl.DataFrame(
        {"who": list("aabbbcaa"), "t": [0, 1, 0, 3, 2, 9, 4, 5], "x": np.arange(8.0), "label": list("uuvvvwuu")}
    )
    options = {"id": "who", "time": "t", "label": "label", "duplicates": duplicates}
    assert from_frame(frame[order], **options) == from_frame(frame, **options)


@pytest.mark.parametrize(("policy", "expected"), [("mean", 2.0), ("first", 1.0), ("last", 3.0)])
def test_duplicates_follow_the_policy_and_are_counted(policy, expected):
    frame = {"who": ["a"] * 3, "t": [1, 1, 2], "x": [1.0, 3.0, 7.0]}
    data = from_frame(frame, id="who", time="t", duplicates=policy)
    assert data[0].values.ravel().tolist() == [expected, 7]
    assert list(data.notes.values()) == [1]
    long = {"who": ["a"] * 3, "t": [1, 1, 1], "v": ["x", "x", "y"], "n": [1.0, 3.0, 7.0]}
    data = from_frame(long, id="who", time="t", variable="v", value="n", duplicates=policy)
    assert data[0].values.tolist() == [[expected, 7]]
    assert list(data.notes.values()) == [1]


def test_duplicates_are_refused_with_both_rows():
    with pytest.raises(DataError, match=r"row 3: repeats series and time of row 1"):
        from_frame({"who": ["a", "b", "a"], "t": [1, 1, 1], "x": [1, 2, 3]}, id="who", time="t")
    with pytest.raises(DataError, match=r"row 2: .*variable 'x' of row 1"):
        from_frame({"t": [1, 1], "v": ["x", "x"], "n": [1, 2]}, time="t", variable="v", value="n")
    kept = from_frame({"t": [1, 1], "x": [1, 2]}, time="t", duplicates="keep")
    assert len(kept[0]) == 2


@pytest.mark.parametrize(
    ("times", "expected", "kind"),
    [
        (["1.5", " 2 "], [1.5, 2.0], "numbers"),
        (["00:30", "48:00"], [1800.0, 172800.0], "durations"),
        (["00:00:01.5", "10:00:00"], [1.5, 36000.0], "durations"),
        (["1970-01-01", "1970-01-02"], [0.0, 86400.0], "dates"),
        (["1970-01-01 00:01", "1970-01-01T00:02:00.25"], [60.0, 120.25], "dates"),
        (["1970-01-01T00:00:00Z", "1970-01-01 02:00:00+01:00"], [0.0, 3600.0], "dates with a time zone"),
        ([dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 5)], [0.0, 5e-6], "dates"),
        ([dt.date(1970, 1, 2), dt.date(1970, 1, 3)], [86400.0, 172800.0], "dates"),
        ([dt.timedelta(seconds=3), dt.timedelta(days=1)], [3.0, 86400.0], "durations"),
        ([dt.time(0, 1), dt.time(1, 0)], [60.0, 3600.0], "durations"),
    ],
)
def test_times_in_many_forms(times, expected, kind):
    data = from_frame(pl.DataFrame({"t": times, "x": [1.0, 2.0]}), time="t")
    assert data[0].times.tolist() == expected
    assert data.schema.time_kind == kind
    assert data.schema.dates is kind.startswith("dates")


def test_times_with_zones_of_pandas():
    frame = pd.DataFrame(
        {"t": pd.to_datetime(["1970-01-01 01:00", "1970-01-01 02:00"]).tz_localize("Europe/Paris"), "x": [1, 2]}
    )
    assert from_frame(frame, time="t")[0].times.tolist() == [0.0, 3600.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t": ["0", "noon", "1", "2"]}, r"row 2, column 't'.*noon"),
        ({"t": [0.0, None, 1.0, 2.0]}, r"row 2, column 't'.*missing"),
        ({"t": [0.0, 1.0, float("inf"), 2.0]}, r"row 3.*not finite"),
        ({"t": ["2020-01-01T00:00Z", "2020-01-01T00:00", "2020-01-01T00:00Z", "2020-01-02T00:00Z"]}, r"row 2.*zone"),
        ({"t": [[0], [1], [2], [3]]}, r"column 't'.*not times"),
        ({"x": ["1", "2", "much", "3"]}, r"row 3, column 'x'.*much"),
        ({"x": [1.0, float("-inf"), 2.0, 3.0]}, r"row 2, column 'x'.*infinite"),
        ({"x": [[1], [2], [3], [4]]}, r"column 'x'.*not numbers"),
        ({"who": ["a", None, "b", "b"]}, r"row 2, column 'who': is missing"),
        ({"who": [1.0, float("nan"), 2.0, 2.0]}, r"row 2, column 'who': is missing"),
        ({"who": [[1], [1], [2], [2]]}, r"column 'who': holds List"),
    ],
)
def test_errors_name_row_and_column(change, message):
    with pytest.raises(DataError, match=message):
        from_frame(pl.DataFrame(WIDE | change, strict=False), id="who", time="t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "tt"}, "did you mean 't'"),
        ({"time": "t", "values": ["z"]}, "no column 'z'"),
        ({"time": "t", "variable": "x"}, "variable and value"),
        ({"time": "t", "values": ["x"], "categorical": ["y"]}, "categorical= names 'y'"),
        ({"time": "t", "duplicates": "drop"}, "duplicates='drop'"),
        ({"time": "t", "values": []}, "no column with values"),
        ({"time": "t", "values": ["x", "x"]}, "two of the channels"),
        ({"time": "t", "order": "ids"}, "order='ids'"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(DataError, match=message):
        from_frame(WIDE, id="who", **options)


def test_labels_and_static_features():
    frame = {"who": ["a", "a", "b"], "t": [0, 1, 0], "x": [1, 2, 3], "y": ["u", "u", "v"], "age": [None, 30, 40]}
    data = from_frame(frame, id="who", time="t", label="y", static=["age"])
    assert data.classes == ("u", "v")
    assert data.labels == ["u", "v"]
    assert [s.static.tolist() for s in data] == [[30], [40]]
    for column, value in (("y", ["u", "v", "v"]), ("age", [30, 31, 40])):
        with pytest.raises(DataError, match="changes within series 'a'"):
            from_frame(frame | {column: value}, id="who", time="t", label="y", static=["age"])
    some = from_frame(frame | {"y": [None, "u", None]}, id="who", time="t", label="y", static=["age"])
    assert (some.classes, some.labels) == (("u",), ["u", None])
    numbers = from_frame(frame | {"y": [0.5, 0.5, 2.0]}, id="who", time="t", label="y", values=["x"])
    assert (numbers.classes, numbers.labels) == (None, [0.5, 2.0])


def test_missing_numbers_of_pandas_are_missing():
    frame = pd.DataFrame({"who": [1, None, 2], "t": [0, 1, 0], "x": [1, 2, 3]})
    with pytest.raises(DataError, match="row 2, column 'who': is missing"):
        from_frame(frame, id="who", time="t")
    frame = pd.DataFrame({"who": [1, 1, 2], "t": [0, 1, 0], "x": [1, 2, 3], "y": [1, None, None]})
    assert from_frame(frame, id="who", time="t", label="y").labels == [1.0, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_of_pandas_in_any_unit(unit):
    stamps = pd.to_datetime(["1970-01-01", "1970-01-02"]).astype(f"datetime64[{unit}]")
    for column in (stamps, stamps.tz_localize("UTC"), stamps - stamps[0]):
        assert from_frame(pd.DataFrame({"t": column, "x": [1, 2]}), time="t")[0].times.tolist() == [0.0, 86400.0]


def test_mixed_zones_and_repeated_columns_are_refused():
    mixed = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, 5)]
    for order in (mixed, mixed[::-1]):
        with pytest.raises(DataError, match="zone"):
            from_frame({"t": order, "x": [1, 2]}, time="t")
    frame = pd.DataFrame([[0, 1, 2]], columns=["t", "x", "x"])
    with pytest.raises(DataError, match="same name"):
        from_frame(frame, time="t")


def test_known_channels_are_kept_and_others_refused():
    options = {"id": "who", "time": "t", "variable": "what", "value": "value"}
    data = from_frame(LONG, channels=["z", "y", "x"], **options)
    assert data.channels == ("z", "y", "x")
    assert np.isnan(data[0].values[:, 0]).all()
    with pytest.raises(DataError, match="row 3, column 'what': 'y' is none of the channels"):
        from_frame(LONG, channels=["x"], **options)


def test_no_rows_and_no_table():
    with pytest.raises(DataError, match="no rows"):
        from_frame(pl.DataFrame({"t": [], "x": []}), time="t")
    with pytest.raises(DataError, match="not a table"):
        from_frame([1, 2], time="t")


@given(series_sets())
def test_a_frame_holds_the_values(data):
    frame = to_frame(data)
    assert frame.height == data.lengths.sum()
    back = from_frame(frame, id="id", time="time", values=data.channels, duplicates="keep", order="appearance")
    assert all(np.array_equal(a.values, b.values, equal_nan=True) for a, b in zip(data, back, strict=True))
    assert all(np.array_equal(a.times, b.times) for a, b in zip(data, back, strict=True))


def test_other_variables_are_ignored_and_their_series_stay():
    rows = {"who": ["a", "a", "b", "a"], "t": [1.0, 0.0, 5.0, 1.0], "what": ["x", "note", "note", "y"]}
    rows["value"] = ["2", "fine", "ill", "5"]
    data = from_frame(rows, id="who", time="t", variable="what", value="value", values=["y", "x", "never"])
    assert data.channels == ("y", "x", "never")
    assert np.array_equal(data[0].values, [[5, 2, np.nan]], equal_nan=True)
    assert (data.ids, data[1].times.tolist()) == (["a", "b"], [5.0])
    assert np.isnan(data[1].values).all()
    with pytest.raises(DataError, match=r"row 2, column 'value': 'fine' is not a number.*values="):
        from_frame(rows, id="who", time="t", variable="what", value="value")
    with pytest.raises(DataError, match="column 'what': holds none of the variables of values=; did you mean 'note'"):
        from_frame(rows, id="who", time="t", variable="what", value="value", values=["nota"])


CATEGORIES = {
    "who": ["a", "a", "b"],
    "t": [0.0, 1.0, 0.0],
    "x": [1.0, 2.0, 3.0],
    "ward": ["ICU", None, "ER"],
    "sex": ["f", "f", "m"],
}


@both_kinds
def test_categories_become_channels_and_features(make):
    roles = {"id": "who", "time": "t", "static": ["sex"], "categorical": ["ward", "sex"]}
    data = from_frame(make(CATEGORIES), **roles)
    assert data.channels == ("x", "ward=ER", "ward=ICU")
    assert data.schema.static == ("sex=f", "sex=m")
    assert np.array_equal(data[0].values, [[1, 0, 1], [2, np.nan, np.nan]], equal_nan=True)
    assert [one.static.tolist() for one in data] == [[1, 0], [0, 1]]
    known = dict(data.schema.categories)
    assert known == {"ward": ("ER", "ICU"), "sex": ("f", "m")}
    with pytest.warns(UserWarning, match="row 3, column 'ward': 'home' was not there in training; 1 rows"):
        other = from_frame(make(CATEGORIES | {"ward": ["ICU", "ER", "home"]}), **roles | {"categorical": known})
    assert other[1].values.tolist() == [[3, 0, 0]]


def test_a_type_of_categories_is_enough():
    typed = pd.DataFrame(CATEGORIES).astype({"ward": "category", "sex": "category"})
    for frame in (typed, pl.DataFrame(CATEGORIES).with_columns(pl.col("ward", "sex").cast(pl.Categorical))):
        assert from_frame(frame, id="who", time="t", static=["sex"]).channels == ("x", "ward=ER", "ward=ICU")
    text = r"row 1, column 'ward': 'ICU' is not a number.*categorical=.*variable= and value="
    with pytest.raises(DataError, match=text) as caught:
        from_frame(CATEGORIES, id="who", time="t")
    assert "id=" not in str(caught.value)
    with pytest.raises(DataError, match=f"{text}.*id= if there are several"):
        from_frame(CATEGORIES, time="t", values=["ward"])
    many = {"t": range(300), "x": [f"word {n}" for n in range(300)]}
    with pytest.raises(DataError, match="has 300 categories, more than 200"):
        from_frame(many, time="t", categorical=["x"])


def test_truth_values():
    frame = {"who": ["a", "a", "b"], "t": [0, 1, 0], "x": ["True", "", "False"], "y": [True, False, None]}
    data = from_frame(frame | {"z": [True, True, False]}, id="who", time="t", label="z")
    assert np.array_equal(data[0].values, [[1, 1], [np.nan, 0]], equal_nan=True)
    assert (data.classes, data.labels) == ((False, True), [True, False])
    assert type(data.labels[0]) is bool
