"""``python -m reproduction``: list, run, show, report."""

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from reproduction import experiments
from reproduction.__main__ import app
from reproduction.store import Store
from tests.reproduction import toy
from tests.reproduction.conftest import only_toy, toy_in_children  # noqa: F401

pytestmark = pytest.mark.usefixtures("only_toy")
SOUND = ("--backbones", "ours,rival")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results"


def _error(result, code):
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def _row(text, start):
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def test_list_tells_the_state_of_each(folder):
    fresh = run("list", "--output", folder)
    assert fresh.exit_code == 0, fresh.output
    assert _row(fresh.stdout, "toy").split()[-4:] == ["not", "begun", "not", "begun"]
    assert "0 / 24 / 36" in fresh.stdout
    run("toy", *SOUND, "--seeds", "0", "--output", folder)
    after = run("list", "--output", folder).stdout
    assert _row(after, "toy").split()[-3:] == ["partly", "not", "begun"]
    assert "8 / 24 / 36" in after
    assert not list(folder.rglob("quick"))


def test_every_experiment_can_be_listed(folder, monkeypatch):
    monkeypatch.undo()
    result = run("list", "--output", folder)
    assert result.exit_code == 0, result.output
    for name in experiments.EXPERIMENTS:
        assert _row(result.stdout, name)


def test_a_run_shows_its_table_and_is_not_repeated(folder):
    words = ("toy", *SOUND, "--datasets", "north", "--settings", "drop30", "--output", folder)
    first = run(*words)
    assert first.exit_code == 0, first.output
    assert "toy north drop30 ours seed 0: accuracy 0.7000" in first.stderr
    assert "cells: 4 run" in first.stderr
    assert "0.7500 ±0.0707 (2)" in first.stdout
    assert "best" in first.stdout
    second = run(*words)
    assert second.stderr == "cells: 4 finished before\n"
    assert second.stdout == first.stdout
    assert run(*words, "--show").stdout == first.stdout


def test_show_runs_nothing(folder):
    result = run("toy", "--show", "--protocol", "both", "--output", folder)
    assert result.exit_code == 0, result.output
    assert "honest protocol" in result.stdout
    assert "paper protocol" in result.stdout
    assert "0 of 36 cells, 24 more can be run here: not begun" in result.stdout
    assert not folder.exists()


def test_both_protocols_and_shards(folder):
    words = ("toy", *SOUND, "--protocol", "both", "--output", folder)
    assert run(*words, "--shard", "1/2").exit_code == 0
    half = len(Store(folder).rows("toy"))
    assert run(*words, "--shard", "2/2").exit_code == 0
    rows = Store(folder).rows("toy")
    assert (half, len(rows)) == (16, 32)
    assert Counter(row["protocol"] for row in rows) == {"honest": 16, "paper": 16}


def test_a_cell_that_fails_gives_a_bad_exit_code_and_the_rest_is_run(folder):
    result = run("toy", "--seeds", "0", "--output", folder)
    assert result.exit_code == 1
    assert "cells: 8 run, 6 without data, 4 failed" in result.stderr
    assert len(Store(folder).rows("toy")) == 8


