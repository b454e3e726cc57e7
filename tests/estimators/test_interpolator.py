"""Interpolator: scores and training augmentation."""

import numpy as np
import torch

from contiformer import Interpolator

TINY = {"d_model": 8, "window": 1, "max_epochs": 1, "min_steps": 1, "verbose": 0}


def test_score_without_hidden_observations_is_nan():
    model = Interpolator.from_options(**TINY).fit([(np.arange(6.0), np.arange(6.0)) for _ in range(6)])
    assert np.isnan(model.evaluate([([0.0], [1.0])])["mse"])


def test_every_augmentation_parameter_changes_the_training():
    X = [(np.arange(20.0), np.random.default_rng(n).normal(size=(20, 1))) for n in range(8)]
    weights = []
    for given in ({}, {"keep_points": 0.3}, {"most_points": 3}, {"noise": 1.0}):
        model = Interpolator.from_options(**{**TINY, "min_steps": 4}, **given).fit(X)
        weights.append(model.tasks_[0].head.from_state.weight.detach())
    assert all(not torch.equal(weights[0], other) for other in weights[1:])
