"""``contiformer reproduce``: every table and figure of the paper from one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contiformer.cli.options import names_in
from contiformer.data.errors import did_you_mean

if TYPE_CHECKING:
    from contiformer.experiments.experiment import Experiment

RESULTS = Path("results")


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="list, report, quick, or the name of a table or figure.")],
    *,
    datasets: Annotated[str | None, typer.Option(metavar="A,B", help="Only these data sets.")] = None,
    settings: Annotated[str | None, typer.Option(metavar="A,B", help="Only these settings, such as drop30.")] = None,
    backbones: Annotated[str | None, typer.Option(metavar="A,B", help="Only these models.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1", help="Only these seeds.")] = None,
    budget: Annotated[str, typer.Option(help="full, or quick: short trainings, kept apart.")] = "full",
    protocol: Annotated[
        str, typer.Option(help="honest: chosen by validation data; paper: by the best test epoch, as the authors do.")
    ] = "honest",
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side.")] = 1,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Only the I-th of N parts, for N machines.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing, show the table as far as it is.")] = False,
    verbose: Annotated[int, typer.Option(min=0, max=1, help="1: show each training.")] = 0,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder of the results.")] = RESULTS,
) -> None:
    """Run a table or a figure of the paper, cell by cell; finished cells are never run again.

    list shows all of them with their state here, report writes one page with our numbers beside the paper's.
    """
    from contiformer.experiments import catalogue, running  # noqa: PLC0415
    from contiformer.experiments.store import Store  # noqa: PLC0415

    if name not in catalogue.MODULES:
        raise typer.BadParameter(f"{name!r}; {did_you_mean(name, catalogue.MODULES)}", param_hint="NAME")
    if budget not in ("full", "quick"):
        raise typer.BadParameter(f"{budget!r} is neither full nor quick.", param_hint="--budget")
    experiment = catalogue.get(name)
    if protocol not in experiment.protocols:
        known = " and ".join(experiment.protocols)
        raise typer.BadParameter(f"{protocol!r}: {name} has {known}.", param_hint="--protocol")
    cells = experiment.cells(
        protocol,  # type: ignore[arg-type]
        datasets=_known(experiment, "data", datasets, "--datasets"),
        settings=_known(experiment, "setting", settings, "--settings"),
        models=_known(experiment, "model", backbones, "--backbones"),
        seeds=[int(seed) for seed in _known(experiment, "seed", seeds, "--seeds")],
    )
    if shard is not None:
        cells = running.shard(cells, *_shard(shard))
    store = Store(output, budget)  # type: ignore[arg-type]
    tally = running.run_cells(
        experiment, cells, store, verbose=verbose, notify=lambda text: typer.echo(text, err=True)
    )
    for line in tally.absent[:3]:
        typer.echo(line, err=True)
    if tally.failed:
        raise typer.Exit(1)


def _known(experiment: Experiment, part: str, text: str | None, option: str) -> list[Any]:
    names = names_in(text)
    known = list(dict.fromkeys(str(getattr(cell, part)) for cell in experiment.grid("honest")))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r}; {did_you_mean(name, known)}", param_hint=option)
    if text is not None and not names:
        raise typer.BadParameter("names nothing.", param_hint=option)
    return list(names)


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not slash or not part.isdecimal() or not parts.isdecimal() or not 1 <= int(part) <= int(parts):
        raise typer.BadParameter(f"{text!r} is not of the form 1/4.", param_hint="--shard")
    return int(part), int(parts)
