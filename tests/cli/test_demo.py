from __future__ import annotations

import csv
import json

import pytest
import torch

from contiformer.cli import demo as spiral_demo
from tests.cli.conftest import run


@pytest.fixture(scope="module")
def data():
    return spiral_demo.make_data(seed=0, n_train=50)


@pytest.fixture(scope="module")
def demo(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spiral_demo, "make_data", lambda seed: data)
        yield folder, run("demo", "--epochs", "1", "--output", folder)


def test_demo_prints_errors_and_draws(demo):
    folder, result = demo
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == str(folder / "spirals.png")
    assert (folder / "spirals.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    for row in ("linear interpolation", "natural cubic spline", "mean training curve", "ContiFormer", "formula known"):
        errors = next(line for line in lines if row in line).split("│")[2:6]
        assert all(float(error) > 0 for error in errors)
    assert "seed 0, 30 observations per spiral" in result.stdout


def test_suggested_commands_work(demo):
    folder, result = demo
    commands = [line.split()[1:] for line in result.stdout.splitlines() if line.strip().startswith("contiformer ")]
    assert [words[0] for words in commands] == ["evaluate", "predict", "plot"]
    for words in commands:
        done = run(*words)
        assert done.exit_code == 0, done.output
    with (folder / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 101


def test_evaluate_is_on_the_spirals_of_the_table(demo, data):
    folder, result = demo
    row = next(line for line in result.stdout.splitlines() if "ContiFormer" in line).split("│")
    rmse = ((float(row[2]) ** 2 + float(row[4]) ** 2) / 2) ** 0.5
    found = json.loads(run("evaluate", folder / "run-seed0-epochs1", "--json").stdout)
    spread = float(torch.cat([torch.from_numpy(one.target_values) for one in data.training]).std(0).mean())
    assert found["rmse"] * spread == pytest.approx(rmse, rel=0.05)


def test_quiet_prints_only_the_path(demo, tmp_path):
    folder, _ = demo
    assert run("demo", "--epochs", "1", "--quiet", "--output", folder).output == f"{folder / 'spirals.png'}\n"


def test_sets_have_nothing_in_common(data):
    parts = (data.training, data.validation, data.testing)
    assert [len(part) for part in parts] == [50, spiral_demo.VALIDATION, spiral_demo.TEST]
    assert len({name for part in parts for name in part.ids}) == sum(map(len, parts))
    assert len(data.training[0].target_times) == spiral_demo.QUERIES
    assert torch.equal(torch.from_numpy(data.testing[3].target_values), data.test.clean[3])


def test_errors_are_of_the_two_halves():
    truth = torch.zeros(1, 4, 2)
    predicted = torch.tensor([[[3.0, 1.0], [3.0, 1.0], [0.0, 0.0], [0.0, 4.0]]])
    assert spiral_demo.errors(predicted, truth) == pytest.approx([5**0.5, 2.0, 2.0, 1.0])


def test_known_formula_is_exact_without_noise_and_better_than_the_mean_with_it(data):
    exact = spiral_demo.generate_spirals(20, noise=0.0, alpha=0.1, end=spiral_demo.END)
    fitted = spiral_demo.fitted_formula(exact, 0.1, 1e-3, spiral_demo.END)
    assert spiral_demo.rms(fitted - exact.clean) < 1e-3
    fitted = spiral_demo.fitted_formula(data.test, spiral_demo.ALPHA, spiral_demo.NOISE, spiral_demo.END)
    mean = spiral_demo.mean_curve(data.train, data.test)
    assert spiral_demo.rms(fitted - data.test.clean) < 0.5 * spiral_demo.rms(mean - data.test.clean)


def test_interpolation_holds_the_last_observation(data):
    held = spiral_demo.through_observations("linear", data.test)[:, -1]
    assert torch.allclose(held, data.test.observed_values[:, -1])


def test_examples_are_the_first_of_each_direction(data):
    chosen = data.test[spiral_demo.examples(data.test)]
    assert chosen.clockwise.tolist() == [False, False, True, True]
    assert torch.equal(chosen.b[:2], data.test.b[~data.test.clockwise][:2])
