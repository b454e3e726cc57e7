"""``contiformer bench events``: the paper's table of event prediction, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contiformer.cli.options import names_in
from contiformer.data.errors import did_you_mean

if TYPE_CHECKING:
    from contiformer.benchmarks.events import Cell

_WIDTH = 110


def events(
    *,
    data: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A set; may be repeated.")] = None,
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A model; may be repeated.")] = None,
    folds: Annotated[
        str | None, typer.Option(metavar="1,2,...", help="Which folds (default: all of each set).")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1,...", help="Default: 0; for a set with one fold 0, 1 and 2.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of all models.")
    ] = None,
    redo: Annotated[bool, typer.Option("--redo", help="Measure again what was measured with other settings.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Only say which cells there are, and which are done.")] = False,
    speed: Annotated[bool, typer.Option("--speed", help="Ratios of times instead of the table.")] = False,
    verbose: Annotated[int, typer.Option(min=0, max=1, help="1: show each training.")] = 1,
    output: Annotated[Path, typer.Option(file_okay=False, help="Where events.json is, or goes.")] = Path(
        "benchmarks/results"
    ),
) -> None:
    """ContiFormer and its rivals on sets of events: log-likelihood, accuracy and RMSE beside the paper's values.

    Cells that are in events.json already are not repeated, so that it can be stopped and started again, and several
    can run side by side.
    """
    from contiformer.benchmarks import events as benchmark  # noqa: PLC0415
    from contiformer.cli.settings import checked, parse_assignments  # noqa: PLC0415
    from contiformer.estimators import EventPredictor  # noqa: PLC0415

    if speed:
        _show_speed(output)
        return
    changes = checked(EventPredictor, parse_assignments(assignments or ()), "--set")
    wanted = benchmark.cells(
        [_set_called(name) for name in data or benchmark.DATA],
        [_model_called(name) for name in model or benchmark.MODELS],
        _whole_numbers(folds, "--folds", 1),
        _whole_numbers(seeds, "--seeds", 0),
    )
    if not wanted:
        raise typer.BadParameter("no set has such a fold.", param_hint="--folds")
    path = output / "events.json"
    if listed:
        _show_cells(wanted, path)
        return
    rows = benchmark.measure(
        wanted, path, changes=changes, redo=redo, verbose=verbose, notify=lambda text: typer.echo(text, err=True)
    )
    _show_rows(rows)


def _set_called(name: str) -> str:
    from contiformer.cli.event_source import EventSource, kind_of  # noqa: PLC0415

    found = EventSource.of(name).data
    if kind_of(found) != "catalogue":
        raise typer.BadParameter(f"{name} is not in the catalogue, see `contiformer datasets`.", param_hint="--data")
    return found


def _model_called(name: str) -> str:
    from contiformer.benchmarks.events import MODELS  # noqa: PLC0415
    from contiformer.tasks.events.build import check_names  # noqa: PLC0415

    backbone, _, intensity = name.partition(":")
    try:
        check_names(backbone, intensity or "auto")
    except ValueError as error:
        known = f" {did_you_mean(name, MODELS)}." if name not in MODELS and not intensity else ""
        raise typer.BadParameter(known.strip() or f"{error}.", param_hint=f"--model {name}") from None
    return name


def _whole_numbers(text: str | None, option: str, least: int) -> list[int] | None:
    words = names_in(text)
    if not all(word.isdecimal() and int(word) >= least for word in words) or (text is not None and not words):
        raise typer.BadParameter(f"{text!r} is no list of numbers from {least}, such as 1,2,3.", param_hint=option)
    return [int(word) for word in words] or None


def _show_cells(wanted: list[Cell], path: Path) -> None:
    from contiformer.benchmarks.events import cell_of, read_rows  # noqa: PLC0415

    done = {cell_of(row): row for row in read_rows(path)}
    for cell in wanted:
        row = done.get(cell)
        typer.echo(f"{cell}: " + ("not measured" if row is None else f"{row['metrics']['log_likelihood']:.4f}"))
    typer.echo(f"{sum(cell in done for cell in wanted)} of {len(wanted)} cells are in {path}")


def _show_rows(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.benchmarks.event_table import METRICS, OTHER_DATA, lines, verdict  # noqa: PLC0415

    console = Console(highlight=False)
    # a table whose numbers are broken over lines cannot be read
    console.width = max(console.width, _WIDTH)
    for name in dict.fromkeys(row["data"] for row in rows):
        other = ", the paper's are of other data" if name in OTHER_DATA else ""
        table = Table(title=f"{name}: test data, mean ± standard error{other}", title_justify="left")
        table.add_column("model")
        table.add_column("cells", justify="right")
        for word in METRICS.values():
            table.add_column(word, justify="right")
            table.add_column("paper", justify="right", style="dim")
        for line in lines(rows, name):
            table.add_row(*line)
        console.print(table)
        console.print(verdict(rows, name))


def _show_speed(output: Path) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.benchmarks import event_speed  # noqa: PLC0415
    from contiformer.data.readers.text import write_text  # noqa: PLC0415

    output.mkdir(parents=True, exist_ok=True)
    document = event_speed.run()
    write_text(output / "events-speed.json", json.dumps(document, indent=1))
    table = Table(
        "what", "ours", "against", "ratio", "bar", title="Events: medians, taken in turn", title_justify="left"
    )
    for line in event_speed.rows(document):
        table.add_row(*line)
    Console(highlight=False).print(table)
    typer.echo(f"wrote {output / 'events-speed.json'}")
