"""Named types and dates: every method of EventPredictor takes and gives what ``fit`` took."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from contiformer import EventPredictor, Interpolator, TrainingOptions
from contiformer.data import DataError

START = dt.datetime(2024, 3, 1)
QUICK = TrainingOptions(max_epochs=1, verbose=0)
COLUMNS = {"id": "user", "time": "when", "type": "action"}


def sequences(n=8, length=12, seed=0):
    """Numeric times in hours, and words."""
    draw = np.random.default_rng(seed)
    return [(np.cumsum(draw.exponential(size=length)), draw.choice(["buy", "sell"], length).tolist()) for _ in range(n)]


def dated(pairs):
    return [([START + dt.timedelta(hours=float(t)) for t in times], types) for times, types in pairs]


def framed(pairs):
    rows = [
        {"user": f"u{n}", "when": START + dt.timedelta(hours=float(t)), "action": kind}
        for n, (times, types) in enumerate(pairs)
        for t, kind in zip(times, types, strict=True)
    ]
    return pl.DataFrame(rows)


def fitted(X, **columns):
    return EventPredictor(backbone="rmtpp", d_model=8, training=QUICK).fit(X, **columns)


def test_lists_with_words_and_dates_give_what_frames_give():
    pairs = sequences()
    by_list, by_frame = fitted(dated(pairs)), fitted(framed(pairs), **COLUMNS)
    assert by_list.type_names_ == by_frame.type_names_ == ("buy", "sell")
    a, b = by_list.predict_next(dated(pairs)), by_frame.predict_next(framed(pairs))
    assert a["type"].to_list() == b["type"].to_list()
    assert a.schema["expected_time"] == b.schema["expected_time"] == pl.Datetime("us")
    np.testing.assert_allclose(a["probability"], b["probability"], rtol=1e-4)
    numbers = fitted(pairs).predict_next(pairs)
    hours = (a["median_time"] - START).dt.total_microseconds() / 3.6e9
    np.testing.assert_allclose(hours.to_numpy(), numbers["median_time"].to_numpy(), rtol=1e-4)


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_frames_in_frames_out(library):
    pairs = sequences()
    frame = framed(pairs)
    given = frame if library == "polars" else pd.DataFrame(frame.to_dict(as_series=False))
    model = fitted(given, **COLUMNS)
    one = given.filter(pl.col("user") == "u1") if library == "polars" else given[given.user == "u1"]
    last = max(one["when"])
    drawn = model.sample(one, until=last + dt.timedelta(hours=20), draws=3)
    assert type(drawn) is type(given)
    assert list(drawn.columns) == ["user", "draw", "when", "action"]
    assert set(drawn["user"]) == {"u1"}
    assert set(drawn["action"]) <= {"buy", "sell"}
    assert min(drawn["when"]) >= last
    assert max(drawn["when"]) <= last + dt.timedelta(hours=20)
    at = [last + dt.timedelta(hours=h) for h in (1, 2)]
    rates = model.intensity_at(one, at)
    assert type(rates) is type(given)
    assert list(rates.columns) == ["user", "when", "buy", "sell"]
    assert [pd.Timestamp(t) for t in rates["when"]] == [pd.Timestamp(t) for t in at]
    listed = model.intensity_at(dated([pairs[1]])[0], at)
    np.testing.assert_allclose(rates[["buy", "sell"]].to_numpy(), listed, rtol=1e-5)
    assert set(model.sample(given, n=1)["user"]) == set(given["user"])
    with pytest.raises(DataError, match="0 sequences where one is asked for"):
        model.sample(given[:0], n=1)


def test_lists_in_lists_out():
    pairs = sequences()
    model = fitted(pairs)
    times, types = model.sample(pairs[0], n=5)[0]
    assert times.dtype == np.float64
    assert set(types) <= {"buy", "sell"}
    days, _ = fitted(dated(pairs)).sample(dated(pairs)[0], n=5)[0]
    assert days.dtype.kind == "M"
    # what came out goes on
    assert model.predict_next([([*pairs[0][0], *times], [*pairs[0][1], *types])]).height == 1
    with pytest.raises(DataError, match="sequence 1: the type 'steal' was not there in training"):
        model.predict_next([pairs[0], ([0.0, 1.0], ["buy", "steal"])])
    with pytest.raises(DataError, match="is not a word, but others are"):
        fitted([([0.0, 1.0], ["buy", 1])] * 4)
    with pytest.raises(DataError, match="the times of X are dates; the model was trained on numbers"):
        model.predict_next(dated(pairs))
    with pytest.raises(DataError, match="times has dates; the model was trained on numbers"):
        model.intensity_at(pairs[0], [START])


@pytest.mark.parametrize("backbone", ["hp", "thp", "contiformer"])
def test_probability_of_an_event_within_a_time_and_of_all_types(backbone):
    pairs = sequences()
    model = EventPredictor(backbone=backbone, d_model=8, training=QUICK).fit(pairs)
    table = model.predict_next(pairs, within=1.5, probabilities=True)
    row = table.row(0, named=True)
    waits = np.linspace(1e-9, 1.5, 4001)
    rate = model.intensity_at(pairs[0], pairs[0][0][-1] + waits).sum(1)
    assert row["within"] == pytest.approx(1 - np.exp(-np.trapezoid(rate, waits)), rel=1e-3)
    assert row["probability_buy"] + row["probability_sell"] == pytest.approx(1)
    assert row["probability"] == max(row["probability_buy"], row["probability_sell"])
    half = model.predict_next(pairs[:1], within=row["median_time"] - row["last_time"])
    assert half["within"][0] == pytest.approx(0.5, abs=1e-3)
    stream = model.stream()
    for time, kind in zip(*pairs[0], strict=True):
        stream.append(time, kind)
    assert stream.predict_next(within=1.5)["within"] == pytest.approx(row["within"], rel=1e-4)
    with pytest.raises(ValueError, match="within must be a number in the unit of the times"):
        model.predict_next(pairs, within=dt.timedelta(hours=1))


def test_within_is_a_duration_where_times_are_dates():
    pairs = sequences()
    by_hour, by_date = fitted(pairs), fitted(dated(pairs))
    hour = by_date.predict_next(dated(pairs), within=dt.timedelta(hours=1.5))["within"]
    np.testing.assert_allclose(hour, by_hour.predict_next(pairs, within=1.5)["within"], rtol=1e-4)
    with pytest.raises(ValueError, match="within must be a duration"):
        by_date.predict_next(dated(pairs), within=1.5)


def test_one_long_sequence_is_divided_along_time():
    (one,) = sequences(n=1, length=700)
    model = fitted([one])
    assert model.metrics_["training_series"] == 3
    assert model.metrics_["validation_series"] == 1
    assert np.isfinite(model.score([one]))
    with pytest.raises(DataError, match="one sequence of 3 events cannot be divided"):
        fitted([(one[0][:3], one[1][:3])])


def test_one_long_series_trains_an_interpolator():
    times = np.sort(np.random.default_rng(0).uniform(0, 100, 600))
    X = [(times, np.sin(times)[:, None])]
    options = TrainingOptions(max_epochs=30, verbose=0)
    model = Interpolator(d_model=16, n_layers=1, training=options).fit(X)
    assert model.metrics_["training_series"] >= 2
    at = np.linspace(5, 95, 300)
    told = model.predict(X, at=at)[0][:, 0]
    assert float(np.sqrt(np.mean((told - np.sin(at)) ** 2))) < 0.2
    with pytest.raises(DataError, match="one series of 3 points cannot be divided"):
        Interpolator(training=QUICK).fit([([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])])


def zoned(frame, zone="Europe/Vienna"):
    return frame.with_columns(pl.col("when").dt.replace_time_zone("UTC").dt.convert_time_zone(zone))


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_times_with_a_zone_stay_in_it(library, tmp_path):
    frame = zoned(framed(sequences()))
    given = frame if library == "polars" else pd.DataFrame(frame.to_dict(as_series=False))
    fitted(given, **COLUMNS).save(tmp_path)
    model = EventPredictor.load(tmp_path)
    table = model.predict_next(given)
    expected = table["expected_time"]
    assert "Europe/Vienna" in str(expected.dtype)
    one = frame.filter(pl.col("user") == "u1")
    one = one if library == "polars" else pd.DataFrame(one.to_dict(as_series=False))
    last = max(one["when"])
    assert min(model.sample(one, n=2)["when"]) >= last
    assert model.intensity_at(one, [last + dt.timedelta(hours=1)])["when"][0] == last + dt.timedelta(hours=1)


def test_kinds_of_times_are_never_mixed_in_events():
    naive, there = framed(sequences()), zoned(framed(sequences()))
    model, model_there = fitted(naive, **COLUMNS), fitted(there, **COLUMNS)
    noon = START + dt.timedelta(days=30)
    one, one_there = (frame.filter(pl.col("user") == "u1") for frame in (naive, there))
    with pytest.raises(DataError, match="X are dates with a time zone; the model was trained on dates; give them no"):
        model.predict_next(there)
    with pytest.raises(DataError, match="X are dates; the model was trained on dates with a time zone; give them the"):
        model_there.log_likelihood(naive)
    for ask in (model_there.intensity_at, lambda one, at: model_there.sample(one, until=at[0])):
        with pytest.raises(DataError, match="has dates; the model was trained on dates with a time zone"):
            ask(one_there, [noon])
    with pytest.raises(DataError, match="times has dates with a time zone; the model was trained on dates"):
        model.intensity_at(one, pd.DatetimeIndex([noon], tz="UTC"))
    with pytest.raises(DataError, match="validation_data are dates with a time zone"):
        fitted(naive, **COLUMNS, validation_data=there)
    stream = model_there.stream()
    with pytest.raises(DataError, match="time has dates; the model was trained on dates with a time zone"):
        stream.append(noon, "buy")
    stream.append(noon.replace(tzinfo=dt.UTC), "buy")
    assert stream.predict_next(within=dt.timedelta(hours=1))["median_time"].tzinfo is dt.UTC


def test_durations_come_back_as_durations():
    pairs = [([dt.timedelta(hours=float(t)) for t in times], types) for times, types in sequences()]
    model = fitted(pairs)
    assert model.predict_next(pairs)["median_time"].dtype == pl.Duration("us")
    assert model.sample(pairs[0], n=2)[0][0].dtype.kind == "m"
    with pytest.raises(DataError, match="are numbers; the model was trained on durations"):
        model.predict_next(sequences())


def test_empty_frames_give_empty_answers():
    frame = framed(sequences())
    model = fitted(frame, **COLUMNS)
    table = model.predict_next(frame.clear(), within=dt.timedelta(hours=1), probabilities=True)
    assert table.columns == model.predict_next(frame, within=dt.timedelta(hours=1), probabilities=True).columns
    assert (
        table.height == model.predict_ahead(frame.clear(), 2).height == model.log_likelihood(frame.clear()).height == 0
    )
    with pytest.raises(DataError, match="X has no sequences"):
        model.evaluate(frame.clear())
    with pytest.raises(DataError, match="no column 'when'"):
        model.predict_next(frame.clear().drop("when"))
    with pytest.raises(DataError, match="there are no rows"):
        fitted(frame.clear(), **COLUMNS)


def test_dates_in_the_index_are_the_time_of_events():
    frame = pd.DataFrame(framed(sequences()).to_dict(as_series=False))
    by_column = fitted(frame, **COLUMNS).predict_next(frame)
    model = fitted(frame.set_index("when"), id="user", type="action")
    pd.testing.assert_frame_equal(model.predict_next(frame.set_index("when")), by_column)
