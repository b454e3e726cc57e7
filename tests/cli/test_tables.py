"""Tables on the command line: measurements in rows, labels in another file, categories, missing labels, clock times."""

import csv
import io
import json

import numpy as np
import polars as pl
import pytest

from contiformer import Classifier, TrainingOptions
from contiformer.cli.source import SeriesSource
from contiformer.estimators.tables import Columns
from tests.cli.conftest import TINY, run

COLUMNS = ("--id", "who", "--time", "t")


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    """The table of all tests as measurements, and its labels in another file."""
    place, wide = tmp_path_factory.mktemp("measurements"), pl.read_csv(table)
    rows = wide.unpivot(["x", "twice"], index=["who", "t"], variable_name="test", value_name="result")
    rows.write_csv(place / "rows.csv")
    wide.group_by("who").agg(pl.col("kind").first()).sort("kind").write_csv(place / "labels.csv")
    return place


@pytest.fixture(scope="module")
def trained(folder):
    words = ("--variable", "test", "--value", "result", "--labels", folder / "labels.csv", "--test", "0.25")
    words = ("--data", folder / "rows.csv", *COLUMNS, *words, *TINY, "--output", folder / "run")
    result = run("train", "classification", *words)
    assert result.exit_code == 0, result.output
    return folder / "run"


def test_measurements_and_labels_of_two_files(trained, folder, table):
    result = run("predict", trained, "--input", folder / "rows.csv")
    assert result.exit_code == 0, result.output
    said = Classifier.load(trained).predict_proba(pl.read_csv(folder / "rows.csv"))
    assert [row["who"] for row in rows_of(result.stdout)] == said["who"].to_list()
    assert np.allclose([float(row["probability_up"]) for row in rows_of(result.stdout)], said["up"])
    other = pl.read_csv(folder / "labels.csv").rename({"kind": "outcome"}).with_columns(age=1)
    other.write_csv(folder / "other.csv")
    asked = ("evaluate", trained, "--data", folder / "rows.csv", "--json")
    same = run(*asked, "--labels", folder / "labels.csv")
    assert same.exit_code == 0, same.output
    # beside --data no path comes from run.json
    assert "no series has a label; pass y (or --labels FILE)" in run(*asked).stderr
    assert run(*asked, "--labels", folder / "other.csv", "--label", "outcome").stdout == same.stdout
    wrong = run(*asked, "--labels", folder / "other.csv", "--label", "out")
    assert wrong.exit_code == 1
    assert "other.csv: the file has the columns who, outcome, age, not 'out'; name the one" in wrong.stderr
    assert "--label" in wrong.stderr
    own = run("evaluate", trained)
    assert own.exit_code == 0
    assert f"note: reading {folder / 'rows.csv'}, which run.json names" in " ".join(own.stderr.split())
    # a series without any of the variables is answered as well
    (folder / "strange.csv").write_text("who,t,test,result\na,0,x,1\nb,0,mood,fine\n")
    strange = run("predict", trained, "--input", folder / "strange.csv")
    assert [row["who"] for row in rows_of(strange.stdout)] == ["a", "b"], strange.output


def test_missing_ids_and_labels(folder, tmp_path):
    labels = pl.read_csv(folder / "labels.csv")
    words = ("--data", folder / "rows.csv", *COLUMNS, "--variable", "test", "--value", "result", *TINY)
    labels[:-1].write_csv(tmp_path / "fewer.csv")
    result = run("train", "classification", *words, "--labels", tmp_path / "fewer.csv", "--output", tmp_path / "a")
    assert result.exit_code == 1
    assert "fewer.csv: the file has no label for 'p" in result.stderr
    some = labels.with_columns(kind=pl.when(pl.col("who") == "p3").then(None).otherwise(pl.col("kind")))
    some.write_csv(tmp_path / "some.csv")
    unlabelled = ("--labels", tmp_path / "some.csv", "--test", "0.25", "--output", tmp_path / "b")
    result = run("train", "classification", *words, *unlabelled)
    assert result.exit_code == 0, result.output
    assert "Warning: 1 of 24 series have no label and are left out, the first of them 'p3'" in result.stderr
    result = run("train", "interpolation", *words, "--output", tmp_path / "c")
    assert result.exit_code == 0, result.output
    for option in ("--variable", "--labels"):
        result = run("train", "events", "--data", "hawkes", option, folder / "labels.csv")
        assert f"{option}: events does not use this option" in result.stderr


def test_advice_for_text_in_a_column_of_values(folder, tmp_path):
    result = run("train", "interpolation", "--data", folder / "rows.csv", *COLUMNS, *TINY, "--output", tmp_path)
    assert result.exit_code == 1
    assert "rows.csv, row 2, column 'test': 'x' is not a number" in result.stderr
    for option in ("--values", "--categorical", "--variable", "--value"):
        assert f" {option}" in result.stderr


