"""Invariances of predictions: batch order, query times, units of time and of values."""

import numpy as np
import pytest

from contiformer import Classifier, Interpolator
from tests.estimators.problems import TINY, waves

AT = [-1.0, 0.5, 4.0, 15.0]


def test_batch_mates_and_their_order_change_nothing(X, classifier, regressor, interpolator):
    long_one = waves(1, seed=9)[0][0]
    mate = (np.linspace(0, 9, 40), np.random.default_rng(0).normal(size=(40, 2)))
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = [X[n] for n in order]
    for ask in (classifier.predict_proba, regressor.predict, lambda data: interpolator.predict(data, at=AT)):
        whole = ask(X)
        for n, one in enumerate(X[:4]):
            np.testing.assert_allclose(ask([one])[0], whole[n], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ask([*X, long_one, mate])[:12], whole, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ask(shuffled), np.asarray(whole)[order], rtol=1e-4, atol=1e-5)


def test_asking_for_more_times_changes_nothing(X, interpolator):
    few, more = interpolator.predict(X, at=AT), interpolator.predict(X, at=[*AT, 3.0, 7.7])
    for a, b in zip(few, more, strict=True):
        np.testing.assert_allclose(a, b[: len(AT)], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("unit", "shift"), [(1.0, 1e9), (3600.0, 0.0), (1e-6, 5.0)], ids=["shift", "unit", "both"])
def test_predictions_do_not_depend_on_time_origin_and_unit(X, y, classifier, interpolator, unit, shift):
    # in steps that 1e9 + t holds exactly
    exact = [(np.round(times * 1024) / 1024, values) for times, values in X]
    moved = [(times * unit + shift, values) for times, values in exact]
    a, b = (Classifier.from_options(**TINY).fit(data, y).predict_proba(data) for data in (exact, moved))
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    here, there = Interpolator.from_options(**TINY).fit(exact), Interpolator.from_options(**TINY).fit(moved)
    for one, other in zip(
        here.predict(exact, at=AT, return_std=True),
        there.predict(moved, at=np.array(AT) * unit + shift, return_std=True),
        strict=True,
    ):
        for c, d in zip(one, other, strict=True):
            np.testing.assert_allclose(c, d, rtol=2e-3, atol=2e-3)


def test_predictions_scale_with_the_values(X, interpolator):
    scale, level = np.array([1e3, 1e-6]), np.array([273.15, -4e-6])
    other = [(times, values * scale + level) for times, values in X]
    mean, std = Interpolator.from_options(**TINY).fit(other).predict(other, at=AT, return_std=True)
    before, spread = interpolator.predict(X, at=AT, return_std=True)
    for n in range(len(X)):
        np.testing.assert_allclose((mean[n] - level) / scale, before[n], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(std[n] / scale, spread[n], rtol=1e-3)
