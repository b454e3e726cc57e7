"""The accuracy benchmark: measured figures are kept, shown with their source, and not measured again."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks import accuracy
from benchmarks.__main__ import app
from benchmarks.accuracy import Case, measure, summary


def test_runs_are_written_one_by_one_and_not_repeated(monkeypatch, tmp_path):
    asked = []

    def run(seed, verbose):
        asked.append(seed)
        return {"accuracy": 0.5 + 0.1 * seed, "seconds": 1.0}

    monkeypatch.setitem(accuracy.CASES, "toy", Case("toy", "by hand", "accuracy", run))
    path = tmp_path / "not there yet" / "accuracy.json"
    said = []
    measure(["toy"], [0, 1], path, 0, said.append)
    rows = measure(["toy"], [0, 1, 2], path, 0, said.append)
    assert asked == [0, 1, 2]
    assert [row["seed"] for row in json.loads(path.read_text())] == [0, 1, 2]
    assert all({"cpu", "threads", "commit", "date"} <= set(row["machine"]) for row in rows)
    assert len(said) == 3
    (line,) = summary(rows)
    assert line == ("toy", "accuracy", "0.6", "0.5 0.6 0.7", "1", rows[0]["machine"]["commit"], "by hand")


def test_figures_are_shown_with_their_source(monkeypatch, tmp_path):
    monkeypatch.setitem(accuracy.CASES, "toy", Case("toy", "by hand", "mse", lambda seed, verbose: {"mse": 0.25}))
    done = CliRunner().invoke(app, ["accuracy", "--case", "toy", "--seeds", "1", "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "toy seed 0: mse 0.25" in done.stdout
    for text in ("by hand", "commit"):
        assert text in done.stdout


def test_every_case_has_its_recipe():
    assert {"RacketSports-0", "ILI-24", "pendulum", "spirals", "mortality"} <= set(accuracy.CASES)


@pytest.mark.parametrize(
    ("words", "told"), [(("accuracy", "--case", "toys"), "--case"), (("choices", "head"), "heads")]
)
def test_unknown_names_are_rejected(words, told):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert told in done.output
