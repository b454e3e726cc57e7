"""``contiformer datasets``: what there is, where it is, and how to get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contiformer.data.errors import DataError

if TYPE_CHECKING:
    from contiformer.data.catalog.info import DatasetInfo

app = typer.Typer(name="datasets", help="List, describe, download and check public data sets.")
#: Columns below which the list has two lines for each set, and a width at which nothing wraps.
NARROW, UNBOUNDED = 150, 500
_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `contiformer datasets` lists it.")]


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except DataError as error:
        typer.secho(f"Error: {error}", fg="red", err=True)
        raise typer.Exit(1) from error


def _known(name: str) -> DatasetInfo:
    from contiformer.data.catalog import registry  # noqa: PLC0415

    try:
        return registry.get(name)
    except DataError as error:
        typer.secho(f"Error: {error}", fg="red", err=True)
        raise typer.Exit(2) from error


@app.callback(invoke_without_command=True)
def datasets(context: typer.Context) -> None:
    """List, describe, download and check public data sets."""
    if context.invoked_subcommand is None:
        show_list()


@app.command("list")
def show_list() -> None:
    """Name, task, sizes, licence note and place of every data set, and whether it is here."""
    from rich.console import Console  # noqa: PLC0415
    from rich.padding import Padding  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.data.catalog.registry import DATASETS  # noqa: PLC0415
    from contiformer.data.catalog.store import locate, presence  # noqa: PLC0415

    rows = []
    for info in DATASETS.values():
        place = locate(info.name) if info.forms else None
        where = str(place) if place is not None else _host(info)
        rows.append((info.name, info.task, presence(info), info.sizes_text(), info.licence, where))
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


def _host(info: DatasetInfo) -> str:
    return info.sources[0].url.split("/")[2] if info.sources else "see `info`" if info.forms else ""


@app.command("info")
def show_info(name: _Name) -> None:
    """What is known about a data set, and a summary of its data where they are here."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from contiformer.data.catalog.store import locate, presence  # noqa: PLC0415

    info = _known(name)
    here = presence(info)
    table = Table("", "value", title=info.name, title_justify="left", show_header=False)
    table.add_row("task", info.task)
    table.add_row("sizes", info.sizes_text())
    table.add_row("licence note", info.licence)
    table.add_row("here", f"{here}, in {locate(info.name)}" if here in {"yes", "part"} else here)
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
        with _one_line_errors():
            which = ", ".join(f"{key} {value}" for key, value in info.options.items())
            console.print(info.load().summary().table(f"{info.name} {which}".strip()))


@app.command("download")
def download(
    name: _Name,
    to: Annotated[
        Path | None, typer.Option(file_okay=False, help="The data folder (default: the user's cache).")
    ] = None,
) -> None:
    """Fetch a data set from its original hosts. What was interrupted goes on where it was."""
    from contiformer.data.catalog.fetch import fetch  # noqa: PLC0415

    info = _known(name)
    with _one_line_errors(), _progress() as report:
        folder = fetch(info, to, report)
    typer.echo(str(folder))


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn  # noqa: PLC0415

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
    """Hold the files that are here against their sha256. Exit code 1 where one is wrong or none is here."""
    from contiformer.data.catalog.fetch import verify as verified  # noqa: PLC0415
    from contiformer.data.catalog.store import missing  # noqa: PLC0415

    info = _known(name)
    with _one_line_errors():
        results = verified(info)
        if not results and info.forms:
            raise missing(info, *info.forms[0].files)
    for path, result in results:
        typer.secho(f"{result:<8}{path}", fg={"ok": "green", "wrong": "red"}.get(result))
    if any(result == "wrong" for _, result in results):
        raise typer.Exit(1)
