"""``contiformer evaluate``: how good a trained model is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from contiformer.cli import options
from contiformer.data.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from contiformer.data.series_set import SeriesSet
    from contiformer.estimators.event_tables import Events


def evaluate(
    run: options.Run,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="With answers, in the columns of the run (default: its test part)."),
    ] = None,
    id: options.Id = None,
    time: options.Time = None,
    type: options.Type = None,
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
    found = (
        test_data(run, estimator)
        if data is None
        else other_data(run, estimator, data, id=id, time=time, type=type, label=label)
    )
    if found is None:
        raise DataError(
            "the run has no test part", file=run, remedy="pass --data FILE, or train with --test FILE or a share"
        )
    metrics = estimator.evaluate(found)
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
    else:
        word = "sequences" if estimator.task_name == "events" else "series"
        title = f"{estimator.__class__.__name__} on {len(found):,} {word}"
        show_metrics(title, {"test" if data is None else "value": metrics})


def test_data(run: Path, estimator: Any) -> SeriesSet | Events | None:
    """The test part of a run."""
    from contiformer.cli.run_folder import read_start  # noqa: PLC0415

    start = read_start(run)
    return None if start is None else start.source.testing(estimator)


def other_data(run: Path, estimator: Any, data: str, **columns: str | None) -> SeriesSet | Events | None:
    """Other data, read as those of the run are."""
    from contiformer.cli.event_source import EventSource, other_events  # noqa: PLC0415
    from contiformer.cli.run_folder import read_start  # noqa: PLC0415
    from contiformer.cli.source import Source  # noqa: PLC0415

    start = read_start(run)
    unwanted = "label" if estimator.task_name == "events" else "type"
    if columns.pop(unwanted) is not None:
        raise typer.BadParameter(f"{estimator.task_name} has no use for it.", param_hint=f"--{unwanted}")
    if estimator.task_name == "events":
        given = EventSource("") if start is None else start.source
        return other_events(cast("EventSource", given), estimator, data, **columns)
    source = Source("") if start is None else cast("Source", start.source)
    asked = Source.of(data, test=data)
    return replace(
        source, data=asked.data, test=asked.test, columns=options.columns_of_run(estimator, **columns)
    ).testing(estimator)
