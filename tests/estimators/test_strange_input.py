"""Input as newcomers give it, and as nobody should: answered rightly, or refused by a message of our own."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from contiformer import EventPredictor, Interpolator, TrainingOptions
from contiformer.data import DataError, as_times

QUICK = TrainingOptions(max_epochs=1, verbose=0)


@pytest.fixture(scope="module")
def dated():
    draw = np.random.default_rng(0)
    start = pd.Timestamp("2024-01-01")
    rows = [(f"s{n}", start + pd.Timedelta(hours=h), draw.normal()) for n in range(6) for h in range(5)]
    return pd.DataFrame(rows, columns=["id", "t", "x"])


@pytest.fixture(scope="module")
def of_dates(dated):
    return Interpolator(d_model=8, training=QUICK).fit(dated, id="id", time="t")


@pytest.fixture(scope="module")
def numbered(dated):
    return dated.assign(t=(dated.t - dated.t.min()).dt.total_seconds() / 3600)


@pytest.fixture(scope="module")
def of_numbers(numbered):
    return Interpolator(d_model=8, training=QUICK).fit(numbered, id="id", time="t")


@pytest.mark.parametrize("at", [pd.Timestamp("2024-01-01 02:30"), dt.datetime(2024, 1, 1, 2, 30), "2024-01-01 02:30"])
def test_one_time_is_a_list_of_one(of_dates, dated, at):
    said = of_dates.predict(dated, at=at)
    assert said.equals(of_dates.predict(dated, at=[at]))
    assert said.equals(of_dates.predict(dated, at=dict.fromkeys(dated.id, at)))


def test_one_number_is_a_list_of_one(of_numbers, numbered):
    said = of_numbers.predict(numbered, at=12.0)
    assert said.t.tolist() == [12.0] * 6
    # not its digits
    for same in ("12", dict.fromkeys(numbered.id, "12"), dict.fromkeys(numbered.id, 12)):
        assert said.equals(of_numbers.predict(numbered, at=same))


def test_missing_dates_are_named():
    with pytest.raises(DataError, match=r"times: NaT \(position 1\) is not a finite time"):
        as_times([pd.Timestamp("2024-01-01"), pd.NaT])
    with pytest.raises(DataError, match=r"NaT \(position 0\)"):
        as_times([pd.NaT])


def test_run_dir_is_a_path(numbered):
    with pytest.raises(ValueError, match="run_dir must be a word or a Path or None, got 5"):
        Interpolator(run_dir=5, training=QUICK).fit(numbered, id="id", time="t")


@pytest.fixture(scope="module")
def events():
    draw = np.random.default_rng(0)
    rows = [(n, float(t), int(draw.integers(3))) for n in range(8) for t in np.cumsum(draw.exponential(1, 10))]
    return pd.DataFrame(rows, columns=["who", "t", "kind"])


@pytest.fixture(scope="module")
def predictor(events):
    return EventPredictor(d_model=8, training=QUICK).fit(events, id="who", time="t", type="kind")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_every_sequence_of_a_table_is_answered(predictor, events, library):
    table = events if library == "pandas" else pl.from_pandas(events)
    drawn = predictor.sample(table, n=3, draws=2)
    assert list(drawn.columns) == ["who", "draw", "t", "kind"]
    assert drawn["who"].to_list() == [n for n in range(8) for _ in range(6)]
    first = events[events.who == 0]
    alone = predictor.sample(first, n=3, draws=2)
    assert drawn["t"].to_list()[:6] == alone.t.tolist()
    rates = predictor.intensity_at(table, [50.0, 60.0])
    assert list(rates.columns) == ["who", "t", "0", "1", "2"]
    assert rates["who"].to_list() == [n for n in range(8) for _ in range(2)]
    assert rates["1"].to_list()[:2] == predictor.intensity_at(first, [50.0, 60.0])["1"].tolist()
    assert len(predictor.sample(table, until=table["t"].max())) < len(table)


@pytest.mark.parametrize("change", [int, bool, str])
def test_types_come_back_as_they_came(events, change):
    table = events.assign(kind=(events.kind % 2).map(change))
    model = EventPredictor(backbone="rmtpp", d_model=8, training=QUICK).fit(table, id="who", time="t", type="kind")
    for said in (model.predict_next(table)["type"], model.predict_ahead(table, 2, draws=3)["type"]):
        assert {type(one) for one in said.tolist()} == {change}
    drawn = model.sample(table, n=2).kind
    assert drawn.dtype == table.kind.dtype
    assert set(drawn) <= set(table.kind)
    assert len(model.log_likelihood(pd.concat([table, table.assign(t=table.t + 100)]))) == 8


@pytest.mark.parametrize("days", [pl.Date, pl.Datetime("ms")])
def test_days_may_be_ids(numbered, days):
    """A series for each day."""
    day = pl.Series([dt.date(2024, 1, 1 + int(name[1:])) for name in numbered.id]).cast(days)
    table = pl.from_pandas(numbered).with_columns(day.alias("id"))
    model = Interpolator(d_model=8, training=QUICK).fit(table, id="id", time="t")
    for frame in (table, table.lazy()):
        said = model.predict(frame, at=[1.5])
        assert said["id"].equals(table["id"].unique().sort())
    assert model.predict(table.to_pandas(), at=[1.5])["id"].tolist() == table["id"].unique().sort().to_pandas().tolist()
