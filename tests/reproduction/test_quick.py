"""The sample of all kinds: what leaves its range is said; and, slowly, that nothing does."""

import pytest

from reproduction import quick
from reproduction.experiments import Cell
from reproduction.quick import EXPECTED, Expectation, check


def test_a_number_out_of_range_is_a_problem(monkeypatch, tmp_path):
    cell = Cell("theorem", "generated", "8points", "vanilla", 0)
    monkeypatch.setattr(quick, "EXPECTED", [Expectation(cell, "largest_error", 1.0, 2.0)])
    (problem,), absent = check(tmp_path, lambda text: None)
    assert absent == 0
    assert "largest_error" in problem
    assert "expected 1 to 2" in problem


def test_a_cell_without_data_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("CONTIFORMER_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cell = Cell("uea", "Libras", "drop30", "contiformer", 0)
    monkeypatch.setattr(quick, "EXPECTED", [Expectation(cell, "accuracy", 0.5, 1.0)])
    said = []
    assert check(tmp_path / "results", said.append) == ([], 1)
    assert "no data" in said[0]


def test_there_is_a_cell_of_each_kind():
    assert {expected.cell.table for expected in EXPECTED} >= {
        *("theorem", "spirals", "uea", "events", "attention", "forecasting", "pendulum")
    }


@pytest.mark.slow
def test_the_sample_lies_where_it_should(tmp_path):
    assert check(tmp_path, print)[0] == []
