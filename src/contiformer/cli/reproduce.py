"""``contiformer reproduce``: every table and figure of the paper from one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from contiformer.cli.options import names_in
from contiformer.data.errors import did_you_mean
from contiformer.experiments.catalogue import MODULES

if TYPE_CHECKING:
    from contiformer.experiments.cell import Cell, Protocol
    from contiformer.experiments.experiment import Experiment
    from contiformer.experiments.store import Store

RESULTS = Path("results")
LIST, REPORT, QUICK = "list", "report", "quick"
_PASSED_ON = ("datasets", "settings", "backbones", "seeds", "budget", "protocol", "shard", "verbose", "output")


def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"list, report, quick, or one of: {', '.join(MODULES)}.")],
    *,
    datasets: Annotated[str | None, typer.Option(metavar="A,B", help="Only these data sets.")] = None,
    settings: Annotated[str | None, typer.Option(metavar="A,B", help="Only these settings, such as drop30.")] = None,
    backbones: Annotated[str | None, typer.Option(metavar="A,B", help="Only these models.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1", help="Only these seeds.")] = None,
    budget: Annotated[str, typer.Option(help="full, or quick: short trainings, kept apart.")] = "full",
    protocol: Annotated[
        str,
        typer.Option(
            help="honest: chosen by validation data; paper: by the best test epoch, as the authors do; or both."
        ),
    ] = "honest",
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side.")] = 1,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Only the I-th of N parts, for N machines.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing, show the table as far as it is.")] = False,
    docs: Annotated[
        str | None,
        typer.Option(metavar="FILE,FILE", help="With report: Markdown files whose marked tables are written anew."),
    ] = None,
    verbose: Annotated[int, typer.Option(min=0, max=1, help="1: show each training.")] = 0,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder of the results.")] = RESULTS,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
) -> None:
    """Run a table or a figure of the paper, cell by cell; finished cells are never run again.

    [bold]list[/bold] shows all of them with their state here, [bold]report[/bold] writes one page with our numbers
    beside the paper's, [bold]quick[/bold] runs a sample of all kinds in minutes and fails if a number is out of range.
    Stop at any time: at most the running cell is lost.

    [bold]Examples[/bold]

      contiformer reproduce list
      contiformer reproduce uea --datasets Libras,RacketSports --settings drop30 --jobs 2
      contiformer reproduce uea --show --protocol both
      contiformer reproduce report --docs README.md
    """
    from contiformer.experiments import catalogue, running  # noqa: PLC0415
    from contiformer.experiments.cell import Budget  # noqa: PLC0415
    from contiformer.experiments.store import Store  # noqa: PLC0415

    if budget not in get_args(Budget):
        raise typer.BadParameter(f"{budget!r} is neither full nor quick.", param_hint="--budget")
    store = Store(output, budget)  # type: ignore[arg-type]
    if docs is not None and name != REPORT:
        raise typer.BadParameter("goes with report only.", param_hint="--docs")
    others: dict[str, Callable[[Store], None]] = {LIST: _show_list, REPORT: partial(_report, docs=docs), QUICK: _quick}
    if name in others:
        others[name](store)
        return
    if name not in catalogue.MODULES:
        hint = did_you_mean(name, [LIST, REPORT, QUICK, *catalogue.MODULES])
        raise typer.BadParameter(f"{name!r}; {hint}", param_hint="NAME")
    experiment = catalogue.get(name)
    chosen = {
        "datasets": _known(experiment, "data", datasets, "--datasets"),
        "settings": _known(experiment, "setting", settings, "--settings"),
        "models": _known(experiment, "model", backbones, "--backbones"),
        "seeds": [int(seed) for seed in _known(experiment, "seed", seeds, "--seeds")],
    }
    grids: dict[Protocol, list[Cell]] = {
        one: experiment.cells(one, **chosen)  # type: ignore[arg-type]
        for one in _protocols(experiment, protocol)
    }
    cells = [cell for grid in grids.values() for cell in grid]
    if not cells:
        raise typer.BadParameter(f"no cell of {name} is all of this at once.", param_hint="--datasets")
    if jobs > 1 and experiment.alone:
        raise typer.BadParameter(
            f"{name} measures time, which others beside it would take: leave it out.", param_hint="--jobs"
        )
    part = None if shard is None else _shard(shard)
    code = 0
    if not show:
        cells = cells if part is None else running.shard(cells, *part)
        if jobs > 1:
            code = running.run_side_by_side([*_words(context.params), "--worker"], jobs)
        else:
            code = _run(experiment, cells, store, verbose, tell=not worker)
    if not worker:
        _show_tables(experiment, grids, store)
    if not worker and not show:
        _draw(experiment, store)
    if code:
        raise typer.Exit(code)


def _run(experiment: Experiment, cells: Sequence[Cell], store: Store, verbose: int, *, tell: bool) -> int:
    from contiformer.experiments import running  # noqa: PLC0415

    tally = running.run_cells(experiment, cells, store, verbose=verbose, notify=lambda text: typer.echo(text, err=True))
    for line in [str(tally), *tally.absent[:3]] if tell else []:
        typer.echo(line, err=True)
    return 1 if tally.failed else 0


def _show_list(store: Store) -> None:
    from rich.console import Console  # noqa: PLC0415

    from contiformer.cli.reproduce_views import show_list  # noqa: PLC0415

    show_list(store, Console())


def _show_tables(experiment: Experiment, grids: dict[Protocol, list[Cell]], store: Store) -> None:
    from rich.console import Console  # noqa: PLC0415

    from contiformer.cli.reproduce_views import show_table  # noqa: PLC0415

    for protocol, cells in grids.items():
        show_table(experiment, protocol, cells, store, Console())


def _draw(experiment: Experiment, store: Store) -> None:
    tables = dict.fromkeys(cell.table for cell in experiment.grid(experiment.protocols[0]))
    rows = [row for table in tables for row in store.rows(table)]
    if experiment.draw is None or not rows:
        return
    folder = store.folder if store.budget == "full" else store.cells
    typer.echo(f"wrote {experiment.draw(rows, folder / 'figures' / f'{experiment.name}.png')}")


def _quick(store: Store) -> None:
    from contiformer.experiments.quick import EXPECTED, check  # noqa: PLC0415

    problems, absent = check(store.folder, lambda text: typer.echo(text, err=True))
    for problem in problems:
        typer.secho(problem, fg="red", err=True)
    if problems:
        raise typer.Exit(1)
    left_out = f"; {absent} of {len(EXPECTED)} cells were left out, as their data are not here" if absent else ""
    typer.echo(f"all numbers lie where they should{left_out}")


def _report(store: Store, *, docs: str | None) -> None:
    from contiformer.data.catalog.store import ENVIRONMENT  # noqa: PLC0415
    from contiformer.experiments.report import fill_files, gone_data, read_chapters, write_report  # noqa: PLC0415

    chapters = read_chapters(store)
    if gone := gone_data(chapters):
        typer.secho(
            f"Cells were run on {', '.join(gone)}, whose data are not here: the report will say 'no data' where cells "
            f"are only missing. Set {ENVIRONMENT} to the folder of the data, and write it again.",
            fg="yellow",
            err=True,
        )
    # quick numbers never lie beside full ones
    quick = store.budget == "quick"
    written = write_report(chapters, store.cells if quick else store.folder, quick=quick)
    for path in (*written, *fill_files(chapters, [Path(name) for name in names_in(docs)])):
        typer.echo(f"wrote {path}")


def _words(given: dict[str, Any]) -> list[str]:
    """The same command for one of several processes."""
    options = {name: value for name, value in given.items() if name in _PASSED_ON and value is not None}
    return ["reproduce", given["name"], *(word for name in options for word in (f"--{name}", str(options[name])))]


def _protocols(experiment: Experiment, text: str) -> list[Protocol]:
    if text == "both":
        return list(experiment.protocols)
    for one in experiment.protocols:
        if one == text:
            return [one]
    known = " and ".join(experiment.protocols)
    raise typer.BadParameter(f"{text!r}: {experiment.name} has {known}.", param_hint="--protocol")


def _known(experiment: Experiment, part: str, text: str | None, option: str) -> list[str]:
    if text is None:
        return []
    known = list(dict.fromkeys(str(getattr(cell, part)) for cell in experiment.grid(experiment.protocols[0])))
    names = _names(text, known)
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r}; {did_you_mean(name, known)}", param_hint=option)
    if not names:
        raise typer.BadParameter("names nothing.", param_hint=option)
    return names


def _names(text: str, known: Sequence[str]) -> list[str]:
    """The names between commas, also of names that have a comma in them."""
    names, words = [], text.split(",")
    while words:
        joined = {n: ",".join(words[:n]).strip() for n in range(len(words), 0, -1)}
        taken = next((n for n, name in joined.items() if name in known), 1)
        names += [joined[taken]] if joined[taken] else []
        words = words[taken:]
    return names


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not slash or not part.isdecimal() or not parts.isdecimal() or not 1 <= int(part) <= int(parts):
        raise typer.BadParameter(f"{text!r} is not of the form 1/4.", param_hint="--shard")
    return int(part), int(parts)
