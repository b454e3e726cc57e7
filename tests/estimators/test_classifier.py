"""Classifier: calibrated probabilities."""

import numpy as np
import pytest

from contiformer import Classifier, TrainingOptions, load
from contiformer.estimators import classifier as module
from contiformer.estimators.model_card import model_card


def test_calibration_on_few_series_stays_moderate():
    draw = np.random.default_rng(0)
    X = [(np.arange(5.0), draw.normal(size=(5, 1)) + 3 * (n % 2)) for n in range(30)]
    y = [n % 2 for n in range(30)]
    classifier = Classifier(d_model=8, window=1, training=TrainingOptions(max_epochs=25, verbose=0)).fit(X, y)
    assert classifier.metrics_["validation"]["accuracy"] == 1
    assert float(classifier.tasks_[0].temperature) > 0.3


def gappy(n):
    draw = np.random.default_rng(1)
    X = [(np.arange(6.0), draw.normal(size=(6, 2)) + 2 * (k % 2)) for k in range(n)]
    for _, values in X:
        values[1:][draw.random((5, 2)) < 0.4] = np.nan
    return X, ["ab"[k % 2] for k in range(n)]


def test_many_series_with_gaps_are_learned_on_top_of_boosted_trees(monkeypatch, tmp_path):
    X, y = gappy(60)
    quick = {"d_model": 8, "window": 1, "max_epochs": 2, "verbose": 0, "seed": 3}
    assert Classifier.from_options(**quick).fit(X, y).tasks_[0].beside is None
    monkeypatch.setattr(module, "MANY", 50)
    fitted = Classifier.from_options(**quick, members=2).fit(X, y)
    assert all(task.beside is not None for task in fitted.tasks_)
    assert Classifier.from_options(**quick, beside=None).fit(X, y).tasks_[0].beside is None
    said = fitted.predict_proba(X)
    np.testing.assert_array_equal(said, Classifier.from_options(**quick, members=2).fit(X, y).predict_proba(X))
    shares = [f"{float(task.share):.2f}" for task in fitted.tasks_]
    assert f"| weight of boosting | {', '.join(shares)} |" in model_card(fitted)
    fitted.save(tmp_path / "saved")
    np.testing.assert_array_equal(load(tmp_path / "saved").predict_proba(X), said)
    with pytest.raises(ValueError, match="a model beside the network has no gradients: use method='occlusion'"):
        fitted.explain(X[:2], method="gradients")
    assert len(fitted.explain(X[:2]).attributions) == 2
