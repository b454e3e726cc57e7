"""Forecasts at any future times, with quantiles, from regular and irregular series."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from contiformer import Forecaster, TrainingOptions
from contiformer.data import DataError, Series, SeriesSet
from contiformer.data.windows import cut_windows

TINY = {"d_model": 8, "window": 1, "max_epochs": 2, "min_steps": 0, "verbose": 0, "horizon": 4, "history": 8}


def waves(n: int, seed: int = 0, irregular: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        times = np.sort(draw.uniform(0, 40, 40)) if irregular else np.arange(40.0)
        made.append((times, np.stack([np.sin(times / 3), np.cos(times / 4)], axis=1)))
    return made


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster.from_options(**TINY).fit(waves(2))


def test_predict_without_at_forecasts_the_next_steps(fitted):
    said = fitted.predict(waves(2))
    assert [one.shape for one in said] == [(4, 2), (4, 2)]
    same = fitted.predict(waves(2), at=[40.0, 41.0, 42.0, 43.0])
    np.testing.assert_allclose(said[0], same[0], rtol=1e-5, atol=1e-6)


def test_forecaster_learns_a_wave():
    """Better than the last value held, on a continuation that was not seen."""
    times = np.arange(240.0)
    values = np.sin(times / 3)[:, None]
    model = Forecaster(
        horizon=6,
        history=24,
        d_model=8,
        window=1,
        training=TrainingOptions(max_epochs=8, min_steps=0, verbose=0),
        law="point",
    )
    model.fit([(times[:200], values[:200])])
    windows = cut_windows(SeriesSet([Series.of(times[170:], values[170:])]), 24, 6.01, least=24)
    windows = windows.select(np.flatnonzero([w.target_times[0] >= 200 for w in windows]))
    said = [one.values for one in model.predict(windows, at=[w.target_times for w in windows])]
    miss = np.concatenate([(a - w.target_values).ravel() for a, w in zip(said, windows, strict=True)])
    held = np.concatenate([(w.values[-1] - w.target_values).ravel() for w in windows])
    assert (miss**2).mean() < 0.3 * (held**2).mean()


def test_quantiles_never_cross_and_are_named(fitted):
    frame = pl.DataFrame({"t": np.arange(40.0), "a": np.sin(np.arange(40.0)), "b": np.ones(40)})
    model = Forecaster.from_options(**TINY).fit(frame, time="t", values=["a", "b"])
    said = model.predict(frame, quantiles=[0.1, 0.4, 0.9])
    assert said.columns == ["t", "a_q0.1", "a_q0.4", "a_q0.9", "b_q0.1", "b_q0.4", "b_q0.9"]
    assert (said["a_q0.1"] < said["a_q0.4"]).all()
    assert (said["a_q0.4"] < said["a_q0.9"]).all()
    only = model.predict(frame, channels=["b"])
    assert only.columns == ["t", "b"]
    with pytest.raises(DataError, match=r"model knows 0\.05 to 0\.95"):
        model.predict(frame, quantiles=[0.01])
    with pytest.raises(DataError, match="no channel 'c'"):
        model.predict(frame, channels=["c"])


def test_dates_in_the_input_give_dates_in_the_output():
    dates = pd.date_range("2024-01-01", periods=40, freq="D")
    frame = pd.DataFrame({"day": dates, "x": np.sin(np.arange(40.0))})
    said = Forecaster.from_options(**TINY).fit(frame, time="day").predict(frame)
    assert list(said["day"]) == list(pd.date_range("2024-02-10", periods=4, freq="D"))


def test_irregular_series_with_missing_values():
    series = waves(12, irregular=True)
    for _, values in series:
        values[::3, 0] = np.nan
    model = Forecaster.from_options(**TINY, law="gaussian").fit(series)
    said = model.predict(series[:2], at=[[40.5, 41.25], [40.1]], quantiles=[0.5])
    assert said[0].shape == (2, 2)
    assert said[1].shape == (1, 2)
    assert np.isfinite(np.concatenate(said)).all()


def test_forecast_depends_on_the_history_window_only(fitted):
    long = waves(1)[0]
    short = (long[0][-8:], long[1][-8:])
    np.testing.assert_allclose(fitted.predict([long])[0], fitted.predict([short])[0], rtol=1e-5, atol=1e-6)


def test_a_shift_of_values_shifts_the_forecast():
    """What instance normalisation is for: a window at another level is forecast at that level."""
    model = Forecaster.from_options(**TINY).fit(waves(2))
    times, values = waves(1)[0]
    moved = model.predict([(times, values + 3.0)])[0]
    np.testing.assert_allclose(moved, model.predict([(times, values)])[0] + 3.0, rtol=1e-4, atol=1e-4)


def test_past_and_far_times_are_refused(fitted):
    with pytest.raises(DataError, match="known until 39"):
        fitted.predict(waves(1), at=[39.0])
    with pytest.warns(UserWarning, match=r"at reaches 1\.5 times as far as the horizon of 4 steps"):
        fitted.predict(waves(1), at=[45.0])
    with pytest.raises(DataError, match=r"at asks series 0 for 5\.25 times the horizon of 4 steps; .* larger horizon"):
        fitted.predict(waves(1), at=[60.0])


def test_invalid_training_data_and_options_are_refused():
    with pytest.raises(DataError, match=r"lasts 9 steps of 1, fewer than the 10 of two windows, .* of 4 steps; give"):
        Forecaster.from_options(**TINY).fit([(np.arange(10.0), np.arange(10.0))])
    with pytest.raises(DataError, match=r"lasts 4 steps of 1, fewer than the 5 of a window of 4 steps"):
        Forecaster.from_options(**TINY).fit([(np.arange(5.0), np.arange(5.0))] * 12)
    with pytest.raises(DataError, match="two points"):
        Forecaster.from_options(**TINY).fit([([1.0], [2.0]), ([1.0], [2.0])])
    with pytest.raises(ValueError, match="horizon"):
        Forecaster.from_options(**{**TINY, "horizon": 0}).fit(waves(1))
    with pytest.raises(ValueError, match="quantiles must increase"):
        Forecaster.from_options(**TINY, quantiles=(0.9, 0.1)).fit(waves(1))


def test_ready_made_windows_are_not_cut_again():
    windows = cut_windows(SeriesSet([Series.of(t, v) for t, v in waves(3)]), 8, 4.01)
    model = Forecaster.from_options(**TINY).fit(windows, validation_data=windows[:20])
    assert model.evaluate(windows[:20])["mse"] == pytest.approx(model.metrics_["validation"]["mse"], rel=1e-5)


def test_saved_forecaster_gives_the_same_answers(fitted, tmp_path):
    fitted.save(tmp_path / "run")
    again = Forecaster.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(waves(1))[0], fitted.predict(waves(1))[0])


def noisy(seed, scale=1.0):
    draw = np.random.default_rng(seed)
    return [(np.arange(60.0), scale * draw.normal(size=(60, 1)))]


def test_resuming_with_other_values_is_refused(tmp_path):
    options = {**TINY, "run_dir": tmp_path}
    Forecaster.from_options(**options).fit(noisy(0))
    with pytest.raises(DataError, match="training data"):
        Forecaster.from_options(**options).fit(noisy(1, 100.0))


def test_scaling_ignores_the_validation_part():
    times = np.arange(100.0)
    values = np.where(times < 80, np.sin(times), 1000.0)
    model = Forecaster.from_options(**TINY, validation=0.2).fit([(times, values)])
    assert abs(model.scaling_.mean[0]) < 1


def test_forecasts_keep_the_time_zone():
    stamps = pd.date_range("2024-01-01", periods=40, freq="h", tz="America/New_York")
    frame = pd.DataFrame({"t": stamps, "x": np.sin(np.arange(40.0))})
    said = Forecaster.from_options(**{**TINY, "horizon": 2}).fit(frame, time="t").predict(frame)
    assert list(said["t"]) == list(pd.date_range(stamps[-1] + pd.Timedelta("1h"), periods=2, freq="h"))


def test_embedding_of_whole_series_is_refused():
    model = Forecaster.from_options(**TINY).fit(noisy(0))
    with pytest.raises(ValueError, match="no states of whole series"):
        model.embed(noisy(0))
