"""Edge cases of estimator input: empty, constant, extreme, tied or invalid data."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from contiformer import Classifier, Interpolator, Regressor
from contiformer.data import DataError
from contiformer.estimators.labels import with_labels
from contiformer.estimators.tables import Columns, read
from tests.estimators.problems import TINY, numbers, waves

NOTHING = (np.zeros(0), np.zeros((0, 2)))


def with_values(X, change):
    return [(times, change(values.copy())) for times, values in X]


def put(where, what):
    def change(values):
        values[where] = what
        return values

    return change


@pytest.mark.parametrize("pooling", ["learned", "mean", "last"])
def test_empty_series_are_classified(X, y, pooling):
    model = Classifier.from_options(pooling=pooling, **TINY).fit([*X, NOTHING], [*y, "a"])
    alone, among = model.predict_proba([NOTHING]), model.predict_proba([*X, NOTHING])
    np.testing.assert_allclose(alone[0], among[-1], rtol=1e-5)
    assert np.isfinite(among).all()


def test_empty_series_in_regression_and_interpolation(X, regressor, interpolator):
    assert np.isfinite(regressor.predict([NOTHING])).all()
    with pytest.raises(DataError, match="series 12 has no points; leave it out"):
        interpolator.predict([*X, NOTHING], at=[1.0])
    together = Interpolator.from_options(time_origin="global", **TINY).fit([*X, NOTHING])
    assert np.isfinite(together.predict([NOTHING], at=[1.0])[0]).all()


def test_training_set_without_any_observed_value(X, y):
    blank = with_values(X, put(np.s_[:], np.nan))
    assert np.isfinite(Classifier.from_options(**TINY).fit(blank, y).predict_proba(X)).all()
    assert all(np.isfinite(one).all() for one in Interpolator.from_options(**TINY).fit(blank).predict(X))


def test_fully_missing_rows_change_nothing(X, classifier, interpolator):
    def padded(times, values):
        return np.concatenate([times, times[-1:] + 1]), np.concatenate([values, np.full((1, 2), np.nan)])

    more = [padded(*one) for one in X]
    np.testing.assert_allclose(classifier.predict_proba(more), classifier.predict_proba(X), rtol=1e-4, atol=1e-6)
    for a, b in zip(interpolator.predict(more, at=[3.0]), interpolator.predict(X, at=[3.0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        put(np.s_[:, 1], np.nan),
        put(np.s_[:, 1], 5.0),
        put(np.s_[:, 1], 1e30),
        put(np.s_[0, 1], 1e30),
        put(np.s_[0, 1], 1e100),
        lambda values: values * 1e30,
        lambda values: values * 1e-30,
    ],
    ids=["never seen", "constant", "large constant", "outlier", "larger outlier", "large", "small"],
)
def test_constant_missing_and_extreme_channels_are_learned(X, y, change):
    odd = with_values(X, change)
    model = Interpolator.from_options(**TINY).fit(odd)
    mean, std = model.predict(odd, at=[0.0, 5.0, 30.0], return_std=True)
    assert all(np.isfinite(one).all() for one in [*mean, *std])
    assert np.isfinite(Classifier.from_options(**TINY).fit(odd, y).predict_proba(odd)).all()


@pytest.mark.parametrize("size", [1e4, 1e8, 1e14])
def test_values_far_outside_the_training_range_give_finite_answers(X, classifier, regressor, interpolator, size):
    for far in (with_values(X, put(np.s_[0, 0], size)), with_values(X, lambda values: values * size)):
        assert np.isfinite(classifier.predict_proba(far)).all()
        assert np.isfinite(regressor.predict(far)).all()
        mean, std = interpolator.predict(far, at=[0.0, 5.0, 30.0], return_std=True)
        assert all(np.isfinite(one).all() for one in [*mean, *std])


@pytest.mark.parametrize("size", [1e30, 1e38, 1e300])
def test_values_too_extreme_to_scale_are_refused_in_predict(X, classifier, interpolator, size):
    far = with_values(X, put(np.s_[0, 1], size))
    with pytest.raises(DataError, match=r"series 0 has a value in channel 'channel_1'.*use NaN"):
        interpolator.predict(far)
    # ranks end where the training data do: an outlier is the largest value, not more
    largest = with_values(X, put(np.s_[0, 1], 1e9))
    np.testing.assert_allclose(classifier.predict_proba(far), classifier.predict_proba(largest))


def test_values_too_extreme_to_scale_are_refused_in_fit(X, y):
    with pytest.raises(DataError, match=r"series 0 has the value 1e\+300 in 'channel_1'"):
        Classifier.from_options(**TINY).fit(with_values(X, put(np.s_[0, 1], 1e300)), y)


def test_infinite_values_are_refused(X, y, classifier):
    endless = with_values(X, put(np.s_[0, 1], np.inf))
    for ask in (classifier.predict, lambda data: Classifier.from_options(**TINY).fit(data, y)):
        with pytest.raises(DataError, match="series 0 are infinite in row 0"):
            ask(endless)


@pytest.mark.parametrize("unit", [1e-300, 1e-9, 1e9, 1e300])
def test_any_unit_of_time_gives_finite_answers(X, unit):
    scaled = [(times * unit, values) for times, values in X]
    assert all(np.isfinite(one).all() for one in Interpolator.from_options(**TINY).fit(scaled).predict(scaled))


def test_tied_times_give_finite_answers(X, y):
    twice = [(np.repeat(times, 2), np.repeat(values, 2, axis=0)) for times, values in X]
    at_once = [(np.zeros(len(times)), values) for times, values in X]
    single = [(times[:1], values[:1]) for times, values in X]
    for data in (twice, at_once, single):
        assert all(np.isfinite(one).all() for one in Interpolator.from_options(**TINY).fit(data).predict(data))
        assert np.isfinite(Classifier.from_options(**TINY).fit(data, y).predict_proba(data)).all()


def test_a_class_with_one_series_is_learned(X):
    kinds = ["a"] * 6 + ["b"] * 5 + ["c"]
    for seed in range(3):
        model = Classifier.from_options(seed=seed, **TINY)
        data = with_labels(read(X, Columns())[0], kinds, classes=True)
        training, held_out = model._parts(data, 0)
        assert set(training.labels) == {"a", "b", "c"}
        assert "c" not in held_out.labels
        assert sorted(training.ids + held_out.ids) == sorted(data.ids)
    assert Classifier.from_options(**TINY).fit(X, kinds).classes_.tolist() == ["a", "b", "c"]
    with pytest.raises(DataError, match="too few series to validate on"):
        Classifier.from_options(**TINY).fit(X[:2], ["a", "b"])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 12, "only one class"),
        ([None] * 12, "no series has a label; pass y"),
        ([np.inf, 1.0] * 6, "series 0 has the label inf"),
        ([0.5, 1.0] * 6, "0.5 is no class; use Regressor"),
        (["a", 1] * 6, "some labels are words and some numbers"),
        ([dt.date(2024, 1, 1), dt.date(2024, 1, 2)] * 6, "label .* is a date"),
        (["a"], "1 labels for 12 series"),
        ("kind", "label for each series, got 'kind'"),
        (np.zeros((12, 2)), "y has shape"),
    ],
)
def test_invalid_class_labels_are_refused(X, labels, message):
    with pytest.raises(DataError, match=message):
        Classifier.from_options(**TINY).fit(X, labels)


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", float("nan")] * 4,
        ["a", "b", None] * 4,
        pd.Series(["a", "b", None] * 4),
        pd.Series(["a", "b", pd.NA] * 4, dtype="string"),
        np.array([0.0, 1.0, np.nan] * 4),
    ],
    ids=["nan", "none", "pandas", "NA", "floats"],
)
def test_series_without_a_label_are_left_out_and_counted(X, labels):
    model = Classifier.from_options(**TINY)
    with pytest.warns(UserWarning, match="4 of 12 series have no label and are left out, the first of them 2"):
        data = model._parse(X, labels, Columns(), None)[0]
    assert data.ids == [n for n in range(12) if n % 3 < 2]
    with pytest.raises(DataError, match=r"series 2 has no label \(4 of 12 have none\)"):
        model.fit(X, labels, missing_labels="error")
    with pytest.raises(ValueError, match="missing_labels must be 'drop' or 'error', got 'x'"):
        model.fit(X, labels, missing_labels="x")


def test_missing_labels_in_score(X, classifier, y):
    with pytest.warns(UserWarning, match="1 of 12 series"):
        assert classifier.score(X, [None, *y[1:]]) == classifier.score(X[1:], y[1:])


@pytest.mark.parametrize("labels", [[0, 1] * 6, [True, False] * 6, [2.0, 1.0] * 6, ["1", "0"] * 6])
def test_classes_keep_the_type_of_the_labels(X, labels):
    model = Classifier.from_options(**TINY).fit(X, labels)
    assert set(model.predict(X).tolist()) <= set(labels)
    assert model.classes_.tolist() == sorted(set(labels))


def test_invalid_numeric_labels_are_refused(X, y, regressor):
    for labels, message in ((y, "labels are words"), ([1e300 * n for n in range(12)], "labels in y are too large")):
        with pytest.raises(DataError, match=message):
            Regressor.from_options(**TINY).fit(X, labels)
    with pytest.raises(DataError, match="no series has a label; pass y"):
        regressor.score(X)
    assert np.allclose(Regressor.from_options(**TINY).fit(X, [3.0] * 12).predict(X), 3.0, atol=2.0)


def test_an_offset_of_the_labels_shifts_the_predictions(X, regressor):
    moved = Regressor.from_options(**TINY).fit(X, np.array(numbers(X)) + 1e9)
    np.testing.assert_allclose(moved.predict(X) - 1e9, regressor.predict(X), atol=1e-4)
    assert moved.metrics_["validation"]["r2"] == pytest.approx(regressor.metrics_["validation"]["r2"], abs=1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "X is a NoneType"),
        ({"a": 1}, "X is a dict"),
        (np.zeros((2, 3, 2, 1)), "values have shape"),
        ([(np.zeros(3), np.zeros((3, 1)))], "trained on channel_0, channel_1"),
        ([(np.zeros(3), np.zeros((2, 2)))], "3 times but 2 rows"),
        ([([0.0, np.nan], np.zeros((2, 2)))], "not a finite time"),
        ([(["a", "b"], np.zeros((2, 2)))], "neither a number nor a datetime"),
    ],
)
def test_invalid_input_is_refused(classifier, given, message):
    with pytest.raises(DataError, match=message):
        classifier.predict(given)


def test_one_series_needs_validation_data(X):
    with pytest.raises(DataError, match=r"one series .* cannot be divided.*validation_data"):
        Regressor.from_options(**TINY).fit(X[:1], [1.0])
    model = Interpolator.from_options(**TINY).fit(X[:1], validation_data=X[1:2])
    assert np.isfinite(model.predict(X[:1])[0]).all()


def test_unknown_classes_in_validation_data_are_refused(X, y):
    with pytest.raises(DataError, match="validation_data has the class 'z'"):
        Classifier.from_options(**TINY).fit(X, y, validation_data=(X, ["z"] * 12))
    model = Classifier.from_options(**TINY).fit(X, y, validation_data=(X[:3], ["a"] * 3))
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"d_model": 0}, "d_model must be at least 1"),
        ({"d_model": "a"}, "d_model must be a whole number, got 'a'"),
        ({"n_layers": 1.5}, "n_layers must be a whole number"),
        ({"dropout": 2.0}, "dropout must be at least 0 and at most"),
        ({"dropout": True}, "dropout must be a number"),
        ({"window": -1}, "window must be at least 0"),
        ({"members": 0}, "members must be at least 1"),
        ({"keep_points": 0.0}, "keep_points must be above 0"),
        ({"keep_points": float("nan")}, "keep_points"),
        ({"noise": -1.0}, "noise must be at least 0"),
        ({"validation": 0.0}, "validation must be a share"),
        ({"validation": 0.9}, "validation must be a share above 0 and at most 0.5"),
        ({"time_origin": "x"}, "time_origin must be one of 'first', 'global'"),
        ({"backbone": "contiforme"}, "did you mean 'contiformer'"),
        ({"backbone_options": {"nheads": 2}}, "does not fit the backbone"),
        ({"backbone_options": 3}, "backbone_options must be a dictionary or None"),
        ({"learning_rate": "x"}, "learning_rate must be a number"),
        ({"pooling": "x"}, "pooling must be one of 'learned', 'mean', 'last'"),
        ({"class_weight": "x"}, "class_weight must be None, 'balanced' or a weight"),
        ({"class_weight": {"a": 1.0}}, "class_weight must be"),
        ({"label_smoothing": 2.0}, "label_smoothing must be"),
        ({"seed": "a"}, "seed must be a whole number"),
    ],
)
def test_parameters_are_checked_in_fit(X, y, parameters, message):
    model = Classifier.from_options(**{**TINY, **parameters})
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(X, y)
    assert "\n" not in str(caught.value)


def test_class_weights_reach_the_task(X, y):
    uneven = ["a"] * 9 + ["b"] * 3
    assert Classifier.from_options(class_weight="balanced", **TINY).fit(X, uneven).tasks_[0].class_weights == [
        12 / 18,
        12 / 6,
    ]
    assert Classifier.from_options(class_weight={"b": 3, "a": 1}, **TINY).fit(X, y).tasks_[0].class_weights == [
        1.0,
        3.0,
    ]


def test_frame_size_must_match_the_channels(X):
    with pytest.raises(ValueError, match="frames of 3 x 3 have 9 pixels, the series 2 channels"):
        Regressor.from_options(frames=(3, 3), **TINY).fit(X, [0.0] * 12)
    model = Regressor.from_options(frames=(1, 2), **TINY).fit(X, numbers(X))
    assert np.isfinite(model.predict(X)).all()


def test_default_batch_size_is_smaller_for_frames():
    for options, expected in (({"frames": (1, 2)}, 8), ({"frames": (1, 2), "batch_size": 16}, 16), ({}, 32)):
        assert Regressor.from_options(**options).training_options().batch_for(2000) == expected


def test_predictions_of_members_are_averaged(X, y):
    model = Classifier.from_options(members=2, **TINY).fit(X, y)
    each = []
    for n in range(2):
        one = Classifier.from_options(**TINY)
        one.__dict__.update({**vars(model), "tasks_": [model.tasks_[n]]})
        each.append(one.predict_proba(X))
    np.testing.assert_allclose(model.predict_proba(X), np.mean(each, axis=0), rtol=1e-6)
    assert np.abs(each[0] - each[1]).max() > 1e-6


def test_toy_data_have_missing_values_and_are_deterministic(X, y):
    assert len(X) == len(y) == 12
    assert any(np.isnan(values).any() for _, values in X)
    assert waves()[0][0][0].tolist() == X[0][0].tolist()
