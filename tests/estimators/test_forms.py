"""Input forms (frames, arrays, lists, sets) and predictions in the same form."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from contiformer import Classifier, Interpolator, Regressor
from contiformer.data import DataError, Series, SeriesSet
from contiformer.data.series_set import Schema
from contiformer.estimators.tables import Columns, query_times
from tests.estimators.problems import TINY, long_table, numbers, waves

ROLES = {"id": "who", "time": "hour", "values": ["pH", "pulse"]}


@pytest.fixture(scope="module")
def by_table(X):
    return Interpolator.from_options(**TINY).fit(pd.DataFrame(long_table(X)), **ROLES)


def test_all_input_forms_give_the_same_predictions(X, interpolator, by_table):
    at = [0.5, 3.0, 12.0]
    listed = interpolator.predict(X, at=at)
    series = SeriesSet([Series.of(t, v, id=f"p{n}") for n, (t, v) in enumerate(X)])
    as_set = interpolator.predict(series, at=at)
    assert [one.id for one in as_set] == [f"p{n}" for n in range(len(X))]
    for one, values in zip(as_set, listed, strict=True):
        np.testing.assert_allclose(one.values, values, rtol=1e-5, atol=1e-6)
        assert one.times.tolist() == at
    polars = by_table.predict(pl.DataFrame(long_table(X)), at=at)
    pandas = by_table.predict(pd.DataFrame(long_table(X)), at=at)
    assert isinstance(polars, pl.DataFrame)
    assert isinstance(pandas, pd.DataFrame)
    assert list(pandas.columns) == polars.columns == ["who", "hour", "pH", "pulse"]
    np.testing.assert_allclose(pandas[["pH", "pulse"]].to_numpy(), polars[["pH", "pulse"]].to_numpy())
    assert pandas["who"].tolist() == polars["who"].to_list() == sorted(f"p{n}" for n in range(len(X)) for _ in at)
    lazy = by_table.predict(pl.DataFrame(long_table(X)).lazy(), at=at)
    assert lazy.equals(polars)


def test_missing_values_of_an_array_are_filled(X):
    draw = np.random.default_rng(0)
    array = np.cumsum(draw.normal(size=(8, 6, 2)), axis=1)
    array[draw.random(array.shape) < 0.3] = np.nan
    array[0, 4:] = np.nan  # a series that ends early is answered for to the end, like the others
    array[:, 0] = 0.0
    model = Interpolator.from_options(**TINY).fit(array)
    filled = model.predict(array)
    assert filled.shape == array.shape
    assert np.isfinite(filled).all()
    assert model.predict(array, at=[0.5, 9.0]).shape == (8, 2, 2)
    ragged = model.predict(array, at=[[1.0]] * 7 + [[1.0, 2.0]])
    assert ragged.shape == (8, 2, 2)
    assert np.isnan(ragged[:7, 1]).all()
    assert np.isfinite(ragged[7]).all()


def test_all_forms_of_query_times(X, interpolator):
    whole = interpolator.predict(X)
    assert [len(values) for values in whole] == [len(times) for times, _ in X]
    flat = interpolator.predict(X, at=[1.0, 2.0])
    by_id = interpolator.predict(X, at={n: [1.0, 2.0] for n in range(len(X))})
    nested = interpolator.predict(X, at=[np.array([1.0, 2.0])] * len(X))
    words = interpolator.predict(X, at=["1.0", "2"])
    for other in (by_id, nested, words, interpolator.predict(X, at=pd.Series([1.0, 2.0]))):
        for a, b in zip(flat, other, strict=True):
            np.testing.assert_array_equal(a, b)
    backwards = interpolator.predict(X, at=[2.0, 1.0])
    np.testing.assert_allclose(backwards[0][::-1], flat[0], rtol=1e-5, atol=1e-6)
    assert [values.shape for values in interpolator.predict(X, at=[])] == [(0, 2)] * len(X)
    assert interpolator.predict(X, at=1.5)[0].shape == (1, 2)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ([float("nan")], "at: .* not a finite time"),
        (["noon"], "at.*not a time"),
        ([[1.0], [2.0]], "at has 2 lists of times for 12 series"),
        ({0: [1.0]}, "at has no times for the series 1"),
        ([dt.datetime(2024, 1, 1)], "at has dates; the model was trained on numbers"),
        ([1e300], "at has a time"),
        ([1.0, [2.0]], "at are ragged"),
    ],
)
def test_invalid_query_times_are_refused(X, interpolator, at, message):
    with pytest.raises(DataError, match=message):
        interpolator.predict(X, at=at)


def test_std_and_quantiles(X, interpolator, by_table):
    mean, std = interpolator.predict(X, at=[1.0, 20.0], return_std=True)
    low, middle, high = (interpolator.predict(X, at=[1.0, 20.0], quantiles=[q]) for q in (0.1, 0.5, 0.9))
    for n in range(len(X)):
        assert (std[n] > 0).all()
        np.testing.assert_allclose(middle[n], mean[n], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(high[n] - low[n], 2 * 1.2815515655446004 * std[n], rtol=1e-4)
    table = by_table.predict(pd.DataFrame(long_table(X)), at=[1.0], quantiles=[0.1, 0.9])
    assert list(table.columns[2:]) == ["pH_q0.1", "pH_q0.9", "pulse_q0.1", "pulse_q0.9"]
    assert (table["pH_q0.1"] < table["pH_q0.9"]).all()
    with pytest.raises(ValueError, match="quantiles"):
        interpolator.predict(X, at=[1.0], quantiles=[0.0, 1.0])
    with pytest.raises(ValueError, match="return_std and quantiles"):
        interpolator.predict(X, at=[1.0], quantiles=[0.5], return_std=True)


def test_std_and_quantiles_need_a_gaussian_law(X):
    model = Interpolator.from_options(law="point", **TINY).fit(X)
    with pytest.raises(ValueError, match="law='gaussian'"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match="law='gaussian'"):
        model.predict(X, quantiles=[0.5])


def test_order_of_rows_and_columns_changes_nothing(X, y):
    table = pd.DataFrame(long_table(X, y))
    mixed = table.sample(frac=1, random_state=0)[["kind", "pulse", "hour", "pH", "who"]]
    roles = {**ROLES, "label": "kind"}
    a, b = Classifier.from_options(**TINY).fit(table, **roles), Classifier.from_options(**TINY).fit(mixed, **roles)
    np.testing.assert_array_equal(a.predict_proba(table), b.predict_proba(table))
    # without values= the columns of training are looked for by name, and others ignored
    roles.pop("values")
    c = Classifier.from_options(**TINY).fit(table, **roles)
    np.testing.assert_array_equal(c.predict_proba(table), a.predict_proba(table))
    np.testing.assert_array_equal(c.predict_proba(table.assign(note=1.0)), a.predict_proba(table))
    pd.testing.assert_frame_equal(c.predict_proba(mixed), c.predict_proba(table))


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series(range(100, 112), dtype="int32"),
        pd.Series([n + 0.0 for n in range(12)]),
        pd.Series([f"x{n}" for n in range(12)], dtype="category"),
    ],
    ids=["int32", "float", "category"],
)
def test_ids_keep_their_type(X, ids):
    table = pd.DataFrame(long_table(X, ids=list(range(12))))
    table["who"] = ids.iloc[table["who"]].reset_index(drop=True)
    model = Interpolator.from_options(**TINY).fit(table, **ROLES)
    out = model.predict(table, at=[1.0])
    assert out["who"].dtype == table["who"].dtype
    assert out["who"].tolist() == sorted(ids)
    kinds = pl.DataFrame({name: pl.Series(table[name].tolist()) for name in table.columns})
    kinds = kinds.with_columns(pl.col("who").cast(pl.Int16)) if ids.dtype == "int32" else kinds
    assert model.predict(kinds, at=[1.0])["who"].dtype == kinds["who"].dtype


@pytest.mark.parametrize("zone", [None, "Europe/Vienna"])
def test_dates_of_a_table_stay_dates(X, zone):
    table = pd.DataFrame(long_table(X))
    table["hour"] = pd.Timestamp("2024-03-01", tz=zone) + pd.to_timedelta((3600 * table["hour"]).round(), unit="s")
    model = Interpolator.from_options(**TINY).fit(table, **ROLES)
    same = model.predict(table)
    # pandas' own unit may differ, the moments may not
    table = table.sort_values(["who", "hour"])
    assert same["hour"].tolist() == table["hour"].tolist()
    asked = pd.date_range("2024-03-01T01:00", periods=3, freq="h", tz=zone)
    assert model.predict(table, at=asked)["hour"].tolist() == asked.tolist() * len(X)
    if zone is None:
        words = model.predict(table, at=["2024-03-01T01:00:00", "2024-03-01 02:00"])
        assert words["hour"].tolist() == asked[:2].tolist() * len(X)
    polars = pl.DataFrame({name: table[name].tolist() for name in table.columns})
    polars = polars.with_columns(pl.col("hour").dt.convert_time_zone(zone)) if zone else polars
    assert model.predict(polars)["hour"].to_list() == polars["hour"].to_list()
    with pytest.raises(DataError, match="times of X are numbers; the model was trained on dates"):
        model.predict(pd.DataFrame(long_table(X)))


def test_dates_of_a_series_set_stay_dates(X):
    day = np.datetime64("2024-03-01T00:00:00", "us")
    dated = [(day + (times * 3.6e9).astype("m8[us]"), values) for times, values in X]
    model = Interpolator.from_options(**TINY).fit(dated)
    at = [dt.datetime(2024, 3, 1, 1), dt.datetime(2024, 3, 1, 2)]
    listed = model.predict(dated, at=at)
    schema = Schema(dates=True)
    answered = model.predict(SeriesSet([Series.of(*one) for one in dated], schema=schema), at=at)
    assert answered.schema.dates
    np.testing.assert_allclose(answered[3].values, listed[3], rtol=1e-5, atol=1e-6)


def test_missing_and_repeated_columns_are_refused(X, y):
    table = pd.DataFrame(long_table(X, y))
    model = Classifier.from_options(**TINY).fit(table, label="kind", **ROLES)
    np.testing.assert_array_equal(
        model.predict_proba(table.drop(columns="kind")), model.predict_proba(table.assign(kind=None))
    )
    with pytest.raises(DataError, match="no column 'pulse'"):
        model.predict(table.drop(columns="pulse"))
    with pytest.raises(DataError, match="no column 'hour'"):
        model.predict(table.drop(columns="hour"))
    with pytest.raises(DataError, match="no column 'kin'; did you mean 'kind'"):
        Classifier.from_options(**TINY).fit(table, label="kin", **ROLES)
    with pytest.raises(DataError, match="the time column is not named"):
        Classifier.from_options(**TINY).fit(table, id="who", label="kind")
    with pytest.raises(DataError, match=r"values='pH' is one word; pass a list"):
        Classifier.from_options(**TINY).fit(table, id="who", time="hour", values="pH", label="kind")
    with pytest.raises(DataError, match="no series has a label; pass y"):
        model.score(table.drop(columns="kind"))
    twice = pd.concat([table, table])
    with pytest.raises(DataError, match=r"row 81: repeats series and time of row 1; pass duplicates="):
        model.predict(twice)


def test_targets_and_static_features_of_a_table(X):
    table = pd.DataFrame(long_table(X)).assign(age=lambda t: t["who"].str[1:].astype(float))
    roles = {"id": "who", "time": "hour", "values": ["pH"], "static": ["age"], "targets": ["pulse"]}
    model = Regressor.from_options(law="gaussian", **TINY).fit(table, **roles)
    mean, std = model.predict(table.drop(columns="pulse"), at=[1.0], return_std=True)
    assert list(mean.columns) == ["who", "hour", "pulse"]
    assert np.isfinite(mean["pulse"]).all()
    assert (std["pulse"] > 0).all()
    assert model.evaluate(table)["mse"] > 0
    with pytest.raises(DataError, match="no column 'age'"):
        model.predict(table.drop(columns="age"))
    with pytest.raises(DataError, match="no targets to compare with"):
        model.evaluate(table.drop(columns="pulse"))
    with pytest.raises(DataError, match="static features"):
        model.predict([(t, v[:, :1]) for t, v in X])


def test_labels_as_an_argument_or_in_a_series_set(X, y):
    table = pd.DataFrame(long_table(X))
    kinds = pd.Series(y, index=[f"p{n}" for n in range(len(X))])
    model = Classifier.from_options(**TINY).fit(table, kinds, **ROLES)
    labelled = SeriesSet([Series.of(t, v, label=kind) for (t, v), kind in zip(X, y, strict=True)])
    other = Classifier.from_options(**TINY).fit(labelled)
    assert 0 <= other.score(labelled) <= 1
    right = model.predict(table).loc[kinds.index] == kinds
    assert model.score(table, kinds) == pytest.approx(np.mean(right))
    weights = pd.Series(np.arange(len(y)), index=kinds.index)
    assert model.score(table, kinds, sample_weight=weights) == pytest.approx(np.average(right, weights=weights))


def test_query_times_must_cover_every_series():
    data = SeriesSet([Series.of([0.0], [[1.0]], id="a"), Series.of([0.0], [[1.0]], id="b")])
    with pytest.raises(DataError, match="at has no times for the series 'b'"):
        query_times({"a": [1.0]}, data, "set", Columns(), "numbers")


def test_regressor_returns_an_array(X, regressor):
    said = regressor.predict(X)
    assert said.shape == (len(X),)
    assert regressor.score(X, numbers(X)) == pytest.approx(
        1 - np.sum((said - numbers(X)) ** 2) / np.sum((np.array(numbers(X)) - np.mean(numbers(X))) ** 2)
    )
    with pytest.raises(ValueError, match="at and return_std"):
        regressor.predict(X, at=[1.0])
    assert len(waves(3)[0]) == len(regressor.predict(waves(3)[0]))
