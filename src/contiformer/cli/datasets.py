"""``contiformer datasets``: list, describe, download and check the public data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table

from contiformer.cli.commands import FAILED, Commands
from contiformer.data import catalog
from contiformer.data.errors import DataError

app = typer.Typer(name="datasets", cls=Commands, help="List, describe, download and check public data sets.")
#: Columns below which the list has two lines for each set, and a width at which nothing wraps.
NARROW, UNBOUNDED = 150, 500
_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `contiformer datasets` lists it.")]


def _known(name: str) -> catalog.DatasetInfo:
    try:
        return catalog.dataset_info(name)
    except DataError as error:
        raise typer.BadParameter(f"{error}.", param_hint="NAME") from None


@app.callback(invoke_without_command=True)
def datasets(context: typer.Context) -> None:
    """List, describe, download and check public data sets."""
    if context.invoked_subcommand is None:
        show_list()


@app.command("list")
def show_list() -> None:
    """Name, task, sizes, licence note and place of every data set, and whether it is here."""
    rows = []
    for info in catalog.DATASETS.values():
        place = catalog.locate(info.name) if info.forms else None
        where = str(place) if place is not None else _host(info)
        rows.append((info.name, info.task, catalog.presence(info), info.sizes_text(), info.licence, where))
    console = Console(highlight=False)
    if console.is_terminal and console.width < NARROW:
        for name, task, here, sizes, licence, where in rows:
            console.print(f"[bold]{name:<26}[/bold] {task:<15} {here}")
            details = "; ".join(filter(None, (sizes, f"licence: {licence}", where)))
            console.print(Padding(details, (0, 0, 0, 4)), style="dim")
        return
    table = Table("name", "task", "here", "sizes", "licence note", "where", box=None, pad_edge=False)
    table.columns[-1].overflow = "fold"
    for column in table.columns[:3]:
        column.no_wrap = True
    for row in rows:
        table.add_row(*row)
    # a file or a pipe gets one line for each
    Console(highlight=False, width=None if console.is_terminal else UNBOUNDED).print(table)


def _host(info: catalog.DatasetInfo) -> str:
    return info.sources[0].url.split("/")[2] if info.sources else "see `info`" if info.forms else ""


@app.command("info")
def show_info(name: _Name) -> None:
    """Task, sizes, licence and sources of a data set, and a summary of its data where they are here."""
    info = _known(name)
    here = catalog.presence(info)
    table = Table("", "value", title=info.name, title_justify="left", show_header=False)
    # addresses and checksums are for copying
    table.columns[-1].overflow = "fold"
    table.add_row("task", info.task)
    table.add_row("sizes", info.sizes_text())
    table.add_row("licence note", info.licence)
    table.add_row("here", f"{here}, in {catalog.locate(info.name)}" if here in {"yes", "part"} else here)
    for source in info.sources:
        table.add_row("source", source.url)
        table.add_row("  sha256", source.sha256 or "not known; recorded on the first download")
    if info.note:
        table.add_row("note", info.note)
    if info.by_hand:
        table.add_row("to get it", info.by_hand)
    console = Console(highlight=False)
    console.print(table)
    if here != "no":
        which = ", ".join(f"{key} {value}" for key, value in info.options.items())
        console.print(info.load().summary().table(f"{info.name} {which}".strip()))


@app.command("download")
def download(
    name: _Name,
    to: Annotated[
        Path | None, typer.Option(file_okay=False, help="The data folder (default: the user's cache).")
    ] = None,
) -> None:
    """Fetch a data set from its original hosts."""
    info = _known(name)
    with _progress() as report:
        folder = catalog.fetch(info, to, report)
    typer.echo(str(folder))


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def report(file: str, here: int, total: int | None) -> None:
        if not tasks:
            progress.start()  # not before there is something to show
        if file not in tasks:
            tasks[file] = progress.add_task(file, total=total)
        progress.update(tasks[file], completed=here, total=total)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()


@app.command("verify")
def verify(name: _Name) -> None:
    """Compare the files that are here with their sha256. Exit code 1 where one is wrong or none is here."""
    info = _known(name)
    results = catalog.verify(info)
    if not results and info.forms:
        raise catalog.missing_data(info, *info.forms[0].files)
    for path, result in results:
        typer.secho(f"{result:<8}{path}", fg={"ok": "green", "wrong": "red"}.get(result))
    if any(result == "wrong" for _, result in results):
        raise typer.Exit(FAILED)
