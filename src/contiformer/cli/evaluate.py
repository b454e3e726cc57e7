"""``contiformer evaluate``: how good a trained model is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contiformer.cli import options
from contiformer.data.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from contiformer.data.series_set import SeriesSet


def evaluate(
    run: options.Run,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="With answers, in the columns of the run (default: its test part)."),
    ] = None,
    id: options.Id = None,
    time: options.Time = None,
    label: options.Label = None,
    as_json: options.AsJson = False,
) -> None:
    """Metrics of a trained model on its test part, or on other data.

    [bold]Examples[/bold]

      contiformer evaluate runs/classification-BasicMotions-seed0

      contiformer evaluate runs/mortality --data other-hospital.csv --json
    """
    from contiformer.cli.metrics import show_metrics  # noqa: PLC0415
    from contiformer.cli.run_folder import load_run  # noqa: PLC0415

    estimator: Any = load_run(run)
    found = test_data(run, estimator) if data is None else other_data(run, estimator, data, id, time, label)
    if found is None:
        raise DataError(
            "the run has no test part", file=run, remedy="pass --data FILE, or train with --test FILE or a share"
        )
    metrics = estimator.evaluate(found)
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
    else:
        show_metrics(
            f"{type(estimator).__name__} on {len(found):,} series", {"test" if data is None else "value": metrics}
        )


def test_data(run: Path, estimator: Any) -> SeriesSet | None:
    """The test part of a run."""
    from contiformer.cli.run_folder import read_start  # noqa: PLC0415

    start = read_start(run)
    return None if start is None else start.source.testing(estimator)


def other_data(
    run: Path, estimator: Any, data: str, id: str | None, time: str | None, label: str | None
) -> SeriesSet | None:
    """Other data, read as those of the run are."""
    from contiformer.cli.run_folder import read_start  # noqa: PLC0415
    from contiformer.cli.source import Source  # noqa: PLC0415

    start = read_start(run)
    source = Source("") if start is None else start.source
    asked = Source.of(data, test=data)
    columns = options.columns_of_run(estimator, id, time, label)
    return replace(source, data=asked.data, test=asked.test, columns=columns).testing(estimator)
