"""``contiformer evaluate``: metrics of a trained model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from contiformer.cli.run_folder import (
    load_run,
    read_given,
    read_source,
    refuse_options,
    refuse_without_data,
    tell_files,
)
from contiformer.data import DataError
from contiformer.data.errors import printable


def evaluate(run: Path, data: str | None, as_json: bool, n: int | None = None, **columns: Any) -> None:
    """Print the metrics on the test part of the run, or on other data."""
    estimator: Any = load_run(run)
    if estimator.task_name != "events":
        refuse_options(("--n", n), why=f"{estimator.task_name} does not use this option.")
    source = read_source(run, estimator.task_name)
    found: Any = None
    if data is not None:
        found = read_given(run, estimator, data, answers=True, **columns)
    else:
        refuse_without_data(columns)
    if data is None and source.data:
        if source.test is not None:
            tell_files(source)
        found = source.testing(estimator)
    if found is None:
        remedy = "pass --data FILE, or train with --test FILE or a share"
        raise DataError("the run has no test part", file=run, remedy=remedy)
    metrics = estimator.evaluate(found) if n is None else estimator.evaluate(found, ahead=n)
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
    else:
        title = f"{estimator.__class__.__name__} on {len(found):,} {source.items}"
        show_metrics(title, {"test" if data is None else "value": metrics}, estimator.metric_meanings())


def show_metrics(title: str, columns: Mapping[str, Mapping[str, float]], meanings: Mapping[str, str]) -> None:
    """One row for each metric with its meaning and unit, one column for each part of the data."""
    table = Table(title=escape(printable(title)), title_justify="left")
    table.add_column("metric")
    for part in columns:
        table.add_column(part, justify="right")
    table.add_column("", style="dim")
    for name in dict.fromkeys(name for metrics in columns.values() for name in metrics):
        numbers = (f"{metrics[name]:.4g}" if name in metrics else "" for metrics in columns.values())
        table.add_row(name, *numbers, meanings.get(name, ""))
    Console(highlight=False).print(table)
