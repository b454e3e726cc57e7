"""Baselines of values at times: closed forms, and the contract of the estimators, for every entry of BASELINES."""

import math

import numpy as np
import polars as pl
import pytest

from contiformer import Classifier, Forecaster, Interpolator
from contiformer.data import DataError, Series, SeriesSet
from contiformer.tasks.baselines import BASELINES

CASES = [
    (kind, name)
    for name, baseline in BASELINES.items()
    for kind in (Forecaster, Interpolator)
    if kind.task_name in baseline.tasks
]
each = pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind.__name__}-{name}" for kind, name in CASES])
NAN = math.nan


def walks(count=30, length=60, seed=0):
    """Random walks of two channels at irregular times, with gaps, around 50."""
    rng = np.random.default_rng(seed)
    series = []
    for n in range(count):
        values = 50 + np.cumsum(rng.normal(size=(length, 2)), 0)
        values[rng.random(values.shape) < 0.2] = NAN
        series.append(Series.of(np.cumsum(rng.uniform(0.5, 1.5, length)), values, id=n))
    return SeriesSet(series, channels=("a", "b"))


def fitted(kind, name, data, **more):
    ahead = {"horizon": 4, "history": 20} if kind is Forecaster else {}
    return kind(backbone=name, **ahead, **more).fit(data)


@each
def test_baseline_is_calibrated_saved_and_answers_at_any_time(kind, name, tmp_path):
    data, new = walks(), walks(seed=1)
    model = fitted(kind, name, data)
    found = model.evaluate(new)
    assert np.isfinite(list(found.values())).all()
    at = [one.times[-1] + np.array([0.3, 2.0, 3.3]) for one in new]
    if kind is Interpolator:
        assert 0.85 < found["coverage90"] < 0.95
        at = [np.append([one.times[0] - 1.0, one.times[3], one.times[4] + 0.1], later) for one, later in zip(new, at)]
        assert model.predict(new, at=at, return_std=True)[1][0].values.min() > 0
    levels = np.concatenate([one.values for one in model.predict(new, at=at, quantiles=[0.1, 0.9])])
    assert (levels[:, ::2] <= levels[:, 1::2]).all()
    model.save(tmp_path)
    again = kind.load(tmp_path)
    assert again.evaluate(new) == found
    together = model.predict(new, at=at)
    for n, one in enumerate(again.predict(new, at=at)):
        np.testing.assert_array_equal(one.values, together[n].values)
    alone = model.predict(new[3:4], at=at[3:4])
    np.testing.assert_allclose(alone[0].values, together[3].values, rtol=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.safetensors",
        "config.json",
        "metrics.json",
        "README.md",
    }


@each
def test_channels_without_observations_are_at_their_mean(kind, name):
    model = fitted(kind, name, walks())
    short = SeriesSet([Series.of([1.0], [[55.0, NAN]])], channels=("a", "b"))
    values = model.predict(short, at=[2.0])[0].values
    np.testing.assert_allclose(values, [[55.0, model.scaling_.mean[1]]], rtol=1e-5)


@each
def test_frames_come_back_as_frames(kind, name):
    rows = [(one.id, t, *v) for one in walks(12) for t, v in zip(one.times, one.values, strict=True)]
    frame = pl.DataFrame(rows, schema=["who", "when", "a", "b"], orient="row")
    ahead = {"horizon": 2} if kind is Forecaster else {}
    model = kind(backbone=name, **ahead).fit(frame, id="who", time="when")
    assert model.predict(frame).columns == ["who", "when", "a", "b"]


