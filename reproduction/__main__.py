"""``python -m reproduction``: every table and figure of the paper from one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from contiformer.cli import Program
from contiformer.data import did_you_mean
from contiformer.data.catalog import ENVIRONMENT_VARIABLE
from reproduction import experiments, running
from reproduction.document import sheet_to_rich, split_sheet
from reproduction.experiments import PAPER_RECIPE, Budget, Cell, Experiment, Protocol
from reproduction.quick import EXPECTED, check
from reproduction.report import fill_files, gone_data, read_chapters, write_report
from reproduction.results import Results, State
from reproduction.store import Store
from reproduction.tables import average_sheets, main_sheets, rival_sheets, t_test_sheets

RESULTS = Path(__file__).parent / "results"
LIST, REPORT, QUICK, PUBLISH, BOARDS = "list", "report", "quick", "publish", "boards"
PREFIX = "board-"
_PASSED_ON = (
    "recipe",
    "datasets",
    "settings",
    "backbones",
    "seeds",
    "budget",
    "protocol",
    "shard",
    "verbose",
    "output",
)
_COLOURS: dict[State, str] = {
    "complete": "green",
    "complete here": "green",
    "partly": "yellow",
    "stale": "yellow",
    "not begun": "default",
    "no data": "dim",
}


def reproduce(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"list, report, quick, publish, boards, or one of: {', '.join(experiments.EXPERIMENTS)}.",
        ),
    ],
    board: Annotated[
        str | None,
        typer.Argument(metavar="[BOARD]", help=f"With boards: {', '.join(n[6:] for n in experiments.BOARDS)}."),
    ] = None,
    *,
    datasets: Annotated[str | None, typer.Option(metavar="A,B", help="Only these data sets.")] = None,
    settings: Annotated[
        str | None,
        typer.Option("--settings", "--splits", metavar="A,B", help="Only these settings, such as drop30 or split1."),
    ] = None,
    backbones: Annotated[
        str | None, typer.Option("--backbones", "--models", metavar="A,B", help="Only these models.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1", help="Only these seeds.")] = None,
    budget: Annotated[str, typer.Option(help="full, or quick: short trainings, kept apart.")] = "full",
    protocol: Annotated[
        str,
        typer.Option(
            help="honest: chosen by validation data; paper: by the best test epoch, as the authors do; or both."
        ),
    ] = "honest",
    recipe: Annotated[
        str, typer.Option(help="ours, or paper: the training that the paper describes, where it does (uea).")
    ] = "ours",
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side.")] = 1,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Only the I-th of N parts, for N machines.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing, show the results so far.")] = False,
    docs: Annotated[
        str | None,
        typer.Option(metavar="FILE,FILE", help="With report: Markdown files whose marked tables are written anew."),
    ] = None,
    verbose: Annotated[int, typer.Option(min=0, max=1, help="1: show each training.")] = 0,
    output: Annotated[
        Path, typer.Option(file_okay=False, help="Folder of the results.", show_default="reproduction/results")
    ] = RESULTS,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
) -> None:
    """Run a table or a figure of the paper, cell by cell; finished cells are never run again.

    Stop at any time: at most the running cell is lost.

      [bold]list[/bold]         show all of them with their state
      [bold]report[/bold]       write one page with our numbers beside the paper's
      [bold]quick[/bold]        run a sample of all kinds; fails if a number is out of range
      [bold]publish[/bold]      merge finished cells into the CSV tables
      [bold]boards NAME[/bold]  run a board of real data; without a name, show them all

    [bold]Examples[/bold]

      python -m reproduction list
      python -m reproduction uea --datasets Libras --settings drop30 --jobs 2
      python -m reproduction uea --show --protocol both
      python -m reproduction report --docs docs/events.md
      python -m reproduction boards clinical --datasets P12 --models boosting
    """
    if budget not in get_args(Budget):
        raise typer.BadParameter(f"{budget!r} is neither full nor quick.", param_hint="--budget")
    store = Store(output, budget)  # type: ignore[arg-type]
    if docs is not None and name != REPORT:
        raise typer.BadParameter("goes with report only.", param_hint="--docs")
    if board is not None:
        name = context.params["name"] = _board(name, board)
    others: dict[str, Callable[[Store], None]] = {
        LIST: _show_list,
        REPORT: partial(_report, docs=docs),
        QUICK: _quick,
        PUBLISH: _publish,
        BOARDS: _show_boards,
    }
    if name in others:
        others[name](store)
        return
    if name not in experiments.EXPERIMENTS | experiments.BOARDS:
        hint = did_you_mean(name, [*others, *experiments.EXPERIMENTS])
        raise typer.BadParameter(f"{name!r}; {hint}", param_hint="NAME")
    experiment = experiments.get(_with_recipe(name, recipe))
    name = experiment.name
    protocol = protocol if protocol in (*experiment.protocols, "both") or recipe == "ours" else experiment.protocols[0]
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
    if not show and jobs > 1:
        code = running.run_side_by_side([*_words(context.params), "--worker"], jobs)
    elif not show:
        cells = cells if part is None else running.shard(cells, *part)
        code = _run(experiment, cells, store, verbose, tell=not worker)
    if not worker:
        _show_tables(experiment, grids, store)
        _draw(experiment, store, only_shown=show)
    raise typer.Exit(code)


def _board(name: str, board: str) -> str:
    """The experiment of a board."""
    if name != BOARDS:
        raise typer.BadParameter(f"{board!r}: only boards takes a second name.", param_hint="BOARD")
    if f"{PREFIX}{board}" not in experiments.BOARDS:
        hint = did_you_mean(board, [one.removeprefix(PREFIX) for one in experiments.BOARDS])
        raise typer.BadParameter(f"{board!r}; {hint}", param_hint="BOARD")
    return f"{PREFIX}{board}"


def _run(experiment: Experiment, cells: Sequence[Cell], store: Store, verbose: int, *, tell: bool) -> int:
    tally = running.run_cells(experiment, cells, store, verbose=verbose, notify=lambda text: typer.echo(text, err=True))
    for line in [str(tally), *tally.absent[:3]] if tell else []:
        typer.echo(line, err=True)
    return 1 if tally.failed else 0


def _show_list(store: Store) -> None:
    """Every table and figure with its state here."""
    console, protocols = Console(), get_args(Protocol)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("title", ratio=1)
    for protocol in protocols:
        table.add_column(protocol, no_wrap=True)
    for name in experiments.EXPERIMENTS | experiments.BOARDS:
        experiment = experiments.get(name)
        states = [_state(experiment, one, store) if one in experiment.protocols else "" for one in protocols]
        table.add_row(name, experiment.title, *states)
    console.print(table)
    quick = " of quick trainings" if store.budget == "quick" else ""
    said = f"Cells{quick} in {store.folder}: done / can be run, as their data are here / all."
    console.print(said, highlight=False, soft_wrap=True)


def _show_boards(store: Store) -> None:
    """The tables of all boards, as far as they are."""
    for name in experiments.BOARDS:
        board = experiments.get(name)
        _show_tables(board, {"honest": board.grid("honest")}, store)


def _state(experiment: Experiment, protocol: Protocol, store: Store) -> str:
    progress = Results.read(experiment, protocol, store).progress
    words = f"[{_COLOURS[progress.state]}]{progress.state}[/]"
    stale = f"\n{progress.stale} stale" if progress.stale else ""
    return f"{words}\n[dim]{progress.done} / {progress.runnable} / {progress.all}{stale}[/dim]"


def _show_tables(experiment: Experiment, grids: dict[Protocol, list[Cell]], store: Store) -> None:
    for protocol, cells in grids.items():
        _show_table(experiment, protocol, cells, store)


def _show_table(experiment: Experiment, protocol: Protocol, cells: Sequence[Cell], store: Store) -> None:
    """Our numbers so far beside the paper's."""
    console = Console()
    results = Results.read(experiment, protocol, store, cells)
    progress = results.progress
    quick = ", quick trainings that say little" if store.budget == "quick" else ""
    console.rule(f"{experiment.name}, {protocol} protocol{quick}", align="left")
    stale = f" ({progress.stale} stale)" if progress.stale else ""
    counts = f"{progress.done} of {progress.all} cells{stale}, {progress.left} more can be run here: {progress.state}."
    console.print(f"{experiment.title}. {counts}", highlight=False, markup=False)
    if results.rows:
        # one comparison with each rival is enough on a screen; the report has them all
        sheets = [*main_sheets(results), *average_sheets(results), *rival_sheets(results)[:1], *t_test_sheets(results)]
        for sheet in sheets:
            console.print(sheet.title, style="bold", highlight=False, markup=False)
            for part in split_sheet(sheet, console.width):
                console.print(sheet_to_rich(part), highlight=False)
            for note in sheet.notes:
                console.print(note, style="dim", highlight=False, markup=False)
            console.print()
    if experiment.note:
        console.print(experiment.note, highlight=False, markup=False)


