"""Classification and regression losses, temperature scaling and sample weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from contiformer.data import collate
from contiformer.tasks import Classification, Regression
from tests.tasks.problems import parts, some_series


def batches(n=60):
    series = some_series(n=n, label=lambda i: i % 3)
    return [collate(series[start : start + 20], classes=(0, 1, 2)) for start in range(0, n, 20)]


def test_temperature_lowers_the_negative_log_likelihood():
    task = Classification(*parts(), classes=3).eval()
    with torch.no_grad():
        for parameter in task.head.parameters():
            parameter.mul_(8)  # sure of what it does not know
    known = []
    for batch in batches():
        # right for seven of ten
        right = torch.rand(len(batch)) < 0.7
        known.append(replace(batch, label=torch.where(right, task(batch).argmax(1), batch.label)))
    known = 50 * known  # enough to know
    before = task.evaluate(known)
    task.calibrate(known)
    after = task.evaluate(known)
    assert 1.2 < float(task.temperature) < 7
    assert after["loss"] < before["loss"] - 0.1
    assert after["ece"] < before["ece"]
    assert after["accuracy"] == before["accuracy"]
    logits, labels = torch.cat([task(batch) for batch in known]), torch.cat([batch.label for batch in known])
    for factor in (0.9, 1.1):
        assert cross_entropy(logits / (task.temperature * factor), labels) > after["loss"]


def test_weighted_smoothed_loss_matches_the_formula():
    task = Classification(*parts(), classes=3, class_weights=[1.0, 2.0, 4.0], label_smoothing=0.1).eval()
    batch = batches()[0]
    total, weight = task.loss_terms(batch)
    logits = task(batch).log_softmax(-1)
    own = logits[torch.arange(20), batch.label]
    each = -(0.9 * own + 0.1 * logits.mean(-1))
    weights = torch.tensor([1.0, 2.0, 4.0])[batch.label]
    torch.testing.assert_close(total, (weights * each).sum())
    torch.testing.assert_close(weight, weights.sum())
    with pytest.raises(ValueError, match="class_weights has 1 numbers for 3 classes"):
        Classification(*parts(), classes=3, class_weights=[1.0])


def test_regression_of_labels_with_a_large_mean():
    labels = 1e9 + np.arange(6.0)
    task = Regression(*parts(), mean=float(labels.mean()), std=float(labels.std())).eval()
    batch = collate(some_series(n=6, label=lambda i: float(labels[i])))
    scaled = task._scaled_label(batch)
    torch.testing.assert_close(scaled.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.std(correction=0), torch.tensor(1.0))
    miss = task.values(batch).detach().numpy() - labels
    scores = task.evaluate([batch])
    assert scores["mse"] == pytest.approx(float((miss**2).mean()))
    assert scores["r2"] == pytest.approx(1 - float((miss**2).sum() / ((labels - labels.mean()) ** 2).sum()))


def test_series_of_weight_zero_are_ignored():
    task = Regression(*parts()).eval()
    series = some_series(n=6, label=float)
    batch = replace(collate(series), weight=torch.tensor([1.0, 1, 1, 0, 0, 0]))
    total, weight = task.loss_terms(batch)
    alone, three = task.loss_terms(collate(series[:3]))
    torch.testing.assert_close(total / weight, alone / three, rtol=1e-4, atol=1e-5)