def test_categories(table, tmp_path):
    frame = pl.read_csv(table).with_columns(ward=pl.when(pl.col("x") > 0).then(pl.lit("ICU")).otherwise(pl.lit("ER")))
    frame.write_csv(tmp_path / "wards.csv")
    roles = ("--values", "x,ward", "--categorical", "ward", "--label", "kind")
    words = ("--data", tmp_path / "wards.csv", *COLUMNS, *roles)
    result = run("train", "classification", *words, "--test", "0.25", *TINY, "--output", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert Classifier.load(tmp_path / "run").schema_.channels == ("x", "ward=ER", "ward=ICU")
    frame.with_columns(ward=pl.lit("home")).write_csv(tmp_path / "new.csv")
    result = run("predict", tmp_path / "run", "--input", tmp_path / "new.csv")
    assert result.exit_code == 0, result.output
    assert "Warning: row 2, column 'ward': 'home' was not there in training" in result.stderr


def test_clock_times_and_zones_come_back_as_they_were(table, tmp_path):
    frame = pl.read_csv(table)
    minutes = (60 * frame["t"]).cast(int)
    texts = {
        "clock": [f"{m // 60:02d}:{m % 60:02d}" for m in minutes],
        "zoned": [f"2024-03-01T{m // 60:02d}:{m % 60:02d}:00+01:00" for m in minutes],
    }
    asked_and_said = (("clock", "01:30", "01:30:00"), ("zoned", "2024-03-01T01:30+01:00", "2024-03-01T00:30:00"))
    for name, asked, back in asked_and_said:
        path = tmp_path / f"{name}.csv"
        frame.with_columns(t=pl.Series(texts[name])).write_csv(path)
        words = ("--data", path, *COLUMNS, "--values", "x", "--duplicates", "mean", *TINY, "--output", tmp_path / name)
        result = run("train", "interpolation", *words)
        assert result.exit_code == 0, result.output
        result = run("predict", tmp_path / name, "--input", path, "--at", asked, "--output", tmp_path / "out.csv")
        assert result.exit_code == 0, result.output
        said = pl.read_csv(tmp_path / "out.csv", infer_schema=False)
        assert said["t"][0].startswith(back)
        again = run("predict", tmp_path / name, "--input", tmp_path / "out.csv")
        assert again.exit_code == 0, again.output
    (tmp_path / "times.txt").write_text("t\n1\n")
    for at, said in (("1.5", "give dates"), (tmp_path / "times.txt", "give dates"), ("2024-03-01T01:30", "time zone")):
        result = run("predict", tmp_path / "zoned", "--input", tmp_path / "zoned.csv", "--at", at)
        assert result.exit_code != 0
        assert said in result.stderr
    result = run("predict", tmp_path / "clock", "--input", tmp_path / "clock.csv", "--at", "1.5")
    assert "the run was trained on durations: give durations, such as 01:30" in result.stderr


def test_a_source_comes_back_from_json():
    source = SeriesSource("/a.csv", Columns("who", "t", ("x",), duplicates="mean"), drop=0.1)
    assert SeriesSource.from_dict(json.loads(json.dumps(source.to_dict()))) == source


def test_commands_and_estimators_train_the_same_model(table, tmp_path):
    """Series are in the order of their ids everywhere, whatever the order of the rows."""
    shuffled = pl.read_csv(table).sample(fraction=1.0, shuffle=True, seed=3)
    shuffled.write_csv(tmp_path / "shuffled.csv")
    words = (*COLUMNS, "--values", "x", "--label", "kind", *TINY, "--output", tmp_path / "run")
    result = run("train", "classification", "--data", tmp_path / "shuffled.csv", *words)
    assert result.exit_code == 0, result.output
    quick = TrainingOptions(max_epochs=2, min_steps=0, verbose=0)
    same = Classifier(d_model=8, training=quick).fit(shuffled, id="who", time="t", values=["x"], label="kind")
    said = Classifier.load(tmp_path / "run").predict_proba(shuffled)
    assert said.equals(same.predict_proba(pl.read_csv(table)))


def test_tables_with_semicolons(table, tmp_path):
    pl.read_csv(table).write_csv(tmp_path / "waves.csv", separator=";")
    words = (*COLUMNS, "--values", "x", "--label", "kind", *TINY, "--output", tmp_path / "run")
    result = run("train", "classification", "--data", tmp_path / "waves.csv", *words)
    assert result.exit_code == 0, result.output
    said = run("predict", tmp_path / "run", "--input", table).stdout
    # --data as in train and evaluate
    assert run("predict", tmp_path / "run", "--data", tmp_path / "waves.csv").stdout == said != ""
