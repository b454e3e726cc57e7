"""Sweeps: paired differences and their tables."""

from __future__ import annotations

import pytest

from reproduction.experiments import STATIC_TWIN, Cell, Experiment, Metric, Outcome
from reproduction.results import Results
from reproduction.sweeps import Sweep, metric_sheets, paired, samplings_of, sweep_sheets, swept
from tests.reproduction import toy

SWEEPS = {
    "far": Sweep("distance", "error", {1: ("a", "near"), 2: ("a", "far")}),
    "drop": Sweep("dropped", "error", {0.5: ("b", "near")}),
}


def results(errors):
    """Of rows with one error for each model and seed, twice as large at a distance."""
    rows = {}
    for (model, seed), error in errors.items():
        cell = Cell("curves", "a", "b", model, seed)
        sweeps = swept(SWEEPS, {"a": {"near": error, "far": 2 * error}, "b": {"near": error}})
        rows[cell] = toy.row(cell, error=error) | {"details": {"sweeps": sweeps}}
    metric = Metric("error", "error", "min")
    experiment = Experiment("curves", "Curves", (metric,), lambda protocol: list(rows), lambda *_: Outcome({}))
    return Results(experiment, "honest", tuple(rows), rows)


def test_differences_are_paired_by_seed():
    found = {
        "contiformer": {0: [1.0, 3.0], 1: [2.0, 5.0], 7: [9.0, 9.0]},
        "transformer": {1: [1.0, 1.0], 0: [1.0, 1.0]},
    }
    first, second = paired(found, "transformer")
    assert (first.mean, first.n) == (0.5, 2)
    assert first.error == pytest.approx(0.5)
    assert (second.mean, second.error) == (3.0, pytest.approx(1.0))
    assert paired(found, STATIC_TWIN) == []
    found["transformer"] = {3: [1.0, 1.0]}
    assert paired(found, "transformer") == []


def test_samplings_are_judged_once():
    assert samplings_of(SWEEPS) == ["a", "b"]


def test_tables_have_differences_below_the_models():
    errors = {("contiformer", 0): 1.0, ("contiformer", 1): 2.0, (STATIC_TWIN, 0): 1.5, (STATIC_TWIN, 1): 2.7}
    errors |= {("transformer", 0): 3.0}
    differences, means = metric_sheets(results(errors))
    texts = [entry.text for entry in differences.lines[0]]
    assert texts == ["a b", "error", "1.500", "-0.600 ±0.100 (2)", "-2.000 (1)"]
    assert [[entry.text for entry in line] for line in means.lines] == [
        ["contiformer", "2", "1.500 ±0.500"],
        [STATIC_TWIN, "2", "2.100 ±0.600"],
        ["transformer", "1", "3.000"],
    ]
    far, drop = sweep_sheets(results(errors), SWEEPS)
    assert [line[0].text for line in far.lines] == [
        "contiformer (2)",
        f"{STATIC_TWIN} (2)",
        "transformer (1)",
        f"contiformer - {STATIC_TWIN} (2)",
        "contiformer - transformer (1)",
    ]
    assert [entry.text for entry in far.lines[3][1:]] == ["-0.600 ±0.100", "-1.200 ±0.200"]
    assert [entry.strong for entry in far.lines[0][1:]] == [True, True]
    assert drop.columns == ("model", "0.5")


def test_one_model_alone_has_no_differences():
    alone = results({("mtan", 0): 1.0})
    assert [len(sheet.lines) for sheet in (*metric_sheets(alone), *sweep_sheets(alone, SWEEPS))] == [1, 1, 1]
