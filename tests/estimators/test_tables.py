"""Tables as users have them: measurements in rows, categories, dates in the index, zones and clock times, no rows."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from contiformer import Classifier, Forecaster, Interpolator, Regressor
from contiformer.data import DataError, Series, SeriesSet
from contiformer.data.series_set import Schema
from contiformer.estimators import Learner
from tests.estimators.problems import TINY, long_table, numbers

WIDE = {"id": "who", "time": "hour", "values": ["pH", "pulse"]}
LONG = {"id": "who", "time": "hour", "variable": "test", "value": "result"}
both_libraries = pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])


@pytest.fixture(scope="module")
def wide(X, y):
    return pd.DataFrame(long_table(X, y))


@pytest.fixture(scope="module")
def measurements(wide):
    """One row for each value, in no order."""
    rows = wide.melt(["who", "hour"], ["pulse", "pH"], "test", "result")
    return rows.dropna().sample(frac=1, random_state=0).reset_index(drop=True)


@pytest.fixture(scope="module")
def outcome(wide):
    return wide.groupby("who")["kind"].first()


# One row for each measurement


@both_libraries
def test_measurements_in_rows(wide, measurements, outcome, make):
    rows = make(measurements.to_dict("list"))
    model = Classifier.from_options(**TINY).fit(rows, outcome.reset_index(), label="kind", **LONG)
    assert model.schema_.channels == ("pH", "pulse")
    said = model.predict_proba(rows)
    other = Classifier.from_options(**TINY).fit(wide.dropna(how="all", subset=["pH", "pulse"]), label="kind", **WIDE)
    expected = other.predict_proba(wide.dropna(how="all", subset=["pH", "pulse"]))
    np.testing.assert_allclose(np.asarray(said)[:, -2:].astype(float), expected.to_numpy(), rtol=1e-5)
    assert model.score(rows, outcome) == pytest.approx(other.score(wide))


def test_saved_models_know_their_measurements(measurements, tmp_path):
    model = Interpolator.from_options(**TINY).fit(measurements, **LONG)
    said = model.predict(measurements, at=[1.0])
    assert said.columns.tolist() == ["who", "hour", "pH", "pulse"]
    model.save(tmp_path)
    pd.testing.assert_frame_equal(Learner.load(tmp_path).predict(measurements, at=[1.0]), said)


def test_new_measurements_may_lack_variables_and_have_others(measurements, outcome):
    model = Classifier.from_options(**TINY).fit(measurements, outcome, **LONG)
    expected = model.predict_proba(measurements)
    more = pd.DataFrame({"who": "p3", "hour": [0.5, 0.5], "test": ["note", "sex"], "result": ["calm", "f"]})
    pd.testing.assert_frame_equal(model.predict_proba(pd.concat([measurements, more])), expected)
    nothing = pd.concat([measurements[measurements["who"] != "p3"], more.iloc[:1]])
    said = model.predict_proba(nothing)
    assert said.index.tolist() == expected.index.tolist()
    assert np.isfinite(said.loc["p3"]).all()
    one = model.predict_proba(measurements[measurements["test"] == "pH"])
    assert np.isfinite(one.to_numpy()).all()


def test_duplicates_and_chosen_variables(measurements):
    twice = pd.concat([measurements, measurements.iloc[:3]])
    with pytest.raises(DataError, match=r"repeats series, time and variable .* of row 1; pass duplicates="):
        Interpolator.from_options(**TINY).fit(twice, **LONG)
    model = Interpolator.from_options(**TINY).fit(twice, values=["pulse"], duplicates="mean", **LONG)
    assert model.predict(twice, at=[1.0]).columns.tolist() == ["who", "hour", "pulse"]
    targets = Regressor.from_options(**TINY).fit(measurements, values=["pH"], targets=["pulse"], **LONG)
    assert targets.predict(measurements, at=[1.0]).columns.tolist() == ["who", "hour", "pulse"]
    assert targets.evaluate(measurements)["mse"] > 0
    with pytest.raises(DataError, match="name the input channels in values="):
        Regressor.from_options(**TINY).fit(measurements, targets=["pulse"], **LONG)


def test_text_in_a_column_of_values_names_the_ways_out(measurements):
    model = Interpolator.from_options(**TINY)
    with pytest.raises(DataError, match=r"column 'test': 'p.*' is not a number;.*categorical=.*variable= and value="):
        model.fit(measurements, id="who", time="hour")
    with pytest.raises(DataError, match=r"column 'who': 'p.*id= if there are several"):
        model.fit(measurements, time="hour")
    with pytest.raises(DataError, match=r"repeats series and time of row .*duplicates=.*id= if there are several"):
        model.fit(measurements[["hour", "result"]], time="hour")
    with pytest.raises(DataError, match="pass both variable= and value="):
        model.fit(measurements, id="who", time="hour", variable="test")


# Categories and truth values


def test_categories_are_learned_and_unseen_ones_answered(wide, tmp_path):
    draw = np.random.default_rng(0)
    frame = wide.assign(ward=draw.choice(["ICU", "ER"], len(wide)), sex=wide["who"].str[-1].isin(list("02468")))
    frame["sex"] = frame["sex"].map({True: "f", False: "m"}).astype("category")
    roles = {"id": "who", "time": "hour", "label": "kind", "static": ["sex"], "categorical": ["ward"]}
    model = Classifier.from_options(**TINY).fit(frame, **roles)
    assert model.schema_.channels == ("pH", "pulse", "ward=ER", "ward=ICU")
    assert model.schema_.static == ("sex=f", "sex=m")
    model.save(tmp_path)
    loaded = Classifier.load(tmp_path)
    new = frame.assign(ward="home", sex=frame["sex"].astype(str))  # the type of the column does not matter any more
    with pytest.warns(UserWarning, match=r"row 1, column 'ward': 'home' was not there in training; \d+ rows"):
        said = loaded.predict_proba(new)
    assert np.isfinite(said.to_numpy()).all()
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert np.abs(said.to_numpy() - model.predict_proba(frame).to_numpy()).max() > 0


@both_libraries
def test_truth_values_come_back_as_truth_values(wide, make, tmp_path):
    frame = make(wide.assign(kind=wide["kind"] == "a", on=wide["pulse"] > 0).to_dict("list"))
    model = Classifier.from_options(**TINY).fit(frame, id="who", time="hour", label="kind")
    assert model.classes_.tolist() == [False, True]
    assert set(map(type, model.predict(frame)["kind"] if make is pl.DataFrame else model.predict(frame))) == {bool}
    model.save(tmp_path)
    assert Classifier.load(tmp_path).classes_.dtype == bool


def test_several_labels_are_refused(wide):
    with pytest.raises(DataError, match=r"label=\['kind', 'age'\] is no name of a column; .* one model for each label"):
        Classifier.from_options(**TINY).fit(wide.assign(age=1), label=["kind", "age"], **WIDE)
    with pytest.raises(DataError, match="fit one model for each label"):
        Classifier.from_options(**TINY).fit(wide, wide[["pH", "kind"]], **WIDE)


def test_labels_that_are_missing_in_a_table(wide):
    some = wide.assign(kind=wide["kind"].where(~wide["who"].isin(["p2", "p5"])))
    with pytest.warns(UserWarning, match="2 of 12 series have no label and are left out, the first of them 'p2'"):
        model = Classifier.from_options(**TINY).fit(some, label="kind", **WIDE)
    assert model.classes_.tolist() == ["a", "b"]
    assert len(model.predict(some)) == 12
    with pytest.raises(DataError, match="series 'p2' has no label"):
        Classifier.from_options(**TINY).fit(some, label="kind", missing_labels="error", **WIDE)


# Times


def dated(wide, zone=None):
    start = pd.Timestamp("2024-03-01", tz=zone)
    return wide.drop(columns="kind").assign(hour=start + pd.to_timedelta((3600 * wide["hour"]).round(), unit="s"))


@pytest.fixture(scope="module")
def of_dates(wide):
    return {zone: Interpolator.from_options(**TINY).fit(dated(wide, zone), **WIDE) for zone in (None, "Europe/Vienna")}


def test_times_of_another_kind_are_refused(wide, of_dates):
    naive, zoned = of_dates[None], of_dates["Europe/Vienna"]
    plain, there = dated(wide), dated(wide, "Europe/Vienna")
    noon, noon_there = dt.datetime(2024, 3, 1, 12), pd.Timestamp("2024-03-01T12:00", tz="Europe/Vienna")
    without = r"has dates; the model was trained on dates with a time zone; give them the zone that they are in"
    for at in ([noon], ["2024-03-01T12:00"], pd.DatetimeIndex([noon]), np.array([noon], "M8[s]"), noon):
        with pytest.raises(DataError, match=without):
            zoned.predict(there, at=at)
    for at in ([noon_there], ["2024-03-01T12:00+01:00"], pd.DatetimeIndex([noon_there]), pl.Series([noon_there])):
        assert zoned.predict(there, at=at)["hour"].iloc[0] == noon_there
        with pytest.raises(DataError, match="at has dates with a time zone; the model was trained on dates; give"):
            naive.predict(plain, at=at)
    for model, frame in ((naive, plain), (zoned, there)):
        for at in ([12.0], [12], ["12"], np.array([12.0]), 12.0, {name: [1.0] for name in frame["who"]}):
            with pytest.raises(DataError, match=r"has numbers; the model was trained on dates.*give the same kind"):
                model.predict(frame, at=at)
    with pytest.raises(DataError, match="times of X are dates; the model was trained on dates with a time zone"):
        zoned.predict(plain)
    for ask in (naive.predict, naive.evaluate):
        with pytest.raises(DataError, match="times of X are dates with a time zone; the model was trained on dates"):
            ask(there)
    # another zone is the same time
    utc = there.assign(hour=there["hour"].dt.tz_convert("UTC"))
    np.testing.assert_array_equal(zoned.predict(utc)["pH"], zoned.predict(there)["pH"])
    assert str(zoned.predict(utc)["hour"].dtype).endswith("UTC]")


def test_lists_of_dates_are_told_apart(X):
    zoned = [([dt.datetime(2024, 3, 1, n, tzinfo=dt.UTC) for n in range(len(t))], v) for t, v in X]
    model = Interpolator.from_options(**TINY).fit(zoned)
    naive = [([t.replace(tzinfo=None) for t in times], v) for times, v in zoned]
    with pytest.raises(DataError, match="trained on dates with a time zone"):
        model.predict(naive)
    with pytest.raises(DataError, match="trained on dates with a time zone"):
        model.predict(X)
    # the times of a set are numbers, of dates the seconds since 1970
    data = SeriesSet([Series.of(*one) for one in zoned], schema=Schema(dates=True))
    np.testing.assert_allclose(model.predict(data, at=data[0].times)[0].values, model.predict(zoned)[0], atol=1e-5)


@both_libraries
def test_clock_times_are_durations(wide, make):
    def clock(hour):
        return f"{int(hour):02d}:{int(60 * (hour % 1)):02d}:{int(3600 * hour % 60):02d}"

    frame = make(wide.drop(columns="kind").assign(hour=wide["hour"].map(clock)).to_dict("list"))
    model = Interpolator.from_options(**TINY).fit(frame, **WIDE)
    said = model.predict(frame, at=["01:30", "02:00"])
    first = said["hour"][0]
    assert first == dt.timedelta(hours=1, minutes=30)
    with pytest.raises(DataError, match=r"at has numbers; the model was trained on durations; .*hours or seconds"):
        model.predict(frame, at=[1.5])
    with pytest.raises(DataError, match="times of X are numbers; the model was trained on durations"):
        model.predict(make(wide.to_dict("list")))
    again = model.predict(said, at=[dt.timedelta(hours=3)])
    assert again["hour"][0] == dt.timedelta(hours=3)
    assert "seconds" in model._facts()["time unit of the model"]


def test_dates_in_the_index_are_the_time(wide):
    frame = dated(wide)
    expected = Interpolator.from_options(**TINY).fit(frame, **WIDE).predict(frame)
    roles = {"id": "who", "values": ["pH", "pulse"]}
    for indexed in (frame.set_index("hour"), frame.set_index("hour").rename_axis(None)):
        model = Interpolator.from_options(**TINY).fit(indexed, **roles)
        said = model.predict(indexed)
        assert isinstance(said.index, pd.DatetimeIndex)
        np.testing.assert_array_equal(said["pH"], expected["pH"])
        np.testing.assert_array_equal(
            model.predict(frame.rename(columns={"hour": said.index.name}))["pH"], expected["pH"]
        )
    both = Interpolator.from_options(**TINY).fit(frame.set_index(["who", "hour"]), id="who")
    assert both.predict(frame.set_index(["who", "hour"])).index.names == ["who", "hour"]
    by_series = Regressor.from_options(**TINY).fit(frame.set_index("hour"), dict.fromkeys(frame["who"], 1.0), **roles)
    assert by_series.predict(frame.set_index("hour")).index.name == "who"


def test_query_times_in_a_table(wide, of_dates):
    model, frame = of_dates[None], dated(wide)
    days = pd.to_datetime(["2024-03-01", "2024-03-02", "2024-03-03"])
    asked = pd.DataFrame({"who": ["p3", "p1", "p3"], "hour": days})
    said = model.predict(frame, at=asked)
    assert said["who"].tolist() == ["p1", "p3", "p3"]
    assert said["hour"].tolist() == days[[1, 0, 2]].tolist()
    with pytest.raises(DataError, match="row 1: at asks for 'p99', which X does not have"):
        model.predict(frame, at=asked.assign(who="p99"))
    with pytest.raises(DataError, match="at has no column 'who'; give the columns of fit"):
        model.predict(frame, at=asked[["hour"]])
    with pytest.raises(DataError, match="has numbers; the model was trained on dates"):
        model.predict(frame, at=asked.assign(hour=1.0))


# Nothing


@both_libraries
def test_an_empty_frame_gives_an_empty_answer(wide, outcome, make):
    frame, nothing = make(wide.to_dict("list")), make(wide.to_dict("list"))[:0]
    model = Classifier.from_options(**TINY).fit(frame, label="kind", **WIDE)
    for said, shape in ((model.predict_proba(nothing), 2), (model.predict(nothing), None)):
        assert len(said) == 0
        assert shape is None or said.shape[1] == shape + (make is pl.DataFrame)
    states = model.embed(nothing)
    assert list(states.columns)[:3] == ["who", "hour", "state_0"]
    regressor = Regressor.from_options(**TINY).fit(frame, dict.fromkeys(outcome.index, 1.0), **WIDE)
    assert len(regressor.predict(nothing)) == 0
    said, std = Interpolator.from_options(**TINY).fit(frame, **WIDE).predict(nothing, at=[1.0], return_std=True)
    assert list(said.columns) == list(std.columns) == ["who", "hour", "pH", "pulse"]
    assert len(said) == len(std) == 0
    with pytest.raises(DataError, match="no column 'pulse'"):
        model.predict(nothing.drop(columns="pulse") if make is pd.DataFrame else nothing.drop("pulse"))
    with pytest.raises(DataError, match="X has no series"):
        model.evaluate(nothing)
    with pytest.raises(DataError, match="no rows"):
        Classifier.from_options(**TINY).fit(nothing, label="kind", **WIDE)


def test_no_series_give_no_answers(classifier, regressor, interpolator):
    assert classifier.predict_proba([]).shape == (0, 2)
    assert classifier.predict(np.zeros((0, 3, 2))).shape == (0,)
    assert regressor.predict([]).shape == (0,)
    assert interpolator.predict([]) == []


def test_forecasts_of_nothing_and_their_spread():
    frame = pd.DataFrame({"t": np.arange(40.0), "x": np.sin(np.arange(40.0))})
    model = Forecaster.from_options(**{**TINY, "horizon": 2}, law="gaussian").fit(frame, time="t")
    mean, std = model.predict(frame, return_std=True)
    assert (std["x"] > 0).all()
    assert mean["t"].tolist() == std["t"].tolist() == [40.0, 41.0]
    assert len(model.predict(frame[:0])) == 0


# Weights and calibration


def test_weights_change_the_training(X, y):
    model = Classifier.from_options(**TINY)
    plain = model.fit(X, y).predict_proba(X)
    same = Classifier.from_options(**TINY).fit(X, y, sample_weight=[2.0] * 12).predict_proba(X)
    np.testing.assert_allclose(same, plain, atol=2e-3)
    heavy = Classifier.from_options(**TINY).fit(X, y, sample_weight=[9.0 if one == "a" else 0.1 for one in y])
    assert heavy.predict_proba(X)[:, 0].mean() > plain[:, 0].mean() + 0.01
    for weights, message in (
        ([1.0] * 3, "3 weights for 12 series"),
        ([-1.0] * 12, "series 0 has the weight -1"),
        ([0.0] * 12, "all weights are zero"),
        (["x"] * 12, "no number"),
    ):
        with pytest.raises(DataError, match=message):
            model.fit(X, y, sample_weight=weights)


def test_a_run_does_not_resume_with_other_weights(X, y, tmp_path):
    model = Classifier.from_options(run_dir=tmp_path, **TINY).fit(X, y, sample_weight=range(12))
    with pytest.raises(DataError, match="it has other training data"):
        model.fit(X, y)


def test_calibration_on_new_series(X, y, wide, outcome):
    model = Classifier.from_options(**TINY).fit(wide, label="kind", **WIDE)
    before, likeliest = model.predict_proba(wide), model.predict(wide)
    truth = dict.fromkeys(outcome.index, "a")
    assert model.calibrate(wide, truth | {"p1": "b"}) is model
    after = model.predict_proba(wide)
    assert not np.allclose(before, after)
    pd.testing.assert_series_equal(model.predict(wide), likeliest)
    with pytest.raises(DataError, match="X has the class 'z', which was not there in training"):
        model.calibrate(wide, dict.fromkeys(outcome.index, "z"))
    values = Interpolator.from_options(**TINY).fit(X)
    std = values.predict(X, return_std=True)[1][0]
    far = [(times, 5 * values) for times, values in 30 * X]
    assert (values.calibrate(far).predict(X, return_std=True)[1][0] > std).all()
    with pytest.raises(DataError, match=r"there are \d+ values to calibrate on; give more series"):
        values.calibrate(X)
    with pytest.raises(ValueError, match="neither probabilities nor standard deviations"):
        Regressor.from_options(**TINY).fit(X, numbers(X)).calibrate(X, numbers(X))
