import json

import numpy as np
import pytest

from contiformer import EventPredictor, Forecaster, Interpolator, compare
from contiformer.data import DataError, EventSequence, EventSet, Series, SeriesSet
from tests.estimators.test_baselines import problem
from tests.estimators.test_blend import NUMBERS, SMALL
from tests.estimators.test_value_baselines import walks
from tests.tasks.events.test_renewal import ALTERNATING, drawn, gamma


def test_comparison_resumes_and_recommends(tmp_path):
    data = problem(80, classes=2)
    said = []
    found = compare(data, models=SMALL, folds=2, run_dir=tmp_path, progress=said.append)
    assert len(said) == 4
    assert found.metric == "auroc"
    best, other = found.rows
    assert best.behind == 0
    assert best.behind_low == best.behind_high == 0
    assert other.behind >= 0
    assert other.behind_low <= other.behind <= other.behind_high
    assert all(row.low <= row.metrics["auroc"] <= row.high for row in found.rows)
    assert found.recommendation().startswith("Use ")
    assert "folds" in str(found)
    cells = sorted((tmp_path / "cells").iterdir())
    before = [path.stat().st_mtime_ns for path in cells]
    cells[0].unlink()
    again = compare(data, models=SMALL, folds=2, run_dir=tmp_path)
    assert [path.stat().st_mtime_ns for path in cells[1:]] == before[1:]
    assert cells[0].is_file()
    assert {row.model: row.metrics for row in again.rows} == {row.model: row.metrics for row in found.rows}
    with pytest.raises(DataError, match="other data"):
        compare(problem(60, classes=2), models=SMALL, folds=2, run_dir=tmp_path)


def test_comparison_keeps_to_its_time_budget():
    found = compare(problem(60), models=SMALL, folds=2, time_budget=0.0)
    assert [row.folds for row in found.rows] == [1]
    assert len(found.left_out) == 1
    assert found.metric == "accuracy"


def test_comparison_of_regressors_and_its_picture(tmp_path):
    pytest.importorskip("matplotlib")
    data = problem(60)
    found = compare(list(data), [float(one.label) for one in data], task="regression", models=NUMBERS, folds=2)
    assert found.metric == "rmse"
    assert found.rows[0].metrics["rmse"] <= found.rows[1].metrics["rmse"]
    assert found.plot(tmp_path / "picture.png").stat().st_size > 1000
    assert json.loads(json.dumps(found.to_dict()))["recommendation"]


def test_comparison_refuses_unknown_metrics():
    with pytest.raises(ValueError, match="metric must be one of"):
        compare(problem(40), models=SMALL[:1], folds=2, metric="elegance")


def test_forecasts_of_many_series_are_judged_by_series(tmp_path):
    data = walks(24)
    models = {name: Forecaster(backbone=name, horizon=3, history=10) for name in ("last-value", "seasonal-naive")}
    found = compare(data, task="forecasting", models=models, folds=3, run_dir=tmp_path)
    assert [row.model for row in found.rows] == ["last-value", "seasonal-naive"]
    assert (found.metric, found.series, found.items, found.rows[1].folds) == ("rmse", 24, "series", 3)
    assert found.rows[1].behind_low > 0
    # by hand: the last value of each channel, three steps on, in standard deviations of the channel
    spread, squares = np.nanstd(np.concatenate([one.values for one in data]), 0), []
    step = float(np.median([np.median(np.diff(one.times)) for one in data]))
    for one in data:
        at = 2
        while at < len(one):
            ahead = (one.times > one.times[at - 1]) & (one.times <= one.times[at - 1] + 3 * step * (1 + 1e-6))
            if not ahead.any():
                at += 1
                continue
            for c in range(2):
                known = one.values[max(0, at - 10) : at, c]
                # never observed: the training mean, which differs from fold to fold
                if (~np.isnan(known)).any():
                    squares.append((one.values[ahead, c] - known[~np.isnan(known)][-1]) ** 2 / spread[c] ** 2)
            at = int(np.flatnonzero(ahead)[-1]) + 1
    assert found.rows[0].metrics["mse"] == pytest.approx(np.nanmean(np.concatenate(squares)), rel=0.02)
    again = compare(data, task="forecasting", models=models, folds=3, run_dir=tmp_path)
    assert again.rows == found.rows


def test_one_long_series_is_divided_along_time():
    wave = np.tile([0.0, 3.0, 1.0, -2.0, 5.0, 0.5, -4.0], 30)
    one = SeriesSet([Series.of(np.arange(210), wave[:, None] + np.random.default_rng(0).normal(0, 0.1, (210, 1)))])
    models = [Forecaster(backbone=name, horizon=5, history=20) for name in ("last-value", "seasonal-naive")]
    found = compare(one, task="forecasting", models=models, folds=3)
    assert found.items == "windows"
    # the second half, in windows of 5 steps
    assert found.series == 21
    assert "seasonal-naive" in found.recommendation()
    assert found.rows[0].metrics["rmse"] < 0.1
    seen = compare(one, task="interpolation", models=["last-value", "linear"], folds=2)
    assert (seen.items, seen.series, seen.metric) == ("stretches", 8, "rmse")


def test_interpolations_are_asked_for_the_same_hidden_observations():
    smooth = [(np.arange(30), np.sin(np.arange(30) / 5 + n)[:, None]) for n in range(12)]
    found = compare(smooth, task="interpolation", models=["last-value", "linear"], folds=2)
    assert [row.model for row in found.rows] == ["linear", "last-value"]
    assert found.rows[1].behind_low > 0
    assert found.rows[0].metrics["mae"] < found.rows[1].metrics["mae"]


def test_events_are_compared_by_their_likelihood(tmp_path):
    data = drawn(gamma, ALTERNATING)
    found = compare(data, task="events", models=["poisson", "renewal"], folds=2, run_dir=tmp_path)
    assert [row.model for row in found.rows] == ["renewal", "poisson"]
    assert (found.metric, found.items, found.series) == ("log_likelihood", "sequences", 40)
    halves = data.k_fold(2, seed=0)
    each = [EventPredictor(backbone="poisson").fit(rest).evaluate(fold) for rest, fold in halves]
    total = sum(one["log_likelihood"] * one["events"] for one in each) / sum(one["events"] for one in each)
    assert found.rows[1].metrics["log_likelihood"] == pytest.approx(total)
    errors = sum(one["rmse"] ** 2 * one["events"] for one in each) / sum(one["events"] for one in each)
    assert found.rows[1].metrics["rmse"] == pytest.approx(errors**0.5)
    single = compare(data[:1], task="events", models=["poisson"], folds=2)
    assert (single.items, single.series) == ("stretches", 8)
    other = EventSet([EventSequence.of(one.times + 1.0, one.types) for one in data], num_types=2)
    with pytest.raises(DataError, match="other data"):
        compare(other, task="events", models=["poisson"], folds=2, run_dir=tmp_path)


def test_forecasters_must_be_asked_the_same():
    models = [Forecaster(backbone="last-value", horizon=horizon) for horizon in (2, 3)]
    with pytest.raises(ValueError, match="same horizon"):
        compare(walks(10), task="forecasting", models=models)
    with pytest.raises(ValueError, match="task must be one of"):
        compare(walks(10), task="poetry")
    with pytest.raises(ValueError, match="Interpolators"):
        compare(walks(10), task="interpolation", models=models)
    assert Interpolator.task_name in str(compare(walks(12), task="interpolation", models=["linear"], folds=2))
