"""Tables of published results: lossless, merged by cell, and what makes a result stale."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from contiformer.data import DataError
from reproduction import running
from reproduction.__main__ import RESULTS, app
from reproduction.experiments import EXPERIMENTS, Cell, get
from reproduction.results import Results
from reproduction.store import Store, cell_of, from_csv, to_csv
from reproduction.tables import average_sheets, main_sheets, rival_sheets, selection_sheet, verdict, verdict_counts
from tests.reproduction import toy

CELL = Cell("toy", "north", "drop30", "ours", 0)
words = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=12)
numbers = st.floats() | st.integers(-(10**15), 10**15)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(("accuracy", "log_likelihood", "mse", "a,b", 'say "x"'))
cells = st.builds(Cell, words, words, words, words, st.integers(0, 99), st.sampled_from(("honest", "paper")))
machines = st.fixed_dictionaries(
    {
        **dict.fromkeys(("cpu", "system", "python", "torch", "contiformer", "date"), words),
        "commit": st.none() | words,
        "threads": st.integers(1, 99),
        "load": st.none() | st.floats(0, 99),
        "free_memory_mb": st.none() | st.integers(0),
        "compiled_kernels": st.booleans(),
    }
)
rows = st.builds(
    lambda cell, body, optional: {**asdict(cell), **body, **optional},
    cells,
    st.fixed_dictionaries(
        {
            "version": st.integers(0, 9),
            "metrics": st.dictionaries(names, numbers, max_size=4),
            "details": st.dictionaries(st.text(max_size=5), values, max_size=3),
            "budget": st.sampled_from(("full", "quick")),
            "configuration": st.dictionaries(st.text(max_size=5), values, max_size=3),
            "seconds": st.floats(0, 1e6),
            "machine": machines,
        }
    ),
    st.fixed_dictionaries({}, optional={"stale": words, "taken_from": words}),
)


def as_json(row) -> str:
    """Equal also for NaN."""
    return json.dumps(row, sort_keys=True)


@given(st.lists(rows, max_size=5, unique_by=cell_of))
def test_rows_come_back_from_csv_as_they_were(given_rows):
    text = to_csv(given_rows)
    back = from_csv(text)
    assert [as_json(row) for row in back] == [as_json(row) for row in sorted(given_rows, key=cell_of)]
    assert to_csv(reversed(back)) == text


def test_rows_that_have_no_column_are_rejected():
    row = toy.row(CELL, accuracy=0.5)
    with pytest.raises(ValueError, match="mood"):
        to_csv([row | {"mood": "good"}])
    with pytest.raises(ValueError, match="humidity"):
        to_csv([row | {"machine": {"humidity": 1}}])
    with pytest.raises(ValueError, match="name of another column"):
        to_csv([row | {"metrics": {"seconds": 1.0}}])


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_published_cells_are_read_as_those_in_files_are(store):
    first, second = CELL, replace(CELL, seed=1, protocol="paper")
    for cell in (first, second):
        store.write(cell, toy.row(cell, accuracy=0.25))
    before = store.rows("toy")
    assert store.publish("toy") == [store.folder / "toy-honest.csv", store.folder / "toy-paper.csv"]
    assert not list(store.cells.rglob("*.json"))
    assert store.rows("toy") == before
    assert store.read(first) == before[0]
    assert first in store
    assert store.publish("toy") == []
    assert Store(store.folder, "quick").rows("toy") == []
    with pytest.raises(ValueError, match="quick results"):
        Store(store.folder, "quick").publish("toy")


def test_the_newer_result_of_a_cell_wins(store):
    def dated(day, value, **more):
        machine = toy.MACHINE | {"date": f"2026-01-0{day}"}
        return toy.row(CELL, accuracy=value) | {"machine": machine} | more

    store.write(CELL, dated(2, 0.2))
    store.publish("toy")
    for day, value, expected in ((1, 0.1, 0.2), (2, 0.25, 0.25), (3, 0.3, 0.3)):
        store.write(CELL, dated(day, value))
        assert store.read(CELL)["metrics"]["accuracy"] == expected
        assert [row["metrics"]["accuracy"] for row in store.rows("toy")] == [expected]
    store.publish("toy")
    assert store.read(CELL)["metrics"]["accuracy"] == 0.3
    # whatever the date: a higher version before a lower one, and what is not stale before what is
    store.write(CELL, dated(1, 0.5, version=2))
    assert store.read(CELL)["metrics"]["accuracy"] == 0.5
    store.write(CELL, dated(9, 0.5, stale="for a reason"))
    assert store.read(CELL)["metrics"]["accuracy"] == 0.3


def test_publishing_twice_gives_the_same_file(store):
    for cell in toy.SOUND.grid("honest"):
        store.write(cell, toy.row(cell, accuracy=0.25, loss=float(cell.seed)))
    store.publish("toy")
    text = store.table_path("toy", "honest").read_text()
    for row in store.rows("toy"):
        store.write(cell_of(row), row)
    store.publish("toy")
    assert store.table_path("toy", "honest").read_text() == text


def test_a_damaged_table_is_named_with_what_to_do(store):
    store.write(CELL, toy.row(CELL, accuracy=0.25))
    store.publish("toy")
    path = store.table_path("toy", "honest")
    path.write_text(path.read_text().replace("0.25", "high"))
    with pytest.raises(DataError, match=r"toy-honest\.csv: the table is damaged .*; restore it"):
        store.rows("toy")


def test_cells_of_an_older_protocol_are_run_again(store):
    newer = replace(toy.SOUND, version=2)
    assert running.run_cells(toy.SOUND, [CELL], store, notify=lambda text: None).done == 1
    store.publish("toy")
    assert running.run_cells(toy.SOUND, [CELL], store, notify=lambda text: None).before == 1
    assert Results.read(newer, "honest", store, [CELL]).stale == {CELL: "protocol version 1, now 2"}
    twin = replace(newer, twins=lambda cell: [CELL])
    other = replace(CELL, table="other")
    assert running.run_cells(twin, [CELL, other], store, notify=lambda text: None).done == 2
    assert "taken_from" not in store.read(CELL)
    assert store.read(other)["taken_from"] == str(CELL)
    assert Results.read(newer, "honest", store, [CELL]).stale == {}


def _results(stale, values):
    """Accuracies by (data, model), one for each seed; stale: cells by (data, model, seed)."""
    found = {}
    for (data, model), figures in values.items():
        for seed, figure in enumerate(figures):
            cell = Cell("toy", data, "drop30", model, seed)
            found[cell] = toy.row(cell, accuracy=figure)
            found[cell] |= {"stale": "for a reason"} if (data, model, seed) in stale else {}
    return Results(toy.SOUND, "honest", tuple(found), found)


def test_stale_cells_are_shown_only_where_there_are_no_others():
    results = _results(
        {("north", "ours", 0), ("north", "rival", 0), ("north", "rival", 1)},
        {("north", "ours"): [0.1, 0.9], ("north", "rival"): [0.5, 0.7]},
    )
    place = ("north", "drop30")
    assert results.values(place, "ours", toy.ACCURACY) == {("drop30", 1): 0.9}
    assert results.values(place, "rival", toy.ACCURACY) == {("drop30", 0): 0.5, ("drop30", 1): 0.7}
    assert results.common(place, ["ours", "rival"], toy.ACCURACY) == {}
    assert verdict(results, place, toy.ACCURACY) == "alone so far"
    assert (results.progress.done, results.progress.stale) == (1, 3)
    (sheet,) = main_sheets(results)
    assert [entry.text for entry in sheet.lines[0]] == [
        "north",
        "drop30",
        "0.9000 (1 of 2)",
        "0.6000 ±0.1414 (2)†",
        "alone so far",
    ]
    assert sheet.lines[0][2].strong
    assert "for a reason (3 cells)" in sheet.notes[-1]


def test_pairs_are_of_equal_data():
    stale = {("north", model, 0) for model in ("ours", "rival")}
    values = {("north", "ours"): [0.1], ("north", "rival"): [0.5], ("south", "ours"): [0.9], ("south", "rival"): [0.8]}
    results = _results(stale, values)
    # stale with stale in the table; in averages, ranks and tests only the others
    assert verdict(results, ("north", "drop30"), toy.ACCURACY) == "behind rival by 0.4000"
    assert main_sheets(results)[0].lines[0][-1].text == "behind rival by 0.4000 †"
    counts = verdict_counts(results, toy.ACCURACY)
    assert (counts.best, counts.behind, counts.stale) == (1, 0, 1)
    (rivals,) = rival_sheets(results)
    assert [entry.text for entry in rivals.lines[0][:4]] == ["rival", "1", "1", "1 / 0 / 0"]
    assert average_sheets(results) == []
    # two versions are not compared, even if both are old
    mixed = {
        cell: row | {"version": 0 if cell.model == "ours" else 1, "stale": "old"} for cell, row in results.rows.items()
    }
    assert replace(results, rows=mixed).common(("north", "drop30"), ["ours", "rival"], toy.ACCURACY) == {}


def test_stale_cells_are_compared_where_nothing_else_is_there():
    results = _results(
        {("north", "ours", 0), ("north", "rival", 0)}, {("north", "ours"): [0.9], ("north", "rival"): [0.8]}
    )
    assert results.comparable is results
    assert verdict_counts(results, toy.ACCURACY).best == 1
    assert results.progress.state == "stale"
    paper = replace(results, protocol="paper", rows={cell: row | {"stale": ""} for cell, row in results.rows.items()})
    assert selection_sheet(results, paper) is None


def test_list_and_publish_tell_of_stale_and_unpublished_cells(only_toy, tmp_path):
    def run(*more):
        return CliRunner().invoke(app, [*more, "--output", str(tmp_path)])

    store = Store(tmp_path)
    for cell in toy.SOUND.grid("honest")[:3]:
        store.write(cell, toy.row(cell, accuracy=0.5) | ({"stale": "for a reason"} if cell.seed == 0 else {}))
    assert run("publish").stdout == f"wrote {tmp_path / 'toy-honest.csv'}\n"
    assert run("publish").stdout == f"no unpublished cells in {tmp_path / 'cells'}\n"
    listed = run("list").stdout
    assert "0 / 24 / 36" in listed
    assert "3 stale" in listed
    assert "(3 stale)" in run("toy", "--show").stdout
    assert "--budget: quick results are not published" in run("publish", "--budget", "quick").stderr


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_published_results_are_of_the_grid(name):
    """Every row in git is of a cell of its grid, says its version, and is stale for a reason or of the present one."""
    experiment = get(name)
    for protocol in experiment.protocols:
        path = Store(RESULTS).table_path(name, protocol)
        if not path.exists():
            continue
        found = from_csv(path.read_text())
        assert {cell_of(row) for row in found} <= set(experiment.grid(protocol))
        assert to_csv(found) == path.read_text()
        for row in found:
            assert row.get("stale") or (row["version"] == experiment.version and row["machine"]["commit"])
