"""What ``contiformer reproduce`` shows in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from rich import box
from rich.console import Console
from rich.table import Table

from contiformer.experiments import catalogue
from contiformer.experiments.cell import Cell, Protocol
from contiformer.experiments.experiment import Experiment
from contiformer.experiments.results import Results, State
from contiformer.experiments.standings import average_sheets, rival_sheets, t_test_sheets
from contiformer.experiments.store import Store
from contiformer.experiments.tables import main_sheets
from contiformer.reports.sheet import to_rich

_COLOURS: dict[State, str] = {
    "complete": "green",
    "complete here": "green",
    "partly": "yellow",
    "not begun": "default",
    "no data": "dim",
}


def show_list(store: Store, console: Console) -> None:
    """Every table and figure with its state here."""
    protocols = get_args(Protocol)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("what", ratio=1)
    for protocol in protocols:
        table.add_column(protocol, no_wrap=True)
    for name in catalogue.MODULES:
        experiment = catalogue.get(name)
        states = [_state(experiment, one, store) if one in experiment.protocols else "" for one in protocols]
        table.add_row(name, experiment.title, *states)
    console.print(table)
    quick = " of quick trainings" if store.budget == "quick" else ""
    said = f"Cells{quick} in {store.cells}: done / can be run, as their data are here / all."
    console.print(said, highlight=False, soft_wrap=True)


def _state(experiment: Experiment, protocol: Protocol, store: Store) -> str:
    progress = Results.read(experiment, protocol, store).progress
    words = f"[{_COLOURS[progress.state]}]{progress.state}[/]"
    return f"{words}\n[dim]{progress.done} / {progress.runnable} / {progress.all}[/dim]"


def show_table(
    experiment: Experiment, protocol: Protocol, cells: Sequence[Cell], store: Store, console: Console
) -> None:
    """Our numbers beside the paper's, as far as they are there."""
    results = Results.read(experiment, protocol, store, cells)
    progress = results.progress
    quick = ", quick trainings that say little" if store.budget == "quick" else ""
    console.rule(f"{experiment.name}, {protocol} protocol{quick}", align="left")
    counts = f"{progress.done} of {progress.all} cells, {progress.left} more can be run here: {progress.state}."
    console.print(f"{experiment.title}. {counts}", highlight=False, markup=False)
    if results.rows:
        # one comparison with each rival is enough on a screen; the report has them all
        sheets = [*main_sheets(results), *average_sheets(results), *rival_sheets(results)[:1], *t_test_sheets(results)]
        for sheet in sheets:
            console.print(sheet.title, style="bold", highlight=False, markup=False)
            for part in sheet.split(console.width):
                console.print(to_rich(part), highlight=False)
            for note in sheet.notes:
                console.print(note, style="dim", highlight=False, markup=False)
            console.print()
    if experiment.note:
        console.print(experiment.note, highlight=False, markup=False)