def _draw(experiment: Experiment, store: Store, *, only_shown: bool) -> None:
    rows = list(Results.read(experiment, experiment.protocols[0], store).comparable.rows.values())
    if only_shown or experiment.draw is None or not rows:
        return
    folder = store.folder if store.budget == "full" else store.cells
    typer.echo(f"wrote {experiment.draw(rows, folder / 'figures' / f'{experiment.name}.png')}")


def _quick(store: Store) -> None:
    problems, absent = check(store.folder, lambda text: typer.echo(text, err=True))
    for problem in problems:
        typer.secho(problem, fg="red", err=True)
    if problems:
        raise typer.Exit(1)
    left_out = f"; {absent} of {len(EXPECTED)} cells were left out, as their data are not here" if absent else ""
    typer.echo(f"all metrics are within their ranges{left_out}")


def _report(store: Store, *, docs: str | None) -> None:
    chapters = read_chapters(store)
    if gone := gone_data(chapters):
        typer.secho(
            f"Cells were run on {', '.join(gone)}, whose data are not here: the report will say 'no data' where cells "
            f"are only missing. Set {ENVIRONMENT_VARIABLE} to the folder of the data, and write it again.",
            fg="yellow",
            err=True,
        )
    # quick numbers never lie beside full ones
    quick = store.budget == "quick"
    written = write_report(chapters, store.cells if quick else store.folder, quick=quick)
    for path in (
        *written,
        *fill_files(chapters, [Path(name.strip()) for name in (docs or "").split(",") if name.strip()]),
    ):
        typer.echo(f"wrote {path}")