def test_names_with_a_comma_can_be_chosen(folder):
    result = run("toy", "--backbones", "ours, broken, rival,rival", "--show", "--output", folder)
    assert "0 of 36 cells" in result.stdout
    result = run("toy", "--backbones", "broken, rival", "--show", "--output", folder)
    assert "0 of 12 cells" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("toi",), "'toi'; did you mean 'toy'? There are: list, report, quick, publish, boards, toy"),
        (("lisst",), "did you mean 'list'?"),
        (("toy", "--datasets", "nord"), "--datasets: 'nord'; did you mean 'north'?"),
        (("toy", "--settings", "drop40"), "--settings: 'drop40'; did you mean 'drop"),
        (("toy", "--backbones", "riva"), "--backbones: 'riva'; did you mean 'rival'?"),
        (("toy", "--seeds", "x"), "--seeds: 'x'; there are: 0, 1"),
        (("toy", "--seeds", ","), "--seeds: names nothing"),
        (("toy", "--budget", "huge"), "--budget: 'huge' is neither full nor quick"),
        (("toy", "--protocol", "paperr"), "--protocol: 'paperr': toy has honest and paper"),
        (("toy", "--shard", "3/2"), "--shard: '3/2' is not of the form 1/4"),
        (("toy", "--jobs", "0"), "--jobs"),
        (("toy", "--docs", "README.md"), "--docs: goes with report only"),
    ],
)
def test_wrong_words_get_one_line_that_helps(folder, words, told):
    assert told in _error(run(*words, "--output", folder), 2)
    assert not folder.exists()


def test_report_writes_the_page_and_fills_documents(folder, tmp_path):
    run("toy", *SOUND, "--output", folder)
    page = tmp_path / "page.md"
    page.write_text("<!-- table: toy-averages -->\n<!-- end -->\n")
    result = run("report", "--docs", page, "--output", folder)
    assert result.exit_code == 0, result.output
    written = re.findall(r"^wrote (.+)$", result.stdout, re.MULTILINE)
    assert written == [str(folder / name) for name in ("report.md", "report.html")] + [str(page)]
    assert "| ours | **0.7500** | **1.00** |" in page.read_text()
    page.write_text("<!-- table: toy-averagess -->\n<!-- end -->\n")
    error = _error(run("report", "--docs", page, "--output", folder), 1)
    assert "did you mean 'toy-averages'?" in error
    assert "there is no such file" in _error(run("report", "--docs", "nowhere.md", "--output", folder), 1)


def test_a_report_without_the_data_of_its_cells_warns(folder, monkeypatch):
    run("toy", *SOUND, "--seeds", "0", "--output", folder)
    assert not run("report", "--output", folder).stderr
    away = replace(toy.EXPERIMENT, absent=lambda cell: f"no data: {cell.data} is not here")
    monkeypatch.setattr(experiments, "get", lambda name: away)
    result = run("report", "--output", folder)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Cells were run on north, south, whose data are not here")
    assert "CONTIFORMER_DATA" in result.stderr


def test_quick_results_have_a_page_of_their_own(folder):
    run("toy", *SOUND, "--budget", "quick", "--output", folder)
    result = run("report", "--budget", "quick", "--output", folder)
    assert result.exit_code == 0, result.output
    assert "Quick trainings" in (folder / "quick" / "report.md").read_text()
    assert not (folder / "report.md").exists()
    assert "0.75" not in run("toy", "--show", "--output", folder).stdout


@pytest.mark.usefixtures("toy_in_children")
def test_jobs_share_the_cells(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("TOY_SECONDS", "0.2")
    words = ("toy", "--settings", "drop30", "--jobs", 2, "--output", folder)
    result = run(*words, "--backbones", "broken, rival,ours", "--datasets", "north,south")
    assert result.exit_code == 1
    runs = Counter((tmp_path / "log").read_text().splitlines())
    assert {count for cell, count in runs.items() if "ours" in cell} == {1}
    assert len(Store(folder).rows("toy")) == 4
    assert "0.7500 ±0.0707 (2)" in result.stdout


def test_help_names_what_there_is():
    result = subprocess.run(
        [sys.executable, "-m", "reproduction", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    for word in ("uea", "--protocol", "--shard", "reproduction list"):
        assert word in result.stdout
    assert "--worker" not in result.stdout
    assert toy.EXPERIMENT.name not in result.stdout.split()


def test_times_are_not_measured_side_by_side(monkeypatch):
    monkeypatch.setattr(toy, "EXPERIMENT", replace(toy.EXPERIMENT, alone=True))
    assert "measures time" in _error(run("toy", "--jobs", "2"), 2)
