"""``contiformer export``: a trained model as one file that runs without this library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from contiformer.cli.run_folder import load_run, note, read_source, refuse_without_data, tell_files
from contiformer.data import DataError
from contiformer.data.errors import printable
from contiformer.integrations.export import LIMIT
from contiformer.integrations.export import export as write
from contiformer.integrations.formats import FORMATS


def export(run: Path, to: str, output: Path | None, data: str | None, as_json: bool, **columns: str | None) -> None:
    """Write the file, and print how far it is from the model's own predictions."""
    if to not in FORMATS:
        raise typer.BadParameter(f"{to!r} is none of {', '.join(FORMATS)}.", param_hint="--to")
    path = run / f"model.{to}" if output is None else output
    if path.suffix != f".{to}":
        raise typer.BadParameter(f"{path} has to end in .{to}.", param_hint="--output")
    estimator: Any = load_run(run)
    if data is None:
        refuse_without_data(columns)
    found, which = (None, "") if estimator.task_name == "events" else _series(run, estimator, data, columns)
    done = write(estimator, path, found, data=which)
    if as_json:
        facts = {
            "path": str(done.path),
            "data": done.data,
            "series": done.series,
            "largest_difference": done.difference,
        }
        typer.echo(json.dumps(facts | {"limit": LIMIT}, indent=2))
        return
    typer.echo(f"wrote {printable(str(done.path))} ({done.path.stat().st_size / 1e6:.1f} MB)")
    typer.echo(
        f"largest difference from predict: {done.difference:.1e} of the output's scale (limit {LIMIT:g}), measured on "
        f"{done.series:,} series: {printable(done.data)}"
    )


def _series(run: Path, estimator: Any, data: str | None, columns: dict[str, str | None]) -> tuple[Any, str]:
    """Series to compare on, and which they are: --data, or the test part of the run, or none."""
    source = read_source(run, estimator.task_name)
    if data is not None:
        return source.inputs(data, estimator, **columns), f"the series in {data}"
    if not source.data:
        return None, ""
    try:
        if source.test is not None:
            tell_files(source)
        found = source.testing(estimator)
    except DataError as error:
        note(f"the test part of the run cannot be read ({error})")
        return None, ""
    return found, "the series of the test part"
