"""The kept epoch: history, metrics, model card, picture and progress agree with the saved weights."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from contiformer import Classifier, EventPredictor, Forecaster, Interpolator, TrainingOptions
from contiformer.data.loader import Loader
from contiformer.plots import curves
from contiformer.training import callbacks
from tests.estimators.problems import waves

QUICK = TrainingOptions(max_epochs=6, learning_rate=0.1, patience=1.0, averaging=0.0, verbose=0)


def uncalibrated(model, validation):
    """Metrics of the saved weights without calibration."""
    task = model.tasks_[0]
    with torch.no_grad():
        (task.temperature if hasattr(task, "temperature") else task.head.std_factor).fill_(1.0)
    return task.evaluate(Loader(validation, 128, shuffle=False))


@pytest.mark.parametrize("keep", ["auto", "best", "last"])
@pytest.mark.parametrize("kind", [Classifier, Interpolator])
def test_reported_epoch_is_the_one_of_the_saved_weights(kind, keep, tmp_path):
    X, y = waves(n=24)
    training, answers = replace(QUICK, keep=keep), [y] if kind is Classifier else []
    model = kind(d_model=8, training=training, run_dir=tmp_path).fit(X, *answers)
    kept, monitor = model.metrics_["kept_epochs"][0], model.tasks_[0].monitor
    scores = [row[monitor] for row in model.history_]
    assert kept == (1 + int(np.argmin(scores)) if keep == "best" else 6)
    job = kind(d_model=8, training=training).prepare(X, *answers)
    loaded = kind.load(tmp_path)
    told = loaded.tasks_[0].evaluate(Loader(job.validation, 128, shuffle=False))
    assert told == pytest.approx(loaded.metrics_["validation"], rel=1e-4)
    assert loaded.metrics_["before_calibration"] == {monitor: scores[kept - 1]}
    assert uncalibrated(loaded, job.validation)[monitor] == pytest.approx(scores[kept - 1], rel=1e-4)
    card = (tmp_path / "README.md").read_text()
    assert f"Kept epoch {kept} of 6 ({'the best' if keep == 'best' else 'the last'}" in card
    # the interpolator has too few hidden values here to be calibrated
    said = f"Before calibration the validation {monitor} was {scores[kept - 1]:.4g}"
    assert (said in card) == (kind is Classifier)


def test_learning_curves_mark_the_kept_epoch(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(curves, "save", lambda figure, path: figures.append(figure))
    rows = [{"round": n, "train_loss": 1.0, "loss": loss} for n, loss in enumerate([0.5, 0.2, 0.9])]
    for kept in ([3], [2], []):
        curves.draw_learning([rows], tmp_path / "x.png", "loss", kept)
    texts = [[text.get_text() for panel in figure.axes for text in panel.texts] for figure in figures]
    assert texts == [["kept: epoch 3, 0.9"], ["kept: epoch 2, 0.2"], []]


def test_progress_names_no_best_epoch_where_the_last_is_kept(capsys):
    X, y = waves(n=24)
    Classifier(d_model=8, training=replace(QUICK, keep="auto", max_epochs=2, verbose=1)).fit(X, y)
    shown = capsys.readouterr().err
    assert "(keeps last)" in shown
    assert "best" not in shown
    assert callbacks.TENFOLD == 10


def test_training_series_are_those_that_were_trained_on(tmp_path):
    X, y = waves(n=20)
    quick = replace(QUICK, max_epochs=1)
    events = [([0.0, 1.0, 2.0, 3.5], [0, 1, 0, 1])] * 20
    fitted = (
        Classifier(d_model=8, training=quick).fit(X, y),
        Interpolator(d_model=8, training=quick).fit(X),
        EventPredictor(backbone="rmtpp", d_model=8, training=replace(quick, validation=0.2)).fit(events),
    )
    for model in fitted:
        trained, validated = model.metrics_["training_series"], model.metrics_["validation_series"]
        assert trained + validated == 20
        assert validated in (3, 4)
    long = [(np.arange(60.0), np.sin(np.arange(60.0))) for _ in range(2)]
    forecaster = Forecaster(horizon=4, history=8, d_model=8, training=quick)
    job = forecaster.prepare(long)
    forecaster.fit(long)
    assert forecaster.metrics_["training_series"] == len(job.training)
    forecaster.save(tmp_path)
    assert json.loads((tmp_path / "metrics.json").read_text()) == forecaster.metrics_
