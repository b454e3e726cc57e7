"""Events on the command line: train, evaluate, predict, plot and bench."""

import csv
import io
import json
import shutil

import numpy as np
import polars as pl
import pytest

from benchmarks import events as event_speed
from contiformer.data.readers.jsonl import write_events
from contiformer.data.synthetic import hawkes_set
from contiformer.estimators import EventPredictor
from contiformer.plots.events import exponential_distance
from tests.cli.conftest import TINY, run

COLUMNS = ("--id", "customer", "--time", "hour", "--type", "product")
PNG = b"\x89PNG\r\n\x1a\n"


def _error(result, code):
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: ")
    return result.stderr


@pytest.fixture(scope="session")
def sequences():
    return hawkes_set(12, seed=2).map(lambda one: one.events(slice(0, 12)))


@pytest.fixture(scope="session")
def orders(sequences, tmp_path_factory):
    path = tmp_path_factory.mktemp("events") / "orders.csv"
    rows = [
        {"customer": f"c{n}", "hour": round(float(time), 4), "product": ("tea", "jam")[kind]}
        for n, one in enumerate(sequences)
        for time, kind in zip(one.times, one.types, strict=True)
    ]
    pl.DataFrame(rows).write_csv(path)
    return path


@pytest.fixture(scope="session")
def ordered(orders, tmp_path_factory):
    """A finished run with a test part."""
    folder = tmp_path_factory.mktemp("runs") / "ordered"
    words = ("train", "events", "--data", orders, *COLUMNS, "--test", "0.25", *TINY, "--output", folder)
    result = run(*words)
    assert result.exit_code == 0, result.output
    return folder, words, result


@pytest.fixture(scope="session")
def hawkes(orders, tmp_path_factory):
    """A finished run without a test part, of the model that is not trained by steps."""
    folder = tmp_path_factory.mktemp("runs") / "hawkes"
    result = run("train", "events", "--data", orders, *COLUMNS, "--backbone", "hp", "--output", folder)
    assert result.exit_code == 0, result.output
    assert "history.csv" not in result.stdout
    return folder


def test_a_run_has_its_files_and_metrics(ordered):
    folder, words, result = ordered
    assert "9 sequences to train and validate on" in result.stderr
    for word in ("log_likelihood", "accuracy", "rmse", f"contiformer predict {folder}"):
        assert word in result.stdout
    start = json.loads((folder / "run.json").read_text())
    assert start["task"] == "events"
    assert start["data"]["columns"]["type"] == "product"
    assert start["parameters"]["d_model"] == 8
    again = run(*words)
    assert again.exit_code == 0
    assert "is finished" in again.stdout
    assert "backbone contiformer (now thp)" in _error(run(*words, "--backbone", "thp"), 1)


