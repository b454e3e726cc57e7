"""Boards: metrics against independent oracles, protocols, grids, tables, and cells on small data."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from contiformer.data import EventSet, Series, SeriesSet
from contiformer.data.synthetic import hawkes_set
from reproduction import board_models, board_tables, boards, experiments, forecast_boards
from reproduction.__main__ import app
from reproduction.board_tables import published
from reproduction.experiments import Cell
from reproduction.forecast_boards import hourly_means, last_values, overall_errors, per_variable_errors
from reproduction.results import Results
from reproduction.store import Store


@pytest.mark.parametrize("name", experiments.BOARDS)
def test_cells_of_boards_are_different_and_have_different_files(name):
    board = experiments.get(name)
    assert board.name == name
    cells = board.grid("honest")
    assert len({cell.path for cell in cells}) == len(cells) > 0
    assert {cell.table for cell in cells} == {name}


@pytest.mark.parametrize("name", experiments.BOARDS)
def test_published_figures_stand_beside_cells_of_the_grid(name):
    board = experiments.get(name)
    places = {(cell.data, cell.setting) for cell in board.grid("honest")}
    places |= {(data, "") for data, _ in places}
    keys = {metric.key for metric in board.metrics}
    for figures in published(name.removeprefix("board-")).values():
        for (data, setting, metric), figure in figures.items():
            assert (data, setting) in places
            assert metric in keys
            assert figure.source


def test_sizes_of_the_boards():
    clinical = boards.CLINICAL.grid("honest")
    assert {cell.setting for cell in clinical} == {f"split{n}" for n in range(1, 6)}
    assert len({(cell.data, cell.setting) for cell in boards.UEA.grid("honest")}) == 24
    assert len({cell.data for cell in boards.EVENTS.grid("honest")}) == 10
    folds = {cell.data: cell.setting for cell in boards.IRREGULAR.grid("honest")}
    assert len(folds) == 11 + 1 + 7


def test_a_model_that_the_library_lacks_is_left_out():
    assert board_models.unknown_model(Cell("board-uea", "Libras", "drop30", "contiformer:static", 0)) is None
    assert "no model" in board_models.unknown_model(Cell("board-uea", "Libras", "drop30", "oracle", 0))


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_board_is_shown_by_its_name(tmp_path):
    shown = run("boards", "forecast-t", "--show", "--output", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "t-PatchGNN" in shown.stdout
    assert "Protocol T only" in shown.stdout


@pytest.mark.parametrize(
    ("words", "problem"), [(("boards", "clinic"), "did you mean"), (("uea", "clinical"), "only boards takes")]
)
def test_unknown_boards_are_rejected(words, problem, tmp_path):
    shown = run(*words, "--output", tmp_path)
    assert shown.exit_code == 2
    assert problem in shown.output


# --- forecasting ------------------------------------------------------------------------------------------------------


def _line_by_line(rows):
    """Hourly means as the published reader makes them, one line after the other."""
    found, record, state = [], None, None
    for name, time, parameter, value in rows:
        hours, minutes = map(int, time.split(":"))
        if name != record:
            record, state = name, None
        if parameter in {"Age", "Gender", "Height", "ICUType", "Weight"} and hours == minutes == 0:
            continue
        if state is None:
            state = (hours, {})
        elif state[0] != hours:
            found.append((record, state[0], {key: np.mean(seen) for key, seen in state[1].items()}))
            state = (hours, {})
            continue  # the line that begins an hour is lost
        if parameter in {"HR", "pH"}:
            state[1].setdefault(parameter, []).append(value)
    return found  # the last hour of a record is never closed


ROWS = [
    (1, "00:00", "Age", 50.0),
    (1, "00:00", "HR", 60.0),
    (1, "00:40", "HR", 70.0),
    (1, "00:50", "pH", 7.0),
    (1, "01:00", "HR", 99.0),
    (1, "01:30", "HR", 80.0),
    (1, "03:00", "Weight", 81.0),
    (1, "03:10", "pH", 7.4),
    (1, "04:00", "HR", 75.0),
    (2, "00:00", "Age", 50.0),
    (2, "00:10", "HR", 60.0),
    (3, "05:00", "Weight", 80.0),
    (3, "06:00", "HR", 60.0),
    (3, "06:30", "HR", 61.0),
    (3, "07:00", "HR", 62.0),
]


def test_hourly_means_are_those_of_the_published_reader():
    table = hourly_means(pl.DataFrame(ROWS, schema=["RecordID", "Time", "Parameter", "Value"], orient="row"))
    expected = _line_by_line(ROWS)
    assert table.select("RecordID", "hour").rows() == [(record, hour) for record, hour, _ in expected]
    assert 2 not in table["RecordID"]  # a single hour
    for row, (_, _, means) in zip(table.iter_rows(named=True), expected, strict=True):
        for name in ("HR", "pH"):
            np.testing.assert_equal(row[name], means.get(name, np.nan))


def _asked(targets):
    nothing = np.full((1, 2), np.nan)
    series = [
        Series(np.zeros(1), nothing, None, None, np.arange(1.0, 1 + len(t)), np.array(t, float), n)
        for n, t in enumerate(targets)
    ]
    return SeriesSet(series, channels=["a", "b"])


def test_the_two_protocols_average_in_different_orders():
    test = _asked([[[1, np.nan], [3, 2]], [[2, np.nan]]])
    said = [np.zeros((2, 2)), np.zeros((1, 2))]
    assert per_variable_errors(said, test) == {"mse": ((1 + 9 + 4) / 3 + 4) / 2, "mae": (6 / 3 + 2) / 2}
    assert overall_errors(said, test) == {"mse": 18 / 4, "mae": 8 / 4}


def test_the_last_value_is_carried_forward():
    one = Series(np.arange(3.0), np.array([[1, np.nan], [2, np.nan], [np.nan, np.nan]]), None, None, np.arange(4.0, 6))
    one = replace(one, target_values=np.zeros((2, 2)))
    assert last_values(SeriesSet([one]))[0].tolist() == [[2, 0], [2, 0]]


def test_the_published_protocols_on_all_records(shared):
    forecast_boards.forecast_parts.cache_clear()
    parts = forecast_boards.forecast_parts("P")
    assert sum(map(len, parts)) == 11_981  # as published
    assert [len(part) for part in parts] == [9703, 1079, 1199]
    assert len(parts[0].channels) == 35  # and one that never changes
    for part in parts:
        assert max(len(one.target_times) for one in part) == 3
        assert all(one.times[-1] < one.target_times[0] for one in part if len(one) and len(one.target_times))
    values = np.concatenate([one.values for part in parts for one in part])
    assert np.nanmax(np.abs(values)) < 5
    forecast_boards.forecast_parts.cache_clear()


# --- cells on small data ----------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(board_models, "QUICK", {"min_steps": 4, "epochs": 1, "d_model": 8})
    rng = np.random.default_rng(0)
    series = [Series(np.arange(6.0), rng.normal(size=(6, 2)) + n % 2, None, n % 2, None, None, n) for n in range(24)]
    return SeriesSet(series, channels=["a", "b"], classes=(0, 1))


def test_a_cell_of_the_clinical_board(small, monkeypatch):
    ids = small.ids
    monkeypatch.setattr(boards, "_clinical", lambda name: small)
    split = {"train": ids[:12], "val": ids[12:16], "test": ids[16:]}
    monkeypatch.setattr(boards, "clinical_split", lambda name, fold: split)
    cell = Cell("board-clinical", "P12", "split1", "gru_dt", 0)
    outcome = boards.run_clinical(cell, "quick", 0)
    assert set(outcome.metrics) == {"auroc", "average_precision"}
    assert 0 <= outcome.metrics["auroc"] <= 100
    assert outcome.details["sizes"] == [12, 4, 8]
    fitted = []
    once = boards._clinical_model
    monkeypatch.setattr(boards, "_clinical_model", lambda *how: fitted.append(how) or once(*how))
    for model in ("contiformer", boards.NETWORK, "blend"):
        assert boards.run_clinical(replace(cell, model=model), "quick", 0).metrics
    assert len(fitted) == 5
    assert once.cache_info().hits == 2
    once.cache_clear()
    boards._clinical_parts.cache_clear()


def test_a_cell_of_the_irregular_board(small, monkeypatch):
    asked = []
    monkeypatch.setattr(boards, "load_irregular", lambda name, split, fold: asked.append((name, split, fold)) or small)
    for data, setting in (("Vehicles-holdout70", "given"), ("Animals", "fold2")):
        outcome = boards.run_irregular(Cell("board-irregular", data, setting, "gru_dt", 0), "quick", 0)
        assert outcome.metrics["accuracy"] == 1 - len(outcome.details["wrong"]) / len(small)
    parts = ("train", "test")
    assert asked == [("Vehicles", part, None) for part in parts] + [("Animals", part, 2) for part in parts]


def _readings():
    rng = np.random.default_rng(0)
    series = []
    for n in range(6):
        times = np.cumsum(rng.random(30))
        kind = np.repeat(rng.integers(0, 4, 3), 10)
        values = np.eye(4)[kind] * 3 + rng.normal(size=(30, 4)) * 0.1
        series.append(Series(times, values, np.zeros(1), None, times, np.eye(4)[kind], f"t{n}"))
    return SeriesSet(series, channels=list("abcd"))


@pytest.mark.parametrize("model", ["boosting", "gru_dt"])
def test_a_cell_with_a_label_at_each_reading(monkeypatch, model):
    data = _readings()
    monkeypatch.setattr(board_models, "QUICK", {"min_steps": 4, "epochs": 1, "d_model": 8})
    monkeypatch.setattr(boards, "load_irregular", lambda name, split, fold: data[:4] if split == "train" else data[4:])
    outcome = boards.run_rfid(Cell("board-rfid", "RFID", "fold1", model, 0), "quick", 0)
    assert outcome.details["readings"] == 60
    if model == "boosting":
        assert outcome.metrics["accuracy"] > 0.9


def test_pieces_keep_every_reading_and_its_target():
    data = _readings()
    cut = boards.pieces(data, 7)
    assert cut.lengths.max() == 7
    np.testing.assert_array_equal(np.concatenate([one.times for one in cut]), np.concatenate([o.times for o in data]))
    joined = np.concatenate([one.target_values for one in cut])
    np.testing.assert_array_equal(joined, np.concatenate([one.target_values for one in data]))


def test_macro_f1_of_a_small_case():
    assert boards._macro_f1(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])) == pytest.approx((2 / 3 + 0.8) / 2)


def test_a_cell_of_the_events_board(monkeypatch):
    data = hawkes_set(8, end=12.0, seed=3)
    monkeypatch.setattr(boards, "event_parts", lambda name, fold: (data[:4], data[4:6], data[6:]))
    monkeypatch.setattr(boards.events, "QUICK", {"min_steps": 4, "epochs": 1, "d_model": 8})
    monkeypatch.setattr("contiformer.estimators.events_ahead.DRAWS", 3)
    outcome = boards.run_events(Cell("board-events", "Taxi", "fold1", "hp", 0), "quick", 0)
    assert {"log_likelihood", "accuracy", "rmse"} <= set(outcome.metrics)
    if outcome.details["horizon_sequences"]:
        assert 0 <= outcome.metrics["otd"] <= 20
        assert 0 <= outcome.metrics["tmap"] <= 1
    assert isinstance(data, EventSet)


def test_cells_of_forecasting(monkeypatch):
    rng = np.random.default_rng(0)
    series = [
        Series(np.arange(4.0), rng.normal(size=(4, 2)), None, None, np.arange(4.0, 6), rng.normal(size=(2, 2)), n)
        for n in range(12)
    ]
    series.append(Series(np.zeros(0), np.zeros((0, 2)), None, None, np.arange(4.0, 6), np.ones((2, 2)), 12))
    data = SeriesSet(series, channels=["a", "b"])
    monkeypatch.setattr(boards, "forecast_parts", lambda kind: (data[:8], data[8:10], data[10:]))
    monkeypatch.setattr(board_models, "QUICK", {"min_steps": 4, "epochs": 1, "d_model": 8})
    for kind, model in (("T", "last value"), ("P", "gru_dt")):
        cell = Cell(f"board-forecast-{kind.lower()}", "P12", "published", model, 0)
        outcome = boards.run_forecast(kind, cell, "quick", 0)
        assert np.isfinite(list(outcome.metrics.values())).all()


# --- tables -----------------------------------------------------------------------------------------------------------


def _write(store, cell, board, **metrics):
    machine = {"cpu": "x", "commit": "abc", "date": "2026-01-01"}
    row = {"version": board.version, "metrics": metrics, "details": {}, "budget": "full", "configuration": {}}
    store.write(cell, {**row, "seconds": 3.0, "machine": machine})


def test_a_board_lists_published_figures_beside_ours(tmp_path):
    store, board = Store(tmp_path), boards.CLINICAL
    for fold, value in ((1, 88.0), (2, 90.0)):
        cell = Cell(board.name, "P12", f"split{fold}", "contiformer", 0)
        _write(store, cell, board, auroc=value, average_precision=58.0)
    (sheet,) = board_tables.by_method(Results.read(board, "honest", store))
    lines = [[entry.text for entry in line] for line in sheet.lines]
    assert lines[0][:3] == ["contiformer", "89.00 ± 1.41 (2)", "58.00 ± 0.00 (2)"]
    assert lines[1][0] == "practitioner: boosted statistics"
    assert next(line for line in lines if line[0] == "ViTST")[1] == "85.10"
    assert sheet.lines[0][1].strong
    assert not sheet.lines[1][1].strong


def test_means_and_ranks_are_over_places_that_all_have(tmp_path):
    store, board = Store(tmp_path), boards.IRREGULAR
    for data, value in (("PLAID", 0.95), ("DodgerLoopDay", 0.5), ("Animals", 0.9)):
        setting = "fold1" if data == "Animals" else "given"
        _write(store, Cell(board.name, data, setting, "contiformer", 0), board, accuracy=value)
    (sheet,) = board_tables.by_place(Results.read(board, "honest", store))
    assert sheet.columns == ("data", "practitioner: MiniRocket", "contiformer")
    last = [[entry.text for entry in line] for line in sheet.lines[-2:]]
    assert last == [["mean of 2", "0.7751", "0.7250"], ["mean rank", "1.50", "1.50"]]