def _publish(store: Store) -> None:
    """Merge the unpublished cells of all experiments into the CSV tables."""
    if store.budget != "full":
        raise typer.BadParameter("quick results are not published.", param_hint="--budget")
    written = [path for table in experiments.EXPERIMENTS | experiments.BOARDS for path in store.publish(table)]
    for path in written:
        typer.echo(f"wrote {path}")
    if not written:
        typer.echo(f"no unpublished cells in {store.cells}")


def _with_recipe(name: str, recipe: str) -> str:
    """The experiment of this name with a recipe."""
    if recipe not in ("ours", "paper"):
        raise typer.BadParameter(f"{recipe!r} is neither ours nor paper.", param_hint="--recipe")
    own = name if recipe == "ours" else f"{name}{PAPER_RECIPE}"
    if own not in experiments.EXPERIMENTS | experiments.BOARDS:
        there = [one.removesuffix(PAPER_RECIPE) for one in experiments.EXPERIMENTS if one.endswith(PAPER_RECIPE)]
        raise typer.BadParameter(f"paper: goes with {', '.join(there)} only.", param_hint="--recipe")
    return own


def _words(given: dict[str, Any]) -> list[str]:
    """The same command for one of several processes."""
    options = {name: value for name, value in given.items() if name in _PASSED_ON and value is not None}
    return [given["name"], *(word for name in options for word in (f"--{name}", str(options[name])))]


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


class _Reproduction(Program):
    program = "python -m reproduction"


app = typer.Typer(add_completion=False, rich_markup_mode="rich")
app.command(cls=_Reproduction, no_args_is_help=True)(reproduce)


if __name__ == "__main__":
    app()
