"""Scores of predicted probabilities and values."""

import numpy as np
import pytest

from contiformer.tasks.scores import BINS, calibration_error, classification_scores, error_scores


def test_calibration_error_in_closed_form():
    # ten sure of 0.95 of which eight are right, and ten sure of 0.65 of which six are: (0.15 + 0.05) / 2
    sure, right = np.repeat([0.95, 0.65], 10), np.r_[np.arange(10) < 8, np.arange(10) < 6]
    probability = np.stack([sure, 1 - sure], axis=1)
    assert calibration_error(probability, np.where(right, 0, 1)) == pytest.approx(0.1)
    assert calibration_error(np.array([[1.0, 0.0]] * 4), np.zeros(4, int)) == 0.0


def test_calibration_error_of_honest_probabilities_is_small():
    draw = np.random.default_rng(0)
    chance = draw.uniform(0, 1, 20000)
    label = (draw.random(20000) < chance).astype(int)
    assert calibration_error(np.stack([1 - chance, chance], 1), label) < 0.02
    assert calibration_error(np.stack([1 - chance**4, chance**4], 1), label) > 0.1
    assert BINS == 15


def test_scores():
    probability = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])
    scores = classification_scores(probability, np.array([0, 1, 0, 0]))
    assert scores["accuracy"] == 0.75
    assert scores["loss"] == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.7]).mean())
    assert scores["auroc"] == 1.0
    assert "auroc" not in classification_scores(probability, np.zeros(4, int))
    certain = classification_scores(np.array([[1.0, 0.0]]), np.array([1]))
    assert np.isfinite(certain["loss"])
    assert error_scores(np.array([4.0, 0.0]), np.array([2.0, 0.0]), np.array([1, 3])) == {
        "mse": 1.0,
        "rmse": 1.0,
        "mae": 0.5,
    }
