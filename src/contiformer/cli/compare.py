"""``contiformer compare``: models and baselines by cross-validation on a user's data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from contiformer.backbones import BACKBONES
from contiformer.cli.source import SeriesSource
from contiformer.data.errors import did_you_mean
from contiformer.data.files import write_text
from contiformer.estimators.blend import KINDS
from contiformer.estimators.comparison import MODELS
from contiformer.estimators.comparison import compare as compare_models
from contiformer.estimators.tables import Columns
from contiformer.tasks.baselines import BASELINES


def compare(data: str, task: str, models: str | None, as_json: bool, output: Path | None, **options: Any) -> None:
    """Print the table and the recommendation; with a folder, write them there with a picture."""
    if task not in KINDS:
        raise typer.BadParameter(f"there is no {task!r} to compare; {did_you_mean(task, KINDS)}.", param_hint="--task")
    names = tuple(_names(models)) or MODELS
    known = (*BASELINES, *BACKBONES)
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no model {name!r}; {did_you_mean(name, known)}.", param_hint="--models")
    roles: dict[str, Any] = {name: options[name] for name in ("id", "time", "label", "variable", "value", "duplicates")}
    several: dict[str, Any] = {name: tuple(_names(options[name])) for name in ("static", "categorical")}
    columns = Columns(values=tuple(_names(options["values"])) or None, **several, **roles)
    labels = None if options["labels"] is None else str(options["labels"].resolve())
    source = SeriesSource.of(data, columns=columns, labels=labels, drop=options["drop"])
    series = source.training(task, {})[0]
    minutes = options["minutes"]
    found = compare_models(
        series,
        task=task,  # type: ignore[arg-type]
        models=names,
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
        typer.echo(f"Not compared, for want of time: {', '.join(found.left_out)}.")


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
