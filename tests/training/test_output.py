"""Progress, history and warnings of a training."""

import csv
import io
import math
import os
import re
import warnings

import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from contiformer.data import DataError, SeriesSet
from contiformer.paths.trajectories import ResolutionWarning
from contiformer.training import callbacks, train
from tests.training.jobs import Small, new_task, options, run, two_kinds


def test_verbose_0_prints_nothing_and_raises_no_warnings(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(max_epochs=2)
        run(tmp_path / "run", max_epochs=2)
        run(tmp_path / "run", max_epochs=2)
    assert capfd.readouterr() == ("", "")
    assert os.listdir() == ["run"]
    assert sorted(os.listdir("run")) == ["checkpoints", "history.csv", "tensorboard"]


def test_resolution_warnings_are_not_suppressed(monkeypatch):
    forward = Small.forward

    def warn(self, *given):
        warnings.warn("trajectories are not resolved", ResolutionWarning, stacklevel=2)
        return forward(self, *given)

    monkeypatch.setattr(Small, "forward", warn)
    with pytest.warns(ResolutionWarning, match="not resolved"):
        run(max_epochs=1)


def shown_on_a_terminal(monkeypatch, width, **given):
    """What the bar looks like at the end."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None, legacy_windows=False)
    monkeypatch.setattr(callbacks, "Console", lambda **_: console)
    run(verbose=1, **given)
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).strip())


def test_progress_bar_fits_80_columns(monkeypatch):
    # the second round is no better than the first, so it is the last
    monkeypatch.setattr("tests.training.jobs.WhichKind.metrics", lambda self, judged: {"loss": 1.234e-05})
    line = shown_on_a_terminal(monkeypatch, 80, max_epochs=1000, patience=0)[-1]
    assert len(line) <= 80
    assert "…" not in line
    pattern = r"epoch \d+/1000 [━╸╺ ]+ loss [\d.e-]+ val loss [\d.e-]+ \(best [\d.e-]+\) [\d:-]+ left"
    assert re.fullmatch(pattern, line.strip()), line


def test_progress_without_a_terminal_prints_ten_lines(capfd):
    run(verbose=1, max_epochs=40, series=8)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 10
    assert re.fullmatch(
        r"epoch 20/40  loss \S+  val loss \S+ \(best \S+\)  0:00:\d\d gone, at most 0:0\d:\d\d left", lines[4]
    )
    assert lines[-1].startswith("epoch 40/40 ")
    assert lines[-1].endswith("gone")


def test_history_csv_and_tensorboard_agree(tmp_path):
    _, outcome = run(tmp_path, max_epochs=3)
    rows = list(csv.DictReader((tmp_path / "history.csv").open()))
    assert [{name: float(value) for name, value in row.items()} for row in rows] == outcome.history
    assert list(rows[0]) == ["round", "step", "train_loss", "learning_rate", "loss", "accuracy", "judged"]
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    names = {"train_loss": "train_loss", "learning_rate": "learning_rate", "val/loss": "loss"}
    for shown, name in names.items():
        events = board.Scalars(shown)
        assert [event.step for event in events] == [6, 12, 18]
        assert [event.value for event in events] == pytest.approx([row[name] for row in outcome.history])


def test_recorded_learning_rate_is_that_of_the_last_step():
    _, outcome = run(max_epochs=10, learning_rate=0.01, warmup=0.1)
    rates = [row["learning_rate"] for row in outcome.history]
    # step 5 of 60, the last one of the warm-up
    assert rates[0] == pytest.approx(0.01 * (1 + math.cos(math.pi * 5 / 60)) / 2)
    assert rates[-1] == pytest.approx(0.01 * (1 + math.cos(math.pi * 59 / 60)) / 2)


def test_bf16_training_is_close_to_float32():
    _, coarse = run(max_epochs=2, precision="bf16-mixed")
    _, fine = run(max_epochs=2)
    losses = [[row["loss"] for row in outcome.history] for outcome in (coarse, fine)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_non_finite_loss_is_reported():
    data = two_kinds(8)
    data[3].values[:] = 1e38
    task = new_task()
    task.backbone.first.weight.data.fill_(100.0)
    task.backbone.some_field = torch.nn.Identity()
    with pytest.raises(FloatingPointError, match="after 1 steps: lower learning_rate, or look for extreme values"):
        train(task, data, two_kinds(3), options(batch_size=8))


def test_an_empty_training_set_is_refused():
    with pytest.raises(DataError, match="no series to train"):
        train(new_task(), SeriesSet([], channels=["a"]), two_kinds(3), options())


def test_a_nan_score_is_never_the_best(monkeypatch):
    scores = iter([math.nan, 0.7, math.nan, 0.8])
    monkeypatch.setattr("tests.training.jobs.WhichKind.metrics", lambda self, judged: {"loss": next(scores)})
    _, outcome = run(max_epochs=4)
    assert outcome.best_round == 1


def test_averaged_weights_are_kept(monkeypatch):
    followed = []
    after = callbacks.WeightAveraging.on_train_batch_end

    def follow(self, trainer, module, *rest):
        after(self, trainer, module, *rest)
        followed.append(module.task.head.weight.detach().clone())

    monkeypatch.setattr(callbacks.WeightAveraging, "on_train_batch_end", follow)
    task, _ = run(max_epochs=2, averaging=0.5, keep="last")
    first = new_task().head.weight.detach()
    mean = first
    for number, weights in enumerate(followed, start=1):
        share = max(0.5, 1 / (number + 1))
        mean = mean + share * (weights - mean)
    torch.testing.assert_close(task.head.weight.detach(), mean)


def test_a_tenfold_validation_loss_is_warned_of_once(monkeypatch):
    losses = iter([0.9, 0.5, 0.8, 6.0, 60.0, 0.6])
    monkeypatch.setattr("tests.training.jobs.WhichKind.metrics", lambda self, judged: {"loss": next(losses)})
    with pytest.warns(
        UserWarning, match=r"validation loss rose from 0.5 \(epoch 2\) to 6 \(epoch 4\): look for"
    ) as seen:
        _, outcome = run(max_epochs=6)
    assert len(seen) == 1
    assert outcome.messages == [str(seen[0].message)]
    assert outcome.best_round == 1
