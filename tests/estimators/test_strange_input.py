"""Input as newcomers give it, and as nobody should: answered rightly, or refused by a message of our own."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from contiformer import Interpolator, TrainingOptions
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
