"""``contiformer explain``: attributions of the answers of a trained model, as a table or a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import typer
from rich.console import Console
from rich.progress import track

from contiformer.cli.predict import ENDINGS, check_output, parse_times, write_table
from contiformer.cli.run_folder import load_run, note, read_source, refuse_options
from contiformer.data import DataError
from contiformer.estimators.tables import names_of
from contiformer.plots.figures import require_matplotlib

PICTURES = (".png", ".svg", ".pdf")
#: Series that are explained together, between two steps of the progress bar.
_TOGETHER = 16


def explain(
    run: Path,
    given: str,
    output: Path | None,
    series: str | None,
    target: str | None,
    at: str | None,
    type: str | None,
    hide: str,
    **how: Any,
) -> None:
    """Write the attributions to a table, or draw those of one series."""
    columns = {name: how.pop(name) for name in ("id", "time")}
    if output is not None:
        check_output(output, (*ENDINGS, *PICTURES))
    picture = output is not None and output.suffix in PICTURES
    if picture:
        require_matplotlib()
    estimator: Any = load_run(run)
    events = estimator.task_name == "events"
    if events:
        refuse_options(("--hide", hide if hide != "observation" else None), why="events are left out one by one.")
        columns["type"] = type
    else:
        refuse_options(("--type", type), why=f"{estimator.task_name} does not use this option.")
        how["hide"] = hide
    data: Any = read_source(run, estimator.task_name).inputs(given, estimator, **columns)
    names = [str(name) for name in names_of(data.data if events else data)]
    if series is not None and series not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise DataError(f"there is no series {series!r}", file=given, remedy=f"choose among {shown}")
    first = 0 if series is None else names.index(series)
    last = first + 1 if picture or series is not None else len(names)
    if at is not None:
        kind = estimator.time_kind_ if events else estimator.schema_.kind
        how["at"] = parse_times(at, estimator.columns_.id, estimator.columns_.time, kind=kind)
    steps = range(first, last, _TOGETHER)
    tables, notes = [], []
    hidden = len(steps) < 2 or not sys.stderr.isatty()
    for start in track(steps, "explaining", console=Console(stderr=True), transient=True, disable=hidden):
        some = slice(start, min(start + _TOGETHER, last))
        part = replace(data, data=data.data[some]) if events else data[some]
        told = estimator.explain(part, target=target, **how)
        notes += told.notes
        if picture:
            _tell(notes)
            told.plot(output)
            typer.echo(output)
            return
        tables.append(told.table())
    if not tables:
        raise DataError("there are no series", file=given, remedy="give at least one")
    _tell(notes)
    write_table(pl.concat(tables), output)


def _tell(notes: Sequence[str]) -> None:
    """The first notes; those of further series say the same of other ids."""
    for text in notes[:1]:
        note(text)
    if len(notes) > 1:
        note(f"and so of the following series ({len(notes) - 1} more notes)")
