"""The table of costs measures what a training does. No test here asks how fast anything is."""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks import backbones
from benchmarks.__main__ import app
from benchmarks.backbones import Training, check_model, measure
from contiformer import TrainingOptions
from contiformer.data import Series, SeriesSet
from contiformer.estimators import Classifier

SERIES, POINTS = 40, 12


def made(channels: int = 2) -> SeriesSet:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(SERIES, POINTS, channels))
    return SeriesSet([Series.of(np.arange(POINTS), x, label="ab"[n % 2], id=str(n)) for n, x in enumerate(values)])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set but NATOPS is here, and small."""
    monkeypatch.setattr(backbones, "load_uea", lambda name, part: made())
    monkeypatch.setattr(backbones, "presence", lambda info: "no" if info.name == "NATOPS" else "yes")
    monkeypatch.setattr(backbones, "peak_in_fresh_process", lambda data, model: 7.0)


class TestTraining:
    def test_is_the_training_of_a_classifier(self) -> None:
        data = made()
        training = Training.of(data, "gru_dt")
        fitted = Classifier(backbone="gru_dt", training=TrainingOptions(max_epochs=1, min_steps=0, verbose=0)).fit(data)
        ours, theirs = training.task, fitted.tasks_[0]
        assert {n: p.shape for n, p in ours.named_parameters()} == {n: p.shape for n, p in theirs.named_parameters()}
        assert ours.augmentation == theirs.augmentation  # type: ignore[attr-defined]
        assert len(training.loader) == fitted.history_[-1]["step"]
        assert training.weights == sum(p.numel() for p in theirs.parameters())
        assert ours.training

    def test_an_epoch_takes_a_step_for_each_batch_and_learns(self) -> None:
        training = Training.of(made(), "gru_dt")
        before = [p.detach().clone() for p in training.task.parameters()]
        steps: list[int] = []
        taken = training.module.training_step
        training.module.training_step = lambda batch, n: (steps.append(len(batch)), taken(batch, n))[1]  # type: ignore[method-assign]
        training.epoch()()
        assert len(steps) == len(training.loader)
        assert sum(steps) == len(training.loader.data) < SERIES
        assert any(not torch.equal(a, b) for a, b in zip(before, training.task.parameters(), strict=True))

    def test_memory_of_a_step_is_seen(self) -> None:
        # what other tests have freed in this process would be used first
        with contextlib.suppress(AttributeError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)
        peak = backbones.peak_here(made(channels=1000), "gru_dt")
        least = 8 * 8 * 1000 * 4 / 2**20  # the view of the smallest batch alone
        assert peak is None or peak > least


class TestTable:
    def test_rows_of_a_set(self, small: None) -> None:
        rows = measure("Libras", ["contiformer", "gru_dt"], rounds=2)
        assert [row.model for row in rows] == ["contiformer", "gru_dt", "s5"]
        assert rows[2].relative == 1.0
        assert rows[0].relative == pytest.approx(rows[0].relative_to["s5"])
        assert set(rows[0].relative_to) == {"gru_dt", "s5"}
        assert rows[1].relative_to == {}
        assert all(row.milliseconds > 0 and row.weights > 0 and row.peak_mb == 7.0 for row in rows)
        assert rows[0].accuracy is None

    def test_accuracy_comes_from_a_whole_training(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backbones, "TrainingOptions", partial(TrainingOptions, max_epochs=1, min_steps=1))
        (row,) = measure("Libras", ["s5"], rounds=1, memory=False, accuracy=True)
        assert row.accuracy is not None
        assert 0 <= row.accuracy <= 1
        assert (row.accuracy * SERIES) % 1 == pytest.approx(0)
        assert row.training_seconds is not None
        assert row.peak_mb is None

    @pytest.mark.parametrize(("name", "word"), [("neural_cd", "did you mean"), ("dlinear", "regular grid")])
    def test_models_that_cannot_be_measured(self, name: str, word: str) -> None:
        with pytest.raises(ValueError, match=word):
            check_model(name)


class TestCommand:
    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["backbones", *arguments])

    def test_table_and_json(self, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backbones, "busy", lambda: True)
        options = ["--data", "Libras", "--data", "NATOPS", "--model", "contiformer", "--rounds", "1", "--threads", "1"]
        done = self.run(*options, "--output", str(tmp_path))
        assert done.exit_code == 0, done.output
        assert "no data" in done.output
        assert "Libras: an epoch of contiformer takes" in done.output
        assert "the machine was busy" in done.output
        document = json.loads((tmp_path / "backbones.json").read_text())
        assert document["busy"] is True
        assert document["no_data"] == ["NATOPS"]
        assert [row["model"] for row in document["rows"]] == ["contiformer", "s5"]
        assert {"cpu", "torch", "commit"} <= set(document["machine"])
        assert list(document["rows"][0]["relative_to"]) == ["s5"]

    def test_json_alone_on_stdout(self, small: None, tmp_path: Path) -> None:
        done = self.run("--data", "NATOPS", "--json", "--output", str(tmp_path))
        assert json.loads(done.stdout)["no_data"] == ["NATOPS"]

    def test_nothing_is_measured_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        measured: list[object] = []
        monkeypatch.setattr(backbones, "run", lambda *args, **options: measured.append(args))
        (tmp_path / "file").touch()
        done = self.run("--output", str(tmp_path / "file" / "results"))
        assert done.exit_code == 1
        assert "Not a directory" in done.stderr
        assert not measured

    @pytest.mark.parametrize(
        ("options", "word"), [(["--data", "Librs"], "--data"), (["--model", "dlinear"], "--model")]
    )
    def test_bad_names(self, options: list[str], word: str) -> None:
        done = self.run(*options)
        assert done.exit_code == 2
        assert word in done.output
