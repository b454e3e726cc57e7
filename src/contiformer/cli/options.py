"""Options that several commands have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from contiformer.estimators.tables import Columns

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `contiformer train` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
Id = Annotated[str | None, typer.Option(help="Column that tells which series a row belongs to.")]
Time = Annotated[str | None, typer.Option(help="Column of the times: numbers or dates.")]
Type = Annotated[str | None, typer.Option(help="Column of the type of each event, for events.")]
Values = Annotated[str | None, typer.Option(metavar="A,B", help="Columns of the channels (default: all others).")]
Label = Annotated[str | None, typer.Option(help="Column of the class or the number to predict.")]
Static = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that do not change within a series.")]
Targets = Annotated[str | None, typer.Option(metavar="A,B", help="Columns to predict at every time, for regression.")]
Duplicates = Annotated[
    str, typer.Option(help="Two rows of a series at one time: error, mean, first, last or keep.", show_default=True)
]


def names_in(text: str | None) -> tuple[str, ...]:
    """The words between commas.

    Example:
        >>> names_in("pH, heart rate")
        ('pH', 'heart rate')
    """
    return () if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def columns_from(
    id: str | None, time: str | None, values: str | None, label: str | None, static: str | None, targets: str | None
) -> Columns:
    """The roles of columns as they were given."""
    from contiformer.estimators.tables import Columns  # noqa: PLC0415

    return Columns(id, time, names_in(values) or None, label, names_in(static), names_in(targets))


def columns_of_run(estimator: Any, id: str | None, time: str | None, label: str | None = None) -> Columns:
    """The columns that the model was trained on, unless they have other names here."""
    columns: Columns = estimator.columns_
    given = {name: value for name, value in (("id", id), ("time", time), ("label", label)) if value is not None}
    values = columns.values if columns.values or "time" not in given else estimator.schema_.channels
    return replace(columns, values=values, **given)  # type: ignore[arg-type]
