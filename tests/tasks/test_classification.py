"""Classification and regression losses, temperature scaling and sample weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from contiformer.data import collate
from contiformer.tasks import Classification, Regression
from contiformer.tasks.baselines.boosting import BoostedSummaries, statistics_of
from contiformer.tasks.classification import BESIDE
from tests.tasks.problems import parts, some_series, some_set

TREES = {"max_iter": 40, "min_samples_leaf": 2}
ROCKET = {"points": 24, "thresholds": 1, "gaps": True}


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


def task_beside(name, classes=3):
    data, held_out = (some_set(n=n, seed=n, label=lambda i: i % classes) for n in (60, 30))
    data, held_out = (one.described(replace(one.schema, classes=tuple(range(classes)))) for one in (data, held_out))
    beside = {"name": name, **(TREES if name == "boosting" else ROCKET)}
    task = Classification(*parts(), classes=classes, summaries=True, beside=beside).eval()
    task.fit_beside(data, held_out, seed=0)
    return task, collate(list(data), data.classes)


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("classes", [2, 3])
def test_logits_are_a_weighted_mean_of_network_and_the_model_beside_it(name, classes):
    task, batch = task_beside(name, classes)
    other, network = task.beside(batch).float(), task(batch)
    assert other.std() > 0.01
    task.share.fill_(1.0)
    torch.testing.assert_close(task(batch), other)
    task.share.fill_(0.25)
    torch.testing.assert_close(task(batch), 0.75 * network + 0.25 * other)
    # the network learns by itself
    total, weight = task.loss_terms(batch)
    torch.testing.assert_close(total / weight, cross_entropy(network, batch.label))


def test_calibration_weighs_boosted_trees_by_the_likelihood():
    task, batch = task_beside("boosting")
    known, unknown = (replace(batch, label=labels) for labels in (task.beside(batch).argmax(1), batch.label.roll(1)))
    task.calibrate([known])
    # the labels are the trees' answers, and the network knows nothing
    assert float(task.share) > 0.9
    assert task.evaluate([known])["loss"] < 0.1
    with torch.no_grad():
        task.head.out.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    task.calibrate([replace(unknown, label=torch.zeros_like(unknown.label))])
    assert float(task.share) == 0


def test_few_validation_series_do_not_decide_for_or_against_convolutions():
    task, batch = task_beside("rocket")
    right = task.beside(batch).argmax(1)
    found = []
    for some in (batch[:2], batch):
        task.calibrate([replace(some, label=right[: len(some)])])
        found.append(float(task.share))
    assert 0.3 < found[0] < 0.7
    assert found[1] > found[0]


def test_boosted_summaries_are_the_statistics_of_tables():
    batch = collate(some_series(n=20))
    batch = replace(batch, observed=batch.observed & (torch.arange(20) > 2)[:, None, None])
    ours, table = BoostedSummaries(channels=2, classes=2).features(batch), statistics_of(batch)
    table = table[:, : ours.shape[1]].reshape(20, 2, -1)
    table[..., 0] = torch.where(table[..., 0] > 0, table[..., 0].log1p(), torch.nan)
    unseen = table[..., 0].isnan()
    assert unseen.any()
    assert ours.view_as(table)[unseen].isnan().all()
    torch.testing.assert_close(ours.view_as(table)[~unseen], table[~unseen].nan_to_num(), rtol=1e-4, atol=1e-4)