def test_last_values_and_straight_lines_by_hand():
    one = SeriesSet([Series.of([0.0, 1.0, 3.0, 4.0], [[10.0], [12.0], [NAN], [18.0]])], channels=("x",))
    data = SeriesSet([Series.of(s.times, s.values[:, :1]) for s in walks()], channels=("x",))
    last, lines = (Interpolator(backbone=name, law="point").fit(data) for name in ("last-value", "linear"))
    at = [-1.0, 0.0, 0.5, 2.5, 4.0, 6.0]
    np.testing.assert_allclose(last.predict(one, at=at)[0].values[:, 0], [10, 10, 10, 12, 18, 18], rtol=1e-5)
    # from (0, 10) to (4, 18) it rises by 2 in a unit of time
    np.testing.assert_allclose(lines.predict(one, at=at)[0].values[:, 0], [8, 10, 11, 15, 18, 22], rtol=1e-5)


def test_seasonal_naive_finds_the_period_and_repeats_it():
    rng = np.random.default_rng(0)
    wave = np.tile([0.0, 3.0, 1.0, -2.0, 5.0, 0.5, -4.0], 60)
    data = [(np.arange(420), (wave + 0.1 * rng.normal(size=420))[:, None])]
    model = Forecaster(backbone="seasonal-naive", horizon=10, history=30).fit(data)
    assert float(model.tasks_[0].period) * model.scaling_.unit == pytest.approx(7.0)
    values = model.predict(data)[0][:, 0]
    np.testing.assert_allclose(values[:7], data[0][1][-7:, 0], atol=1e-5)
    np.testing.assert_allclose(values[7:], data[0][1][-7:-4, 0], atol=1e-5)
    plain = Forecaster(backbone="last-value", horizon=10, history=30).fit(data)
    assert model.evaluate(data)["mse"] < 0.05 < plain.evaluate(data)["mse"]
    given = Forecaster(backbone="seasonal-naive", backbone_options={"period": 14.0}, horizon=10, history=30).fit(data)
    np.testing.assert_allclose(given.predict(data)[0][:, 0], data[0][1][-14:-4, 0], atol=1e-5)


def test_quantiles_of_a_random_walk_widen_with_the_lead():
    rng = np.random.default_rng(0)
    data = [(np.arange(400), np.cumsum(rng.normal(size=(400, 1)), 0)) for _ in range(12)]
    model = Forecaster(backbone="last-value", horizon=16, history=20).fit(data)
    low, high = (np.array(model.predict(data[:1], quantiles=[level])[0])[:, 0] for level in (0.1, 0.9))
    # of a normal law of variance s after s steps the 80 % interval is 2.563 √s wide
    steps = np.arange(1, 17)
    assert np.abs((high - low) / (2.563 * np.sqrt(steps)) - 1).max() < 0.35
    assert np.abs((high - low) / (2.563 * np.sqrt(steps)) - 1).mean() < 0.12


def test_what_a_baseline_of_values_cannot_do_is_refused():
    with pytest.raises(ValueError, match="baseline of forecasting and interpolation"):
        Classifier(backbone="last-value").fit([([0.0, 1.0], [[n], [-n]]) for n in range(8)], [0, 1] * 4)
    with pytest.raises(ValueError, match="baseline of forecasting"):
        Interpolator(backbone="seasonal-naive").fit(walks())
    with pytest.raises(ValueError, match="does not fit the baseline"):
        Interpolator(backbone="linear", backbone_options={"n_heads": 2}).fit(walks())
    with pytest.raises(ValueError, match="period must be positive"):
        Forecaster(backbone="seasonal-naive", backbone_options={"period": -1.0}, horizon=2).fit(walks())
    model = fitted(Forecaster, "linear", walks())
    with pytest.raises(DataError, match="times the horizon"):
        model.predict(walks(2), at=[1e4])
    with pytest.raises(ValueError, match="no graph"):
        model.export("model.onnx")


@each
def test_occlusion_explains_a_baseline(kind, name):
    model = fitted(kind, name, walks())
    some = walks(2, length=12, seed=4)
    at = {} if kind is Forecaster else {"at": [3.0, 3.0]}
    table = model.explain(some, target="a", **at).table()
    assert np.isfinite(table["attribution"].to_numpy()).all()
