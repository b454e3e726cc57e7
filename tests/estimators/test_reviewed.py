"""What a review found, each with its test."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from contiformer import Classifier, Forecaster, Interpolator, Regressor
from contiformer.data import DataError, Series, SeriesSet, collate
from contiformer.tasks import InputOptions, Inputs
from contiformer.tasks.interpolation import hide_observations

TINY = {"d_model": 8, "window": 1, "max_epochs": 1, "min_steps": 1, "verbose": 0}


def noisy(seed, scale=1.0):
    draw = np.random.default_rng(seed)
    return [(np.arange(60.0), scale * draw.normal(size=(60, 1)))]


def test_windows_of_other_values_are_other_data(tmp_path):
    options = {**TINY, "horizon": 3, "history": 8, "run_dir": tmp_path}
    Forecaster(**options).fit(noisy(0))
    with pytest.raises(DataError, match="training data"):
        Forecaster(**options).fit(noisy(1, 100.0))


def test_few_series_do_not_make_probabilities_certain():
    draw = np.random.default_rng(0)
    X = [(np.arange(5.0), draw.normal(size=(5, 1)) + 3 * (n % 2)) for n in range(30)]
    y = [n % 2 for n in range(30)]
    classifier = Classifier(**{**TINY, "max_epochs": 25}).fit(X, y)
    assert classifier.metrics_["validation"]["accuracy"] == 1
    assert float(classifier.tasks_[0].temperature) > 0.3


def test_nothing_judged_is_no_perfect_score():
    model = Interpolator(**TINY).fit([(np.arange(6.0), np.arange(6.0)) for _ in range(6)])
    assert np.isnan(model.evaluate([([0.0], [1.0])])["mse"])


def test_something_is_hidden_wherever_it_can_be():
    data = SeriesSet([Series.of(range(2), range(2)) for _ in range(50)])
    for one in hide_observations(data, 0.01, 0):
        assert len(one.target_times) >= 1


def test_scaling_does_not_see_what_is_held_out():
    times = np.arange(100.0)
    values = np.where(times < 80, np.sin(times), 1000.0)
    model = Forecaster(**TINY, horizon=3, history=8, validation=0.2).fit([(times, values)])
    assert abs(model.scaling_.mean[0]) < 1


def test_labels_with_an_index_go_by_the_ids():
    ids = list("fedcba")
    frame = pd.DataFrame({"id": np.repeat(ids, 4), "t": list(range(4)) * 6, "x": np.repeat(np.arange(6.0), 4)})
    y = pd.Series({name: float(ids.index(name)) for name in sorted(ids)})
    model = Regressor(**TINY, validation=0.5)
    model.fit(frame, y, id="id", time="t")
    truth = model._truth(frame, y)
    assert truth.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(DataError, match="no label for 'a'"):
        model.fit(frame, y.drop("a"), id="id", time="t")
    # lists have no ids: a shuffled index is an order
    assert Regressor(**TINY, validation=0.5).fit(noisy(0) * 4, pd.Series([1.0, 2.0, 3.0, 4.0], index=[7, 1, 0, 3]))


def test_forecasts_keep_the_time_zone():
    stamps = pd.date_range("2024-01-01", periods=40, freq="h", tz="America/New_York")
    frame = pd.DataFrame({"t": stamps, "x": np.sin(np.arange(40.0))})
    said = Forecaster(**TINY, horizon=2, history=8).fit(frame, time="t").predict(frame)
    assert list(said["t"]) == list(pd.date_range(stamps[-1] + pd.Timedelta("1h"), periods=2, freq="h"))


def test_forecasters_say_that_they_have_no_states_of_series():
    model = Forecaster(**TINY, horizon=2, history=8).fit(noisy(0))
    with pytest.raises(ValueError, match="no states of whole series"):
        model.embed(noisy(0))


def test_every_parameter_of_the_view_does_something():
    X = [(np.arange(20.0), np.random.default_rng(n).normal(size=(20, 1))) for n in range(8)]
    weights = []
    for given in ({}, {"keep_points": 0.3}, {"most_points": 3}, {"noise": 1.0}):
        model = Interpolator(**{**TINY, "min_steps": 4}, **given).fit(X)
        weights.append(model.tasks_[0].head.from_state.weight.detach())
    assert all(not torch.equal(weights[0], other) for other in weights[1:])


@pytest.mark.parametrize("kind", [Interpolator, Forecaster])
@pytest.mark.parametrize("scaling", ["normal scores", "auto"])
def test_ranks_are_refused_where_values_are_the_answer(kind, scaling):
    with pytest.raises(ValueError, match=r"scaling must be (one of )?'standard'"):
        kind(**TINY, scaling=scaling).fit(noisy(0) * 4)


def test_sample_weights_count_in_the_score():
    X = noisy(0) + noisy(1) + noisy(2) + noisy(3)
    model = Regressor(**TINY, validation=0.5).fit(X, [1.0, 2.0, 3.0, 4.0])
    assert model.score(X, [1.0, 2.0, 3.0, 9.0]) != model.score(X, [1.0, 2.0, 3.0, 9.0], [1.0, 1.0, 1.0, 9.0])


def test_marks_of_causal_inputs_do_not_look_ahead():
    inputs = Inputs(InputOptions(channels=2, window=2, spacing=1.0, causal=True))
    one = Series.of([0.0, 1.0, 2.0], [[1.0, np.nan], [1.0, np.nan], [1.0, np.nan]])
    other = replace(one, values=np.array([[1.0, np.nan], [1.0, np.nan], [1.0, 7.0]]))
    first, second = (inputs(collate([series])) for series in (one, other))
    assert torch.equal(first.observed[:, :2], second.observed[:, :2])
    assert torch.equal(first.values[:, :2], second.values[:, :2])