def test_stopped_run_resumes(ordered, tmp_path):
    folder, words, _ = ordered
    other = tmp_path / "stopped"
    shutil.copytree(folder, other)
    for name in ("config.json", "model.safetensors", "metrics.json"):
        (other / name).unlink()
    assert "not finished" in _error(run("evaluate", other), 1)
    result = run(*words[:-1], other)
    assert result.exit_code == 0, result.output
    assert "going on after epoch 2" in result.stderr
    assert (other / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_set_of_the_catalogue_has_its_parts(monkeypatch, sequences, tmp_path):
    asked = []

    def load(name, *, fold, split):
        asked.append((name, fold, split))
        return sequences[{"train": slice(0, 6), "dev": slice(6, 8), "test": slice(8, 12)}[split]]

    monkeypatch.setattr("contiformer.data.catalog.load_events", load)
    monkeypatch.chdir(tmp_path)
    result = run("train", "events", "--data", "mimic-ii", "--fold", "2", "--backbone", "rmtpp", *TINY)
    assert result.exit_code == 0, result.output
    assert asked == [("MIMIC-II", 2, part) for part in ("train", "dev", "test")]
    folder = tmp_path / "runs" / "events-MIMIC-II-rmtpp-fold2-seed0"
    assert set(json.loads((folder / "metrics.json").read_text())) >= {"validation", "test"}
    assert "4 sequences" in run("evaluate", folder).stdout
    assert "4 sequences" in run("evaluate", folder, "--data", "MIMIC-II").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--data", "Neonat"), 1, "did you mean 'Neonate'"),
        (("--data", "BasicMotions"), 1, "BasicMotions is a set for classification, not of events"),
        (("--data", "nowhere.csv"), 1, "nowhere.csv: there is no such file"),
        (("--data", "nowhere.jsonl.gz"), 1, "nowhere.jsonl.gz: there is no such file"),
        (("--data", "MIMIC-II", "--fold", "9"), 1, "MIMIC-II has no fold 9; pass a fold from 1 to 5"),
        (("--data", "Taxi", "--fold", "2"), 1, "this set has one split"),
        (("--data", "Taxi", "--test", "0.2"), 1, "Taxi has a test part of its own"),
        (("--data", "hawkes", "--test", "1.5"), 1, "1.5 is not a share"),
        (("--data", "hawkes", "--test", "no.csv"), 1, "no.csv: there is no such file"),
        (("--data", "hawkes", "--fold", "1"), 1, "has no folds"),
        (("--data", "hawkes", "--fold", "0"), 2, "--fold"),
        (("--data", "hawkes", "--backbone", "hpp"), 2, "there is no backbone 'hpp'"),
        (("--data", "hawkes", "--set", "intensity=fast"), 1, "intensity must be one of"),
        (("--data", "hawkes", "--backbone", "hp", "--set", "intensity=thp"), 1, "an intensity of its own"),
        (("--data", "hawkes", "--set", "d_modl=3"), 2, "did you mean 'd_model'"),
        (("--data", "hawkes", "--set", "integral=simpson"), 2, "integral must be 'closed' or 'gauss'"),
        (("--data", "hawkes", "--set", "learning_rate=-1"), 1, "learning_rate must be positive"),
        (("--data", "hawkes", "--label", "x"), 2, "--label: events does not use this option"),
        (("--data", "hawkes", "--drop", "0.3"), 2, "--drop: events does not use this option"),
        (("--data", "hawkes", "--config", "nowhere.yaml"), 1, "nowhere.yaml: there is no such file"),
    ],
)
def test_wrong_options_are_reported_in_one_line(words, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in _error(run("train", "events", *words), code)
    assert list(tmp_path.iterdir()) == []


def test_series_reject_options_of_events(table):
    for option in (("--type", "kind"), ("--fold", "1")):
        words = ("train", "classification", "--data", table, "--time", "t", *option)
        assert "classification does not use this option" in _error(run(*words), 2)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (("--id", "customr", "--time", "hour"), "no column 'customr'; did you mean 'customer'"),
        (("--id", "customer", "--time", "hours"), "no column 'hours'; did you mean 'hour'"),
        (("--time", "hour", "--type", "what"), "no column 'what'"),
        (
            ("--id", "customer"),
            "the time column is not named; pass --time, --id if there are several sequences, --type",
        ),
        (("--time", "product"), "row 2, column 'product': 'tea' is not a time"),
        (("--time", "hour", "--values", "product"), "is not a number"),
    ],
)
def test_wrong_columns_are_named(columns, said, orders, tmp_path):
    error = _error(run("train", "events", "--data", orders, *columns, *TINY, "--output", tmp_path / "run"), 1)
    assert said in error


def test_one_sequence_is_divided_along_time(orders, tmp_path):
    words = ("train", "events", "--data", orders, "--time", "hour", "--type", "product", "--set", "backbone=hp")
    result = run(*words, "--test", "0.25", *TINY, "--output", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert (
        "Warning: the table is read as one sequence: if it has several, name the column of ids in --id" in result.stderr
    )
    assert run("evaluate", tmp_path / "run").exit_code == 0


def test_damaged_files_are_named(orders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"times": [1, 2]}\n{"times": "no"}\n')
    assert f"{broken}, row 2: there is no list" in _error(run("train", "events", "--data", broken), 1)
    late = tmp_path / "late.csv"
    late.write_text("customer,hour,product\na,1,tea\na,,jam\n")
    words = ("train", "events", "--data", late, *COLUMNS, "--output", tmp_path / "run")
    assert "late.csv, row 3, column 'hour': the time is missing" in _error(run(*words), 1)
    unread = tmp_path / "table.xlsx"
    unread.write_text("")
    assert "no reader of events for .xlsx" in _error(run("train", "events", "--data", unread), 1)
    # a test file is read before the training
    late.write_text("customer,hour,product\na,1,tea\na,2,coffee\n")
    result = run("train", "events", "--data", orders, *COLUMNS, "--test", late, "--output", tmp_path / "other")
    assert "late.csv, row 3, column 'product': the type 'coffee' was not there in training" in _error(result, 1)


def test_evaluate(ordered, orders, hawkes, sequences, tmp_path):
    folder, _, _ = ordered
    saved = json.loads((folder / "metrics.json").read_text())["test"]
    assert json.loads(run("evaluate", folder, "--json").stdout) == pytest.approx(saved)
    assert "3 sequences" in run("evaluate", folder).stdout
    whole = json.loads(run("evaluate", folder, "--data", orders, "--json").stdout)
    assert whole["events"] == sum(len(one) - 1 for one in sequences)
    renamed = tmp_path / "renamed.parquet"
    pl.read_csv(orders).rename({"customer": "id", "hour": "t", "product": "what"}).write_parquet(renamed)
    columns = ("--id", "id", "--time", "t", "--type", "what")
    found = json.loads(run("evaluate", folder, "--data", renamed, *columns, "--json").stdout)
    assert found == pytest.approx(whole)
    lined = tmp_path / "orders.jsonl.gz"
    write_events(sequences, lined)
    assert json.loads(run("evaluate", folder, "--data", lined, "--json").stdout)["events"] == whole["events"]
    assert "no test part" in _error(run("evaluate", hawkes), 1)
    assert "--label: events does not use this option" in _error(
        run("evaluate", folder, "--data", orders, "--label", "x"), 2
    )
    assert "no column 'hour'" in _error(run("evaluate", folder, "--data", renamed), 1)


def test_predict(ordered, orders, tmp_path):
    folder, _, _ = ordered
    result = run("predict", folder, "--input", orders)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["customer"] for row in rows] == sorted(f"c{n}" for n in range(12))
    assert {row["type"] for row in rows} <= {"tea", "jam"}
    expected = EventPredictor.load(folder).predict_next(pl.read_csv(orders))
    assert np.allclose([float(row["expected_time"]) for row in rows], expected["expected_time"])
    ahead = tmp_path / "ahead.parquet"
    result = run("predict", folder, "--input", orders, "--n", "2", "--output", ahead)
    assert result.exit_code == 0, result.output
    assert pl.read_parquet(ahead).height == 24
    for words, code, said in (
        (("--at", "1"), 2, "--at"),
        (("--quantiles", "0.1"), 2, "--quantiles"),
        (("--n", "0"), 2, "--n"),
        (("--output", tmp_path / "x.txt"), 2, "has to end in .csv, .parquet or .json"),
        (("--time", "when"), 1, "no column 'when'"),
    ):
        assert said in _error(run("predict", folder, "--input", orders, *words), code)
    assert "there is no such file" in _error(run("predict", folder, "--input", "no.csv"), 1)


