"""Evaluate, predict, plot and doctor."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contiformer.cli import doctor as doctor_module
from contiformer.cli.commands import as_options
from contiformer.cli.predict import parse_times
from contiformer.estimators import Blend, Classifier, Interpolator
from tests.cli.conftest import run

PNG = b"\x89PNG\r\n\x1a\n"


def _rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def _error(result, code):
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_evaluate_repeats_the_test_metrics_of_the_training(classified):
    folder, _, _ = classified
    result = run("evaluate", folder, "--json")
    assert result.exit_code == 0, result.output
    saved = json.loads((folder / "metrics.json").read_text())["test"]
    assert json.loads(result.stdout) == pytest.approx(saved)
    assert "6 series" in run("evaluate", folder).stdout


def test_evaluate_on_other_data(classified, table):
    folder, _, _ = classified
    found = json.loads(run("evaluate", folder, "--data", table, "--json").stdout)
    assert 0 <= found["accuracy"] <= 1
    assert found != json.loads((folder / "metrics.json").read_text())["test"]


def test_evaluate_without_a_test_part(interpolated, table):
    assert "no test part" in _error(run("evaluate", interpolated), 1)
    assert "rmse" in json.loads(run("evaluate", interpolated, "--data", table, "--json").stdout)


def test_folder_without_a_run_is_rejected(tmp_path):
    for command in (("evaluate",), ("plot",), ("predict", "--input", "x.csv")):
        assert "there is no such folder" in _error(run(command[0], tmp_path / "no", *command[1:]), 1)
        assert "no model is saved here" in _error(run(command[0], tmp_path, *command[1:]), 1)


def test_classes_and_probabilities(classified, table, tmp_path):
    folder, _, _ = classified
    without = tmp_path / "unlabelled.csv"
    pl.read_csv(table).drop("kind").write_csv(without)
    result = run("predict", folder, "--input", without)
    assert result.exit_code == 0, result.output
    rows = _rows(result.stdout)
    assert [row["who"] for row in rows] == sorted(f"p{n}" for n in range(24))
    expected = Classifier.load(folder).predict_proba(pl.read_csv(without))
    assert np.allclose([float(row["probability_up"]) for row in rows], expected["up"])
    assert {row["class"] for row in rows} <= {"up", "down"}


def test_values_at_any_times(interpolated, table, tmp_path):
    result = run("predict", interpolated, "--input", table, "--at", "0:2:0.5", "--output", tmp_path / "out.parquet")
    assert result.exit_code == 0, result.output
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found.columns == ["who", "t", "x", "x_std"]
    assert found.height == 24 * 5
    expected = Interpolator.load(interpolated).predict(pl.read_csv(table), at=[0, 0.5, 1, 1.5, 2])
    assert np.allclose(found["x"], expected["x"])
    rows = _rows(run("predict", interpolated, "--input", table, "--at", "1", "--quantiles", "0.1,0.9").stdout)
    assert all(float(row["x_q0.1"]) < float(row["x_q0.9"]) for row in rows)
    assert run("predict", interpolated, "--input", table, "--output", tmp_path / "out.json").exit_code == 0
    assert len(json.loads((tmp_path / "out.json").read_text())) == 24 * 8


def test_times_from_files(interpolated, table, tmp_path):
    (tmp_path / "times.txt").write_text("t\n1\n2.5\n")
    rows = _rows(run("predict", interpolated, "--input", table, "--at", tmp_path / "times.txt").stdout)
    assert [float(row["t"]) for row in rows[:2]] == [1, 2.5]
    own = "\n".join(f"p{n},{n}" for n in range(24))
    (tmp_path / "own.csv").write_text(f"who,t\n{own}\n")
    rows = _rows(run("predict", interpolated, "--input", table, "--at", tmp_path / "own.csv").stdout)
    assert [(row["who"], float(row["t"])) for row in rows] == sorted((f"p{n}", n) for n in range(24))


@pytest.mark.parametrize("at", ["noon", "0,x,1", "0:1:0", "0:x:1", "1:0:0.1", ""])
def test_wrong_times_are_rejected(at, interpolated, table):
    assert "--at" in _error(run("predict", interpolated, "--input", table, "--at", at), 2)


def test_ranges_have_both_ends():
    assert len(parse_times("0:1:0.1")) == 11
    assert parse_times("0:1:0.3").tolist() == pytest.approx([0, 0.3, 0.6, 0.9])
    assert parse_times("-1:1:1").tolist() == [-1, 0, 1]
    assert str(parse_times("2020-01-01,2020-01-02T12:00")[1]) == "2020-01-02 12:00:00"


def test_wrong_inputs_and_outputs_are_rejected(classified, interpolated, table, tmp_path):
    folder, _, _ = classified
    assert "--at" in _error(run("predict", folder, "--input", table, "--at", "1"), 2)
    assert "x.txt has to end in" in _error(run("predict", folder, "--input", table, "--output", "x.txt"), 2)
    there_is_none = tmp_path / "none" / "x.csv"
    assert "no such folder" in _error(run("predict", folder, "--input", table, "--output", there_is_none), 1)
    assert "no such file" in _error(run("predict", folder, "--input", tmp_path / "no.csv"), 1)
    other = tmp_path / "other.csv"
    pl.read_csv(table).rename({"x": "z"}).write_csv(other)
    assert "no column 'x'" in _error(run("predict", interpolated, "--input", other), 1)


def test_plots_of_classes(classified, tmp_path):
    folder, _, _ = classified
    result = run("plot", folder, "--output", tmp_path)
    assert result.exit_code == 0, result.output
    names = ["learning.png", "confusion.png", "reliability.png"]
    assert result.stdout.split() == [str(tmp_path / name) for name in names]
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in names)


def test_plots_of_validation_series_where_there_is_no_test_part(interpolated):
    result = run("plot", interpolated)
    assert result.exit_code == 0, result.output
    assert [Path(line).name for line in result.stdout.split()] == ["learning.png", "series.png"]
    assert (interpolated / "plots" / "series.png").read_bytes().startswith(PNG)


def test_missing_matplotlib_is_reported(interpolated, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "contiformer[plot]" in _error(run("plot", interpolated), 1)


def test_doctor_finds_everything_in_order():
    result = run("doctor")
    assert result.exit_code == 0, result.output
    for what in ("torch", "threads", "memory", "kernels", "devices", "data sets", "matplotlib", "self-test"):
        assert what in result.stdout
    assert "was trained, saved and loaded" in result.stdout


def test_doctor_fails_when_something_is_broken(monkeypatch):
    def broken():
        raise RuntimeError("no luck")
        yield

    monkeypatch.setattr(doctor_module, "_self_test", broken)
    monkeypatch.setattr(doctor_module, "NEEDED", ("torch", "no-such-package"))
    monkeypatch.setattr(doctor_module, "find_spec", lambda name: None)
    result = run("doctor")
    assert result.exit_code == 1
    assert "RuntimeError: no luck" in result.stdout
    assert "pip install no-such-package" in result.stdout
    assert "pip install 'contiformer[plot]'" in result.stdout


def test_advice_names_command_line_options():
    assert as_options('pass duplicates="mean", "first"') == 'pass --duplicates "mean", "first"'


def test_explain_as_a_table(classified, table, tmp_path):
    folder, _, _ = classified
    result = run("explain", folder, "--input", table, "--target", "up", "--output", tmp_path / "why.csv")
    assert result.exit_code == 0, result.output
    found = pl.read_csv(tmp_path / "why.csv")
    assert found.columns == ["who", "t", "channel", "value", "attribution", "rank"]
    assert found.height == 24 * 8
    expected = Classifier.load(folder).explain(pl.read_csv(table), target="up").table()
    assert np.allclose(found["attribution"], expected["attribution"], atol=1e-5)
    rows = _rows(run("explain", folder, "--input", table, "--series", "p7", "--method", "gradients").stdout)
    assert {row["who"] for row in rows} == {"p7"}
    assert "there is no series 'p77'" in _error(run("explain", folder, "--input", table, "--series", "p77"), 1)
    assert "method must be one of" in _error(run("explain", folder, "--input", table, "--method", "x"), 1)
    assert "has to end in" in _error(run("explain", folder, "--input", table, "--output", "a.txt"), 2)


def test_explain_as_a_picture(interpolated, table, tmp_path):
    words = ("explain", interpolated, "--input", table, "--at", "2.5", "--series", "p3")
    result = run(*words, "--output", tmp_path / "why.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "why.png").read_bytes().startswith(PNG)
    assert result.stdout.strip() == str(tmp_path / "why.png")
    coarse = run(*words, "--most-parts", "2")
    assert "windows of up to 4 consecutive observations" in coarse.stderr
    assert "pass --at" in _error(run("explain", interpolated, "--input", table), 1)


def test_explain_tells_limits_once(classified, table):
    result = run("explain", classified[0], "--data", table, "--most-parts", "2")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("windows of up to") == 1
    assert "following series" in result.stderr


def test_every_command_takes_a_blend(table, tmp_path):
    pytest.importorskip("matplotlib")
    members = [Classifier(backbone="boosting", backbone_options={"max_iter": 5}), Classifier(backbone="rocket")]
    frame = pl.read_csv(table)
    blend = Blend(members, folds=2, run_dir=tmp_path / "blend")
    blend.fit(frame, id="who", time="t", values=["x"], label="kind")
    folder, output = tmp_path / "blend", tmp_path / "risk.csv"
    assert run("predict", folder, "--input", table, "--output", output).exit_code == 0
    told = pl.read_csv(output).sort("who")
    ours = blend.predict_proba(frame).sort("who")
    np.testing.assert_allclose(told["probability_up"], ours["up"], rtol=1e-12)
    assert run("predict", folder, "--input", table, "--output", tmp_path / "parts").exit_code == 0
    found = json.loads(run("evaluate", folder, "--data", table, "--json").stdout)
    assert found == pytest.approx(blend.evaluate(frame))
    for command in ("report", "plot"):
        result = run(command, folder)
        assert result.exit_code == 0, result.output
    assert "a blend of boosting, rocket" in (folder / "report.html").read_text()
    assert "member0" in _error(run("explain", folder, "--input", table), 1)
    assert "member0" in _error(run("export", folder, "--to", "onnx"), 1)
