"""Attributions by occlusion and integrated gradients: closed forms, completeness, tables, pictures and limits."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

from contiformer import Classifier, EventPredictor, Forecaster, Interpolator, Regressor
from contiformer.backbones import BACKBONES, Capabilities
from contiformer.data import Schema, Series, SeriesSet
from contiformer.data.synthetic import hawkes_set
from contiformer.estimators.explain import one_of, parts_of
from tests.estimators.problems import TINY, long_table, numbers

OTHER = ("total", "whole", "rank")


class Linear(nn.Module):
    """``Σ w_c x_c(t_i) (1 + i)`` over what is observed, in scaled values."""

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))
        self.device = torch.device("cpu")

    def values(self, batch):
        place = torch.arange(1, batch.times.shape[1] + 1).float()[:, None]
        return (batch.values * batch.observed * self.weights * place).sum((1, 2)).double()


@pytest.fixture
def linear(X, regressor):
    model = Regressor.from_options(**TINY)
    for name in ("config_", "columns_", "schema_", "scaling_", "metrics_", "outcomes_"):
        setattr(model, name, getattr(regressor, name))
    model.tasks_ = [Linear([1.0, -3.0])]
    return model


def scaled(model, X):
    data = model._read(X)[1]
    return [one.values * [1.0, -3.0] * np.arange(1, len(one) + 1)[:, None] for one in data]


@pytest.mark.parametrize("method", ["occlusion", "gradients"])
def test_attributions_of_a_linear_answer_are_exact(X, linear, method):
    told = linear.explain(X, method)
    for found, exact in zip(told.attributions, scaled(linear, X), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(told.channel_attributions[0], np.nansum(scaled(linear, X)[0], 0), rtol=1e-5)
    np.testing.assert_allclose(told.answers, [np.nansum(one) for one in scaled(linear, X)], rtol=1e-5)
    np.testing.assert_allclose(told.references, 0, atol=1e-6)
    assert told.unit == "predicted prediction"


def test_backbone_without_missing_values_sees_the_line_between_neighbours(linear):
    linear._capabilities = lambda: Capabilities(missing=False)
    linear.scaling_ = replace(linear.scaling_, scores=())
    X = [([0.0, 1.0, 3.0], [[1.0, 2.0], [5.0, 2.0], [4.0, 8.0]])]
    told = linear.explain(X)
    std = np.array(linear.scaling_.std)
    # the second value of channel 0 is 5; on the line it were 2
    np.testing.assert_allclose(told.attributions[0][1, 0], 2 * (5 - 2) / std[0], rtol=1e-5)
    np.testing.assert_allclose(told.attributions[0][2, 1], -9 * (8 - 2) / std[1], rtol=1e-5)


def test_hide_a_time_or_a_channel(X, linear):
    exact = scaled(linear, X)
    by_time = linear.explain(X, hide="time")
    assert [one.shape for one in by_time.attributions] == [(len(times), 1) for times, _ in X]
    np.testing.assert_allclose(by_time.attributions[0][:, 0], np.nansum(exact[0], 1), rtol=1e-4, atol=1e-5)
    assert by_time.table().columns == ["id", "time", "attribution", "rank"]
    with pytest.raises(ValueError, match="belong to times"):
        by_time.channels()
    whole = linear.explain(X, hide="channel")
    np.testing.assert_allclose(whole.channel_attributions[1], np.nansum(exact[1], 0), rtol=1e-4)
    np.testing.assert_allclose(np.nansum(whole.attributions[1], 0), np.nansum(exact[1], 0), rtol=1e-4)
    assert whole.evaluations == sum(2 + 2 + int((~np.isnan(v)).any(0).sum()) for _, v in X)


@pytest.mark.parametrize("hide", ["observation", "time"])
@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_parts_are_windows_of_consecutive_observations(hide, most):
    observed = np.random.default_rng(0).random((40, 3)) < 0.6
    part, size = parts_of(observed, hide, most)
    assert ((part >= 0) == observed).all()
    count = part.max() + 1
    assert count <= max(most, 3 if hide == "observation" else 1)
    assert set(part[observed]) == set(range(count))
    if hide == "observation":
        for column, seen in zip(part.T, observed.T, strict=True):
            assert (np.diff(column[seen]) >= 0).all()
            assert np.bincount(column[seen]).max() <= size
    if most == 100:
        assert size == 1


def test_long_series_is_hidden_in_windows_and_says_so(X, linear):
    times = np.arange(50.0)
    long = [(times, np.stack([np.sin(times), np.cos(times)], 1))]
    fine, coarse = linear.explain(long), linear.explain(long, most_parts=10)
    assert fine.evaluations == 104
    assert coarse.evaluations <= 14
    assert fine.notes == ()
    assert "windows of up to 10 consecutive observations of a channel" in coarse.notes[0]
    np.testing.assert_allclose(coarse.attributions[0].sum(0), fine.attributions[0].sum(0), rtol=1e-4)
    for start in range(0, 50, 10):
        window = slice(start, start + 10)
        mean = fine.attributions[0][window].mean(0)
        np.testing.assert_allclose(coarse.attributions[0][window], np.broadcast_to(mean, (10, 2)), rtol=1e-3, atol=1e-4)


def log_odds(model, X, name):
    share = model.predict_proba(X)[:, model.classes_.tolist().index(name)]
    return np.log(share) - np.log1p(-share)


@pytest.mark.parametrize("members", [1, 2])
def test_occlusion_is_the_change_that_a_missing_value_makes(X, y, members, classifier):
    model = classifier if members == 1 else Classifier.from_options(**TINY, members=2).fit(X, y)
    told = model.explain(X[:3], target="b")
    np.testing.assert_allclose(told.answers, log_odds(model, X[:3], "b"), rtol=1e-4, atol=1e-6)
    for row, channel in ((0, 1), (2, 0)):
        times, values = X[2]
        lacking = values.copy()
        lacking[row, channel] = np.nan
        change = told.answers[2] - log_odds(model, [(times, lacking)], "b")[0]
        np.testing.assert_allclose(told.attributions[2][row, channel], change, rtol=1e-3, atol=1e-5)
    # without a target each series is explained by its own class
    own = model.explain(X[:3])
    assert own.targets == model.predict(X[:3]).tolist()
    assert (own.answers > 0).all()
    np.testing.assert_array_equal(own.attributions[0], model.explain(X[:3]).attributions[0])


@pytest.mark.parametrize("kind", ["classifier", "regressor", "interpolator"])
def test_integrated_gradients_are_complete(request, X, kind):
    model = request.getfixturevalue(kind)
    how = {"at": 3.0, "target": "channel_1"} if kind == "interpolator" else {}
    told = model.explain(X, "gradients", **how)
    sums = np.array([np.nansum(one) for one in told.attributions])
    np.testing.assert_allclose(sums, told.answers - told.references, atol=1e-3)
    assert told.notes == ()
    # the baseline is the training mean, at the same times
    mean = np.array(model.scaling_.mean) if not model.scaling_.scores else None
    if kind == "interpolator" and mean is not None:
        flat = [(times, np.where(np.isnan(values), np.nan, mean)) for times, values in X]
        expected = [one[0, 1] for one in model.predict(flat, at=[3.0])]
        np.testing.assert_allclose(told.references, expected, rtol=1e-4, atol=1e-5)


def backbone_cases():
    return sorted(BACKBONES)


@pytest.mark.parametrize("name", backbone_cases())
def test_every_backbone_is_explained(name):
    grid = np.arange(24.0)
    wave = [(grid, np.stack([np.sin(grid + n), np.cos(grid * n)], 1)) for n in range(4)]
    options = {"d_model": 8, "max_epochs": 1, "min_steps": 1, "verbose": 0, "backbone": name}
    if BACKBONES[name].fixed_window:
        model = Forecaster.from_options(horizon=2, history=8, **options).fit(wave)
        wave, how = [(times[:12], values[:12]) for times, values in wave[:1]], {"target": "channel_0"}
    else:
        model = Regressor.from_options(window=0, **options).fit(wave, numbers(wave))
        wave, how = [(times[:8], values[:8]) for times, values in wave[:1]], {}
    told = model.explain(wave, **how)
    assert np.isfinite(told.attributions[0]).all()
    assert np.abs(told.attributions[0]).max() > 0
    smooth = model.explain(wave, "gradients", **how)
    gap = abs(float(smooth.attributions[0].sum()) - (smooth.answers[0] - smooth.references[0]))
    assert gap < 1e-3 * max(1, abs(smooth.answers[0] - smooth.references[0])) or smooth.notes


@pytest.fixture(scope="module")
def where_it_matters():
    """The class is the sign of one channel of three within one of five windows of time."""
    draw = np.random.default_rng(0)
    X, y = [], []
    for _ in range(200):
        times = np.sort(draw.uniform(0, 10, 20))
        values = draw.normal(size=(20, 3))
        signs = draw.choice([-1, 1], 5)
        values[:, 1] = signs[(times // 2).astype(int)] * (1.5 + 0.3 * draw.normal(size=20))
        X.append((times, values))
        y.append("up" if signs[2] > 0 else "down")
    options = {"d_model": 16, "max_epochs": 30, "verbose": 0, "window": 0, "warp": 0.0, "keep_points": 1.0}
    return Classifier.from_options(**options).fit(X, y), X, y


@pytest.mark.parametrize("method", ["occlusion", "gradients"])
def test_channel_and_time_that_matter_rank_first(where_it_matters, method):
    model, X, y = where_it_matters
    assert model.score(X, y) > 0.9
    told = model.explain(X[:12], method, target="up")
    assert told.ranked()[0] == "channel_1"
    assert told.channels()["channel"][0] == "channel_1"
    found = told.table().with_columns(inside=pl.col("time").is_between(4, 6) & (pl.col("channel") == "channel_1"))
    size = dict(found.group_by("inside").agg(pl.col("attribution").abs().mean()).iter_rows())
    assert size[True] > 2 * size[False]


def test_forecast_is_explained_by_its_window():
    draw = np.random.default_rng(0)
    X = [(range(60), draw.normal(size=(60, 2)))]
    options = {"horizon": 3, "history": 10, "max_epochs": 1, "min_steps": 1, "verbose": 0}
    model = Forecaster.from_options(**options).fit(X)
    told = model.explain(X, target="channel_1")
    assert told.at == [60.0]
    assert told.points[0].tolist() == list(range(50, 60))
    np.testing.assert_allclose(told.answers[0], model.predict(X)[0][0, 1], rtol=1e-4)
    later = model.explain(X, target="channel_1", at=62.0)
    np.testing.assert_allclose(later.answers[0], model.predict(X)[0][2, 1], rtol=1e-4)
    # channels are forecast apart
    assert np.abs(told.attributions[0][:, 0]).max() == 0
    with pytest.raises(ValueError, match="no states of whole series"):
        model.explain(X, "attention")
    with pytest.raises(ValueError, match="no states of whole series"):
        model.embed(X)


def test_event_is_explained_by_the_events_before():
    X = [(one.times[:10], one.types[:10]) for one in hawkes_set(8, seed=3)]
    model = EventPredictor.from_options(backbone="hp", verbose=0).fit(X)
    (times, types), at = X[0], float(X[0][0][-1]) + 0.3
    told = model.explain(X[:1], at=at, target="1")
    rate = model.intensity_at(X[0], [at])[0, 1]
    np.testing.assert_allclose(told.answers[0], np.log(rate), rtol=1e-5)
    for n in (0, 4, 9):
        rest = model.intensity_at((np.delete(times, n), np.delete(types, n)), [at])[0, 1]
        found = told.attributions[0][n]
        np.testing.assert_allclose(found[types[n]], np.log(rate) - np.log(rest), rtol=1e-4, atol=1e-6)
        assert np.isnan(np.delete(found, types[n])).all()
    without = types != 0
    rest = model.intensity_at((times[without], types[without]), [at])[0, 1]
    np.testing.assert_allclose(told.channel_attributions[0, 0], np.log(rate) - np.log(rest), rtol=1e-4, atol=1e-6)
    last = model.explain(X)
    assert [len(one) for one in last.points] == [9] * 8
    whole, head = model.log_likelihood([X[0]])[0], model.log_likelihood([(times[:-1], types[:-1])])[0]
    np.testing.assert_allclose(last.answers[0], whole - head, rtol=1e-4)
    assert last.table().columns == ["id", "time", "type", "attribution", "rank"]
    assert set(last.channels()["type"]) == {"0", "1"}
    coarse = model.explain(X, most_parts=3)
    assert "windows of up to 3 consecutive events" in coarse.notes[0]
    assert len(last.plot().axes) == 1 + len(set(types[:-1]))
    with pytest.raises(ValueError, match="method must be 'occlusion' for events"):
        model.explain(X, "gradients")
    with pytest.raises(ValueError, match="pass at="):
        model.explain(X, target="1")
    with pytest.raises(ValueError, match="has 1 events before its last event"):
        model.explain([(times[:2], types[:2])])


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("dates", [False, True])
def test_table_in_the_form_of_the_input(X, y, library, dates):
    table = pd.DataFrame(long_table(X, y, ids=range(10, 22)))
    if dates:
        table["hour"] = pd.Timestamp("2024-03-01", tz="CET") + pd.to_timedelta((3600 * table["hour"]).round(), unit="s")
    table = table if library == "pandas" else pl.from_pandas(table)
    model = Classifier.from_options(**TINY).fit(table, id="who", time="hour", label="kind")
    told = model.explain(table)
    found = told.table()
    assert type(found) is type(table)
    assert list(found.columns) == ["who", "hour", "channel", "value", "attribution", "rank"]
    assert found["who"].dtype == table["who"].dtype
    assert str(found["hour"].dtype).replace("us", "ns") == str(table["hour"].dtype).replace("us", "ns")
    observed = sum(int((~np.isnan(values)).sum()) for _, values in X)
    assert len(found) == observed
    one = found if library == "polars" else pl.from_pandas(found)
    for part in one.partition_by("who"):
        assert sorted(part["rank"]) == list(range(1, part.height + 1))
        by_rank = part.sort("rank")["attribution"].abs().to_list()
        assert by_rank == sorted(by_rank, reverse=True)
    assert list(told.channels().columns) == ["channel", *OTHER]
    assert type(told.channels()) is type(table)
    assert len(told.table(series="12")) == int((~np.isnan(X[2][1])).sum())


def test_columns_with_the_names_of_the_table(X, y):
    table = pd.DataFrame(long_table(X, y)).rename(columns={"who": "rank", "hour": "value"})
    model = Classifier.from_options(**TINY).fit(table, id="rank", time="value", label="kind")
    found = model.explain(table).table()
    assert list(found.columns) == ["rank", "value", "channel", "value_", "attribution", "rank_"]


def test_units_of_channels(X, y):
    series = [Series.of(t, v, id=f"s{n}", label=y[n]) for n, (t, v) in enumerate(X)]
    schema = Schema(channels=("pH", "$cost$"), units=(None, "EUR"), classes=("a", "b"))
    model = Classifier.from_options(**TINY).fit(SeriesSet(series, schema=schema))
    told = model.explain(SeriesSet(series[:2], schema=schema))
    assert set(told.table()["unit"]) == {None, "EUR"}
    figure = told.plot(series="s1")
    labels = [panel.get_ylabel() for panel in figure.axes[:2]]
    assert sorted(labels) == ["$cost$\n(EUR)", "pH"]


def test_picture_has_a_panel_for_each_channel_in_order(tmp_path, X, classifier):
    told = classifier.explain(X, target="a")
    figure = told.plot(tmp_path / "a.png", series=3)
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert [panel.get_ylabel() for panel in figure.axes[:2]] == told.ranked(3)
    limits = [panel.collections[0].get_clim() for panel in figure.axes[:2]]
    largest = np.nanmax(np.abs(told.attributions[3]))
    np.testing.assert_allclose(limits, [(-largest, largest)] * 2)
    assert "log-odds of 'a'" in figure.axes[-1].get_ylabel()
    assert len(told.plot(series=3, most=1).axes) == 2
    assert "1 of 2 channels" in told.plot(series=3, most=1).get_suptitle()


def test_classes_of_true_and_false_are_named_in_any_case():
    names = [one_of([False, True], target, "class") for target in (True, "True", "true")]
    assert names == [(True, 1)] * 3
    with pytest.raises(ValueError, match="there is no class 'TRUE'"):
        one_of([False, "true"], "TRUE", "class")


def test_wrong_questions_are_rejected(X, classifier, regressor, interpolator):
    wrong = [
        (classifier, {"method": "shap"}, "method must be one of occlusion, gradients, attention"),
        (classifier, {"hide": "row"}, "hide must be one of"),
        (classifier, {"target": "c"}, "there is no class 'c'"),
        (classifier, {"at": 1.0}, "leave out at: this model gives one answer"),
        (classifier, {"most_parts": 0}, "most_parts must be 1 or more"),
        (classifier, {"member": 1}, "member must be from 0 to 0"),
        (classifier, {"method": "gradients", "hide": "time"}, "hide must be 'observation' for gradients"),
        (classifier, {"method": "attention", "target": "a"}, "attention weights do not depend on a target"),
        (regressor, {"target": "a"}, "leave out target: this model predicts one number"),
        (interpolator, {"at": 1.0}, "target must name the channel"),
        (interpolator, {"target": "channel_0"}, "at must be the time"),
        (interpolator, {"target": "channel_0", "at": [1.0, 2.0]}, "at has 2 times for series 0"),
    ]
    for model, how, problem in wrong:
        with pytest.raises(ValueError, match=problem):
            model.explain(X, **how)
    with pytest.raises(ValueError, match="series must be from 0 to 11"):
        classifier.explain(X).table(series=12)
    with pytest.raises(ValueError, match="series must be an id, got 'x'"):
        classifier.explain(X).plot(series="x")


def test_series_without_observations_and_no_series(X, classifier, interpolator):
    told = classifier.explain([X[0], ([1.0], [[np.nan, np.nan]])])
    assert told.table(series=1).height == 0
    assert np.isfinite(told.answers).all()
    none = classifier.explain(SeriesSet([], schema=Schema(channels=("channel_0", "channel_1"))))
    assert none.table().height == 0
    each = interpolator.explain(X[:2], target="channel_0", at=[1.0, 2.0])
    assert each.at == [1.0, 2.0]
    assert isinstance(interpolator, Interpolator)
