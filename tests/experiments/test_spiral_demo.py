from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch
import typer
from typer.testing import CliRunner

from contiformer.cli.demo import demo
from contiformer.experiments import spiral_baselines, spiral_demo, spiral_picture

app = typer.Typer()
app.command()(demo)


@pytest.fixture(scope="module")
def data():
    return spiral_demo.make_data(seed=0, n_train=50, n_validation=8, n_test=20)


@pytest.fixture(autouse=True)
def _one_thread():
    with spiral_demo.one_thread():
        yield


def test_two_seconds_from_the_command_line(tmp_path):
    result = CliRunner().invoke(app, ["--seconds", "2", "--output", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    picture = tmp_path / "new" / "spirals.png"
    assert lines[-1] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    for row in ("linear interpolation", "natural cubic spline", "mean training curve", "ContiFormer", "formula known"):
        errors = next(line for line in lines if row in line).split("│")[2:6]
        assert all(float(error) > 0 for error in errors)
    assert "seed 0, 30 observations per spiral" in result.output
    before, after = (float(word) for word in lines[-2].replace(",", "").split() if word[0].isdigit())
    assert after < before


def test_quiet_prints_only_the_path(tmp_path):
    result = CliRunner().invoke(app, ["--seconds", "0.1", "--quiet", "--output", str(tmp_path)])
    assert result.output == f"{tmp_path / 'spirals.png'}\n"


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["--output", str(tmp_path)])
    assert result.exit_code == 1
    assert "contiformer[plot]" in result.output


def test_training_lowers_the_error_and_keeps_the_best_state(data):
    model = spiral_demo.make_model(data.train, seed=0)
    outcome = spiral_demo.fit(model, data, seconds=1.0, seed=0)
    assert outcome.error_after < outcome.error_before
    assert not outcome.interrupted
    assert spiral_demo.rms(model.curves(data.validation) - data.validation.clean) == pytest.approx(outcome.error_after)


def test_ctrl_c_ends_the_training_early_with_the_best_state_so_far(data):
    def interrupt(report):
        if report.step == 3:
            raise KeyboardInterrupt

    model = spiral_demo.make_model(data.train, seed=0)
    outcome = spiral_demo.fit(model, data, seconds=600.0, seed=0, notify=interrupt)
    assert outcome.interrupted
    assert outcome.steps == 3
    assert outcome.error_after <= outcome.error_before


def test_a_loss_that_is_not_finite_is_an_error(data):
    broken = replace(data, train=replace(data.train, clean=torch.full_like(data.train.clean, torch.nan)))
    model = spiral_demo.make_model(data.train, seed=0)
    with pytest.raises(FloatingPointError, match="loss is nan after 1 step"):
        spiral_demo.fit(model, broken, seconds=5.0, seed=0)


def test_learning_rate_warms_up_and_ends_at_zero():
    peak = spiral_demo.LEARNING_RATE
    assert spiral_demo.learning_rate(0, 0.0) == pytest.approx(peak / spiral_demo.WARMUP_STEPS)
    assert spiral_demo.learning_rate(spiral_demo.WARMUP_STEPS, 0.0) == pytest.approx(peak)
    assert spiral_demo.learning_rate(1000, 0.5) == pytest.approx(peak / 2)
    assert spiral_demo.learning_rate(1000, 1.1) == pytest.approx(0.0)


def test_sets_have_nothing_in_common(data):
    slopes = torch.cat([data.train.b, data.validation.b, data.test.b])
    assert [len(data.train), len(data.validation), len(data.test)] == [50, 8, 20]
    assert len(slopes.unique()) == 78


def test_errors_are_of_the_two_halves():
    truth = torch.zeros(1, 4, 2)
    predicted = torch.tensor([[[3.0, 1.0], [3.0, 1.0], [0.0, 0.0], [0.0, 4.0]]])
    errors = spiral_demo.Errors.of(predicted, truth)
    assert errors.interpolation_rmse == pytest.approx(5**0.5)
    assert errors.interpolation_mae == pytest.approx(2.0)
    assert errors.extrapolation_rmse == pytest.approx(2.0)
    assert errors.extrapolation_mae == pytest.approx(1.0)


def test_known_formula_is_exact_without_noise_and_better_than_the_mean_with_it(data):
    exact = spiral_demo.generate_spirals(20, noise=0.0, alpha=0.1, end=spiral_demo.END)
    fitted = spiral_baselines.fitted_formula(exact, 0.1, 1e-3, spiral_demo.END)
    assert spiral_demo.rms(fitted - exact.clean) < 1e-3
    fitted = spiral_baselines.fitted_formula(data.test, spiral_demo.ALPHA, spiral_demo.NOISE, spiral_demo.END)
    mean = spiral_baselines.mean_curve(data.train, data.test)
    assert spiral_demo.rms(fitted - data.test.clean) < 0.5 * spiral_demo.rms(mean - data.test.clean)


def test_interpolation_holds_the_last_observation(data):
    held = spiral_baselines.through_observations("linear", data.test)[:, -1]
    assert torch.allclose(held, data.test.observed_values[:, -1])


def test_examples_are_the_first_of_each_direction(data):
    chosen = spiral_picture.examples(data.test)
    assert chosen.clockwise.tolist() == [False, False, True, True]
    assert torch.equal(chosen.b[:2], data.test.b[~data.test.clockwise][:2])
