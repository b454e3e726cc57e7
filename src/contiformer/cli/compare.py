"""``contiformer compare``: models and baselines by cross-validation on a user's data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from contiformer.backbones import BACKBONES
from contiformer.cli.commands import names_in
from contiformer.cli.run_folder import TASKS
from contiformer.cli.settings import checked, parse_assignments
from contiformer.cli.source import SeriesSource, kind_of
from contiformer.cli.train import source_of
from contiformer.data import catalog
from contiformer.data.errors import did_you_mean
from contiformer.data.files import write_text
from contiformer.estimators import comparison_tasks
from contiformer.estimators.comparison import compare as compare_models
from contiformer.tasks.baselines import BASELINES
from contiformer.tasks.events.build import WHOLE


def compare(data: str, task: str, models: str | None, as_json: bool, output: Path | None, **options: Any) -> None:
    """Print the table and the recommendation; with a folder, write them there with a picture."""
    if task not in TASKS:
        raise typer.BadParameter(f"there is no {task!r} to compare; {did_you_mean(task, TASKS)}.", param_hint="--task")
    names = names_in(models) or comparison_tasks.TASKS[task].models
    known = (*(WHOLE if task == "events" else [n for n, one in BASELINES.items() if task in one.tasks]), *BACKBONES)
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no model {name!r}; {did_you_mean(name, known)}.", param_hint="--models")
    settings = checked(TASKS[task], parse_assignments(options["assignments"] or ()), "--set")
    source: Any = source_of(task, {**options, "data": data, "targets": None, "test": None, "fold": None}, 0)
    if isinstance(source, SeriesSource) and task == "forecasting" and kind_of(source.data) == "forecasting":
        # whole series, not the windows of a published split
        settings, series = source.lengths() | settings, catalog.load_forecasting(source.data)
    else:
        series = source.training(task, settings)[0]
    minutes = options["minutes"]
    found = compare_models(
        series,
        task=task,
        models={name: TASKS[task].from_options(**settings, backbone=name) for name in names},
        folds=options["folds"],
        metric=options["metric"],
        time_budget=None if minutes is None else 60 * minutes,
        run_dir=output,
        progress=lambda line: typer.echo(line, err=True),
    )
    told = json.dumps(found.to_dict(), indent=1)
    if output is not None:
        write_text(output / "table.json", told)
        try:
            typer.echo(f"picture: {found.plot(output / 'comparison.png')}", err=True)
        except ModuleNotFoundError as absent:
            typer.echo(f"no picture: {absent}", err=True)
    if as_json:
        typer.echo(told)
        return
    Console(highlight=False).print(found.table())
    typer.echo(found.recommendation())
    if found.left_out:
        typer.echo(f"Left out by the time budget: {', '.join(found.left_out)}.")
