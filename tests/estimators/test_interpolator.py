"""Interpolator: scores and training augmentation."""

import numpy as np
import pytest
import torch

from contiformer import Interpolator, TrainingOptions

TINY = {"d_model": 8, "window": 1, "max_epochs": 1, "verbose": 0}


def test_score_without_hidden_observations_is_nan():
    model = Interpolator.from_options(**TINY).fit([(np.arange(6.0), np.arange(6.0)) for _ in range(6)])
    assert np.isnan(model.evaluate([([0.0], [1.0])])["mse"])


def test_every_augmentation_parameter_changes_the_training():
    X = [(np.arange(20.0), np.random.default_rng(n).normal(size=(20, 1))) for n in range(8)]
    weights = []
    for given in ({}, {"keep_points": 0.3}, {"most_points": 3}, {"noise": 1.0}):
        model = Interpolator.from_options(**{**TINY, "max_epochs": 4}, **given).fit(X)
        weights.append(model.tasks_[0].head.from_state.weight.detach())
    assert all(not torch.equal(weights[0], other) for other in weights[1:])


def faulty_records(n=40):
    """Series like clinical records: a channel of small spread with typing errors (740 instead of 7.40)."""
    draw = np.random.default_rng(0)
    X = []
    for k in range(n):
        times = np.sort(draw.uniform(0, 48, 30))
        values = np.stack([7.4 + 0.05 * np.sin(times / 8 + k) + 0.02 * draw.normal(size=30), 80 + times], axis=1)
        if k % 10 == 3:
            values[draw.integers(30), 0] = 740.0
        X.append((times, values))
    return X


def test_typing_errors_do_not_spoil_the_training():
    options = {"d_model": 16, "max_epochs": 6, "verbose": 0}
    with pytest.warns(UserWarning, match=r"20 standard deviations .* of 'channel_0' \(such as 740 in series"):
        model = Interpolator.from_options(**options).fit(faulty_records())
    scores = [row["score"] for row in model.history_]
    assert max(scores) < 3
    assert scores[-1] == min(scores)
    assert abs(model.scaling_.mean[0] - 7.4) < 0.01
    # the answers are those of a channel around 7.4, and loading keeps the limit
    assert 7 < float(np.median([values[:, 0] for values in model.predict(faulty_records(4), at=[10.0, 20.0])])) < 8


def test_the_spread_of_copied_values_does_not_vanish(tmp_path):
    """A patient's weight is the same in most rows; where it changes, that must not outweigh everything else."""
    draw = np.random.default_rng(0)

    def series():
        weight = np.repeat(draw.normal(80, 15, 2), 10) if draw.random() < 0.2 else np.full(20, draw.normal(80, 15))
        return np.arange(20.0), np.stack([weight, draw.normal(size=20)], axis=1)

    X = [series() for _ in range(40)]
    options = TrainingOptions(max_epochs=1, verbose=0)
    model = Interpolator(d_model=8, training=options).fit(X)
    head = model.tasks_[0].head
    assert head.smallest.ravel().tolist() == pytest.approx([0.03, 1e-3])
    with torch.no_grad():
        for weights in (head.out, head.out_bias):
            weights[..., 1] = -100.0
        head.std_factor.fill_(1.0)
    _, std = model.predict(X, return_std=True)
    assert np.allclose(std[0], np.array([0.03, 1e-3]) * model.scaling_.std, rtol=1e-3)
    model.save(tmp_path / "model")
    assert np.array_equal(Interpolator.load(tmp_path / "model").predict(X, return_std=True)[1][0], std[0])