def test_dates_stay_dates(orders, hawkes, tmp_path):
    dated = tmp_path / "dated.csv"
    hours = pl.duration(microseconds=(pl.col("hour") * 3.6e9).cast(pl.Int64))
    pl.read_csv(orders).with_columns(hour=pl.datetime(2024, 1, 1) + hours).write_csv(dated)
    folder = tmp_path / "run"
    result = run("train", "events", "--data", dated, *COLUMNS, "--backbone", "hp", "--output", folder)
    assert result.exit_code == 0, result.output
    assert run("predict", folder, "--input", dated).stdout.splitlines()[1].count("2024-01-") == 3
    assert "times of X are numbers" in _error(run("predict", folder, "--input", orders), 1)
    assert "times of X are dates" in _error(run("predict", hawkes, "--input", dated), 1)


def test_runs_of_series_reject_options_of_events(classified, table):
    folder, _, _ = classified
    assert "--n" in _error(run("predict", folder, "--input", table, "--n", "2"), 2)
    assert "--type" in _error(run("evaluate", folder, "--data", table, "--type", "kind"), 2)


def test_plot(ordered, hawkes, tmp_path):
    result = run("plot", ordered[0], "--output", tmp_path)
    assert result.exit_code == 0, result.output
    names = {"learning.png", "intensity.png", "gaps.png", "residuals.png", "confusion.png"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.iterdir())
    result = run("plot", hawkes)
    assert result.exit_code == 0, result.output
    assert {line.rpartition("/")[2] for line in result.stdout.split()} == names - {"learning.png"}


def test_the_distance_of_residuals():
    right = -np.log1p(-(np.arange(1000) + 0.5) / 1000)
    assert exponential_distance(right) == pytest.approx(0.0005)
    assert exponential_distance(2 * right) == pytest.approx(0.25, abs=0.002)


def test_event_speed_benchmark(monkeypatch, sequences):
    monkeypatch.setattr(event_speed, "load_events", lambda name: sequences)
    document = event_speed.run(budget=0.1, history=30, sets={"MIMIC-II": 4})
    assert [line[0] for line in event_speed.rows(document)] == [
        "epoch of MIMIC-II, 4 sequences",
        "its likelihood alone",
        "append at history 30",
    ]
    assert 0 < document["epochs"]["MIMIC-II"]["likelihood_share"] < 1


def test_explain(hawkes, orders, tmp_path):
    result = run("explain", hawkes, "--input", orders, "--output", tmp_path / "why.csv")
    assert result.exit_code == 0, result.output
    found = pl.read_csv(tmp_path / "why.csv")
    assert found.columns == ["customer", "hour", "product", "attribution", "rank"]
    assert found["attribution"].abs().max() > 0
    assert "--hide" in _error(run("explain", hawkes, "--input", orders, "--hide", "time"), 2)


def test_next_events_are_evaluated(hawkes, orders, classified):
    found = json.loads(run("evaluate", hawkes, "--data", orders, "--n", "3", "--json").stdout)
    assert 0 <= found["tmap"] <= 1
    assert 0 <= found["otd"] <= 6
    assert run("evaluate", classified[0], "--n", "3").exit_code == 2
