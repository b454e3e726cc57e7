"""The grids of the paper's tables, and cells of them on small data."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.recipes import plane_errors
from contiformer import EventPredictor
from contiformer.data import EventSequence, EventSet
from contiformer.data.catalog import storage
from contiformer.data.synthetic import hawkes_set, oscillator_set
from contiformer.nn import attention
from reproduction import (
    ablations,
    efficiency,
    events,
    experiments,
    headwise,
    pendulum,
    spirals,
    step_size,
    theorem,
    uea,
)
from reproduction.experiments import Cell, _not_here, best_epoch, not_here
from reproduction.paper import printed
from reproduction.results import Results
from reproduction.running import run_cells
from reproduction.store import Store


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_cells_are_different_and_have_different_files(name):
    experiment = experiments.get(name)
    assert experiment.name == name
    for protocol in experiment.protocols:
        cells = experiment.grid(protocol)
        assert len({cell.path for cell in cells}) == len(set(cells)) == len(cells) > 0
        # the figure of costs shows the cells of a table
        assert {cell.table for cell in cells} == {"efficiency" if name == "fig-cost" else name}
        assert {cell.protocol for cell in cells} == {protocol}


def test_sizes_of_the_grids():
    assert len(uea.EXPERIMENT.grid("honest")) == 20 * 3 * 11 * 3
    assert len(events.EXPERIMENT.grid("honest")) == len(events.MODELS) * (4 + 4 + 5 + 5 + 5 + 3)
    assert len(events.SIGNIFICANCE.grid("honest")) == 10 * 2 * 7
    assert len(spirals.EXPERIMENT.grid("honest")) == 3 * 3 * 8
    assert {cell.seed for cell in events.EXPERIMENT.cells(datasets=["Taxi"])} == {0, 1, 2}
    assert {cell.setting for cell in events.EXPERIMENT.cells(datasets=["Neonate"])} == {
        f"fold{n}" for n in (1, 2, 3, 4)
    }


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_our_names_are_those_of_the_paper_s_numbers(name):
    """A model or setting that is spelled differently would stand beside nothing."""
    known = {"uea", "spirals", "forecasting", "events", "events-significance", "pendulum", *ablations.VARIANTS}
    if name not in known:
        return
    experiment = experiments.get(name)
    cells = [cell for cell in experiment.grid("honest") if cell.data != "Taxi" and ":" not in cell.model]
    ours = {"exact"}  # the paper has no exact integral
    missing = {
        (cell.data, cell.model)
        for cell in cells
        if cell.model not in ours
        and printed(name, cell.data, cell.setting, cell.model, experiment.metrics[0].key) is None
    }
    too_slow_for_the_paper = {pair for pair in missing if pair[1] in ("step0.01", "step0.005")}
    assert missing == too_slow_for_the_paper


@pytest.fixture
def small_series(monkeypatch):
    data = oscillator_set(24, seed=1)
    labelled = data.map(lambda one: replace(one, label=str(int(one.values[0, 0] > 0))))
    monkeypatch.setattr(uea, "load_uea", lambda name, part: labelled)
    monkeypatch.setattr(uea, "QUICK", {"min_steps": 6, "epochs": 2, "d_model": 8})


@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_a_cell_of_classification(small_series, protocol, tmp_path):
    store = Store(tmp_path, "quick")
    cell = Cell("uea", "Libras", "drop30", "gru_dt", 0, protocol)
    run_cells(replace(uea.EXPERIMENT, absent=lambda cell: None), [cell], store, notify=lambda text: None)
    row = store.read(cell)
    assert 0 <= row["metrics"]["accuracy"] <= 1
    assert row["configuration"]["backbone"] == "gru_dt"
    assert row["budget"] == "quick"
    assert {"cpu", "threads", "torch", "commit", "date"} <= set(row["machine"])
    if protocol == "paper":
        assert row["metrics"]["accuracy"] >= row["metrics"]["last_accuracy"]


@pytest.mark.parametrize("model", efficiency.ACCURATE)
def test_accuracies_of_the_table_of_costs_stand_beside_the_paper_s(small_series, monkeypatch, model):
    monkeypatch.setattr(uea, "QUICK", {"min_steps": 1, "epochs": 1, "d_model": 8})
    # the paper's algorithm keeps all its small steps for the backward pass: gigabytes for whole series
    short = uea.load_uea("Libras", "train").map(lambda one: one.points(slice(8)))
    monkeypatch.setattr(uea, "load_uea", lambda name, part: short)
    cell = Cell("efficiency-accuracy", "Libras", "drop0", model, 0)
    assert 0 <= efficiency.run_accuracy(cell, "quick", 0).metrics["accuracy"] <= 1
    results = Results(efficiency.ACCURACY, "honest", (), {})
    # the paper has no exact trajectories
    assert (results.printed(("Libras", "drop0"), model, "accuracy") is None) == (model == "contiformer")


def test_the_paper_s_recipe_has_a_fixed_rate_and_takes_the_best_test_epoch(small_series, monkeypatch):
    monkeypatch.setattr(uea, "QUICK_PAPER_TRAINING", {"max_epochs": 3, "d_model": 8})
    outcome = uea.run_paper_recipe(Cell("uea-paper-recipe", "Libras", "drop30", "gru_dt", 0, "paper"), "quick", 0)
    assert 0 <= outcome.metrics["accuracy"] <= 1
    found = outcome.configuration
    assert (found["learning_rate"], found["schedule"], found["batch_size"]) == (0.01, "constant", 64)
    assert uea.PAPER_TRAINING["max_epochs"] == 1000
    results = Results(uea.PAPER_RECIPE_EXPERIMENT, "paper", (), {})
    assert results.printed(("Libras", "drop30"), "mtan", "accuracy") == printed(
        "uea", "Libras", "drop30", "mtan", "accuracy"
    )


@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_a_cell_of_events(monkeypatch, protocol):
    data = hawkes_set(8, end=10.0, seed=3)
    monkeypatch.setattr(events, "parts", lambda name, fold: (data[:4], data[4:6], data[6:], {}))
    monkeypatch.setattr(events, "QUICK", {"min_steps": 4, "epochs": 2, "d_model": 8})
    outcome = events.run(Cell("events", "Taxi", "fold1", "contiformer:thp", 0, protocol), "quick", 0)
    assert np.isfinite(list(outcome.metrics.values())).all()
    assert outcome.configuration["intensity"] == "thp"
    if protocol == "paper":
        assert outcome.metrics["log_likelihood"] >= outcome.metrics["last_log_likelihood"] - 1e-6


def test_the_authors_score_divides_by_all_events_and_averages_over_sequences():
    class Model:
        def log_likelihood(self, data):
            return [-3.0, 0.0, -12.0]

    short = EventSequence(times=np.arange(2.0), types=np.zeros(2, int))
    single = EventSequence(times=np.arange(1.0), types=np.zeros(1, int))
    long = EventSequence(times=np.arange(13.0), types=np.zeros(13, int))
    data = EventSet([short, single, long], type_names=("a",))
    assert events.log_likelihood(Model(), data) == pytest.approx(-15 / (1 + 12))
    assert events.log_likelihood(Model(), data, score="authors") == pytest.approx((-3 / 2 - 12 / 13) / 2)


def test_the_score_by_events_is_that_of_evaluate():
    data = hawkes_set(6, end=10.0, seed=3)
    model = EventPredictor.from_options(backbone="hp", min_steps=2, epochs=1, verbose=0).fit(data)
    assert events.log_likelihood(model, data) == pytest.approx(model.evaluate(data)["log_likelihood"], rel=1e-5)


def _controls(options):
    """What a configuration has besides the switches of continuity."""
    own = dict(options["backbone_options"])
    switches = own.pop("continuous_scores", True), own.pop("continuous_values", True)
    return switches, {**options, "backbone_options": own}


def test_the_static_twin_differs_in_the_two_switches_alone(small_series, monkeypatch):
    data = hawkes_set(6, end=4.0, seed=3)
    monkeypatch.setattr(events, "parts", lambda name, fold: (data, data, data, {}))
    monkeypatch.setattr(events, "QUICK", {"min_steps": 2, "epochs": 1, "d_model": 8})
    monkeypatch.setattr(spirals, "QUICK", {"min_steps": 2})
    monkeypatch.setattr(pendulum, "pendulum_splits", partial(pendulum.pendulum_splits, (8, 4, 4)))
    monkeypatch.setattr(pendulum, "QUICK", {"epochs": 1, "min_steps": 1, "d_model": 8})
    places = {
        uea: ("uea", "Libras", "drop30"),
        spirals: ("spirals", "spirals", "alpha2"),
        pendulum: ("pendulum", "pendulum", "default"),
        events: ("events", "Neonate", "fold1"),
    }
    for table, place in places.items():
        ours, twin = (
            _controls(table.run(Cell(*place, model, 0), "quick", 0).configuration)
            for model in ("contiformer", experiments.STATIC_TWIN)
        )
        assert ours == ((True, True), twin[1])
        assert twin[0] == (False, False)


def test_the_control_of_the_spirals_has_contiformer_s_rate_and_layers(monkeypatch):
    monkeypatch.setattr(spirals, "QUICK", {"min_steps": 2, "d_model": 8})
    found = spirals.run(Cell("spirals", "spirals", "alpha2", "transformer:control", 0), "quick", 0).configuration
    assert found["backbone"] == "transformer"
    assert (found["learning_rate"], found["n_layers"]) == (0.01, 2)


@pytest.mark.parametrize("table", ablations.VARIANTS)
def test_every_variant_of_an_ablation_can_be_trained_and_differs(table, monkeypatch):
    data = hawkes_set(4, end=4.0, seed=3)
    monkeypatch.setattr(events, "parts", lambda name, fold: (data, data, data, {}))
    monkeypatch.setattr(events, "QUICK", {"min_steps": 2, "epochs": 1, "d_model": 8})
    found = {
        variant: ablations._run(Cell(table, "Taxi", "fold1", variant, 0), "quick", 0).metrics["log_likelihood"]
        for variant in ablations.VARIANTS[table]
    }
    assert np.isfinite(list(found.values())).all()
    first, *others = found.values()
    assert all(abs(first - other) > 1e-9 for other in others)


def test_headwise_differs_from_the_paper_in_the_field_alone(small_series, monkeypatch):
    monkeypatch.setattr(spirals, "QUICK", {"min_steps": 2})
    for data, setting in (("Libras", "drop30"), ("spirals", "alpha0.02")):
        ours, paper = (
            headwise.run(Cell("headwise", data, setting, field, 0), "quick", 0).configuration["backbone_options"]
            for field in ("headwise", "concatnorm")
        )
        assert ours.pop("field") == "headwise"
        assert paper.pop("field") == "concatnorm"
        assert ours == paper


@pytest.mark.parametrize("table", ["events-significance", *ablations.DEFAULTS])
def test_twins_are_the_same_training(table, monkeypatch):
    data = hawkes_set(4, end=4.0, seed=3)
    monkeypatch.setattr(events, "parts", lambda name, fold: (data, data, data, {}))
    monkeypatch.setattr(events, "QUICK", {"min_steps": 2, "epochs": 1, "d_model": 8})
    cell = next(cell for cell in experiments.get(table).grid("honest") if experiments.get(table).twins(cell))
    said = {
        experiments.get(c.table).run(c, "quick", 0).metrics["nll"] for c in (cell, *experiments.get(table).twins(cell))
    }
    assert len(said) == 1


def test_what_differs_from_the_default_has_no_twin():
    trained = [(table, variant) for table in ablations.VARIANTS for variant in ablations.VARIANTS[table]]
    cells = [Cell(table, "Neonate", "fold1", variant, 0) for table, variant in trained]
    assert {c.table: c.model for c in cells if experiments.get(c.table).twins(c)} == ablations.DEFAULTS


def test_short_sequences_are_short_in_every_part(monkeypatch):
    data = hawkes_set(6, end=20.0, seed=3)
    assert min(data.lengths) > step_size.QUICK_SHORT_EVENTS
    monkeypatch.setattr(events, "parts", lambda name, fold: (data[:2], data[2:4], data[4:], {}))
    monkeypatch.setattr(events, "QUICK", {"min_steps": 2, "epochs": 1, "d_model": 8})
    seen = []
    fit = events.EventPredictor.fit

    def watched(self, learning, **options):
        seen.append((learning, options["validation_data"]))
        return fit(self, learning, **options)

    monkeypatch.setattr(events.EventPredictor, "fit", watched)
    (cell,) = step_size.SHORT.cells(models=["step0.5"], settings=["fold1"])
    outcome = step_size.SHORT.run(cell, "quick", 0)
    for part, whole in zip(seen[0], (data[:2], data[2:4]), strict=True):
        assert [list(one.times) for one in part] == [list(one.times[: step_size.QUICK_SHORT_EVENTS]) for one in whole]
    # the first event of a sequence is not scored
    assert outcome.metrics["events"] == 2 * (step_size.QUICK_SHORT_EVENTS - 1)
    assert outcome.details["first_events"] == step_size.QUICK_SHORT_EVENTS
    assert outcome.configuration["backbone_options"]["method"] == "pairwise"


def test_one_model_is_scored_by_every_step(monkeypatch):
    data = hawkes_set(4, end=4.0, seed=3)
    monkeypatch.setattr(events, "parts", lambda name, fold: (data, data, data, {}))
    monkeypatch.setattr(events, "QUICK", {"min_steps": 2, "epochs": 1, "d_model": 8})
    step_size._trained.cache_clear()
    steps = []

    def pairwise(*arguments):
        steps.append(arguments[-1])
        return pairwise_attention(*arguments)

    pairwise_attention = attention.pairwise_attention
    monkeypatch.setattr(attention, "pairwise_attention", pairwise)
    cells = step_size.SCORES.cells(datasets=["Neonate"], models=["step0.5", "step0.05"])
    coarse, fine = (step_size.run_scores(cell, "quick", 0) for cell in cells)
    assert step_size._trained.cache_info().misses == 1
    step_size._trained.cache_clear()
    assert set(steps) == {0.5, 0.05}
    assert coarse.configuration["backbone_options"]["rule"] == "linear"
    for outcome in (coarse, fine):
        exact, stepped = outcome.details["exact"]["log_likelihood"], outcome.metrics["log_likelihood"]
        # the same weights, so what is left is the solver's error, far below what another training would give
        assert stepped == pytest.approx(exact, abs=1e-5)
        assert outcome.metrics["off"] == abs(stepped - exact)


def test_a_cell_of_spirals(monkeypatch):
    monkeypatch.setattr(spirals, "QUICK", {"min_steps": 2, "d_model": 8})
    outcome = spirals.run(Cell("spirals", "spirals", "alpha2", "transformer", 1), "quick", 0)
    assert set(outcome.metrics) == {metric.key for metric in spirals.EXPERIMENT.metrics}


def test_errors_of_spirals_are_distances_in_the_plane():
    miss = np.zeros((1, 4, 2))
    miss[0, :2] = (3.0, 4.0)
    found = plane_errors(miss)
    assert found["interpolation_rmse"] == pytest.approx(5.0)
    assert found["interpolation_mae"] == pytest.approx(7.0)
    assert found["extrapolation_rmse"] == found["extrapolation_mae"] == 0


def test_a_cell_of_the_pendulum(monkeypatch):
    small = partial(pendulum.pendulum_splits, (8, 4, 4))
    monkeypatch.setattr(pendulum, "pendulum_splits", small)
    monkeypatch.setattr(pendulum, "QUICK", {"epochs": 1, "min_steps": 1, "d_model": 8})
    for protocol in ("honest", "paper"):
        outcome = pendulum.run(Cell("pendulum", "pendulum", "default", "gru_dt", 0, protocol), "quick", 0)
        assert outcome.metrics["mse"] > 0


def test_the_theorem_holds():
    for cell in theorem.EXPERIMENT.grid("honest"):
        outcome = theorem.run(cell, "full", 0)
        assert outcome.metrics["largest_error"] < 1e-12 * max(1.0, outcome.metrics["scale"])


def test_the_best_epoch():
    history = [{"a": 1.0, "b": 5.0}, {"a": 3.0, "b": 6.0}, {"a": 2.0, "b": 4.0}]
    assert best_epoch(history, "a", "max") == history[1]
    assert best_epoch(history, "b", "min") == history[2]


def test_a_set_of_which_a_file_is_missing_is_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (storage, experiments):
        monkeypatch.setattr(module, "data_folders", lambda: (tmp_path,))
    cell = Cell("uea", "Libras", "drop30", "contiformer", 0, "honest")
    assert not_here(cell) == "no data: Libras is not here"
    folder = tmp_path / "uea" / "Libras"
    folder.mkdir(parents=True)
    (folder / "Libras_TRAIN.ts.gz").touch()
    _not_here.cache_clear()
    assert not_here(cell) == "no data: parts of Libras are not here"
    (folder / "Libras_TEST.ts.gz").touch()
    _not_here.cache_clear()
    assert not_here(cell) is None
    assert not_here(replace(cell, data="Synthetic")) is None
    _not_here.cache_clear()


def test_crossed_models_are_compared_over_the_repeats_that_all_have(tmp_path):
    store = Store(tmp_path)
    values = {"fold1": {"thp": -3.0, "thp:hazard": -1.0, "gru_dt": -2.5, "gru_dt:hazard": -0.9}, "fold2": {"thp": 9.0}}
    for fold, models in values.items():
        for model, value in models.items():
            row = {"version": 1, "metrics": {"log_likelihood": value}, "details": {}, "budget": "full"}
            machine = {"commit": "a", "date": "2026-01-01"}
            cell = Cell("events", "MIMIC-II", fold, model, 0)
            store.write(cell, {**row, "configuration": {}, "seconds": 1.0, "machine": machine})
    (sheet,) = events.crossed_sheets(Results.read(events.EXPERIMENT, "honest", store))
    said = {line[0].text: [entry.text for entry in line[1:]] for line in sheet.lines}
    assert said == {
        "thp": ["-3.0000", "-1.0000", "+2.0000"],
        "gru_dt": ["-2.5000", "-0.9000", "+1.6000"],
        "mean": ["-2.7500", "-0.9500", "+1.8000"],
    }
    assert "0.5000 with THP's intensity, 0.1000 with hazard" in sheet.notes[0]
