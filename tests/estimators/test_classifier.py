"""Classifier: calibrated probabilities."""

import numpy as np

from contiformer import Classifier, TrainingOptions


def test_calibration_on_few_series_stays_moderate():
    draw = np.random.default_rng(0)
    X = [(np.arange(5.0), draw.normal(size=(5, 1)) + 3 * (n % 2)) for n in range(30)]
    y = [n % 2 for n in range(30)]
    classifier = Classifier(d_model=8, window=1, training=TrainingOptions(max_epochs=25, verbose=0)).fit(X, y)
    assert classifier.metrics_["validation"]["accuracy"] == 1
    assert float(classifier.tasks_[0].temperature) > 0.3
