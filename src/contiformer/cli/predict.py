"""``contiformer predict``: predictions of a trained model as a table."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer

from contiformer.cli.run_folder import load_run, read_source, refuse_options
from contiformer.data import DataError, SeriesSet, read_text, write_bytes
from contiformer.data.conversion import TimeKind, as_clock
from contiformer.data.errors import printable
from contiformer.estimators.frames import frame_of
from contiformer.estimators.tables import Columns, names_of

ENDINGS = (".csv", ".parquet", ".json")
#: Beginnings of cells that spreadsheets run.
_FORMULA = r"^[=+\-@\t\r]"


def predict(
    run: Path,
    given: str,
    at: str | None,
    quantiles: str | None,
    type: str | None,
    n: int | None,
    output: Path | None,
    escape_formulas: bool,
    **columns: str | None,
) -> None:
    """Write the predictions for the data ``given`` to ``output`` or stdout."""
    if output is not None:
        check_output(output, ENDINGS)
    levels = None if quantiles is None else _numbers(quantiles.split(","), "--quantiles")
    estimator: Any = load_run(run)
    events = estimator.task_name == "events"
    if events:
        why = "a model of events says what comes next, and when."
        refuse_options(("--at", at), ("--quantiles", levels), why=why)
        columns["type"] = type
    else:
        refuse_options(("--n", n), ("--type", type), why=f"{estimator.task_name} has no use for it.")
    data: Any = read_source(run, estimator.task_name).inputs(given, estimator, **columns)
    table: pl.DataFrame
    if events:
        table = estimator.predict_next(data) if n is None else estimator.predict_ahead(data, n)
    else:
        table = predictions(estimator, data, at, levels)
    write_table(table, output, escape_formulas=escape_formulas)


def write_table(table: pl.DataFrame, output: Path | None, *, escape_formulas: bool = False) -> None:
    """Write a table to a file by its ending, or as CSV to stdout."""
    if output is None or output.suffix != ".parquet":
        table = table.with_columns(
            pl.Series(name, list(map(as_clock, table[name])))
            for name, kind in table.schema.items()
            if kind == pl.Duration
        )
    if escape_formulas:
        table = without_formulas(table)
    if output is None:
        text = table.write_csv()
        sys.stdout.write("\n".join(map(printable, text.split("\n"))) if sys.stdout.isatty() else text)
        return
    packed = io.BytesIO()
    writers: dict[str, Any] = {".csv": table.write_csv, ".parquet": table.write_parquet, ".json": table.write_json}
    writers[output.suffix](packed)
    write_bytes(output, packed.getvalue())
    names = printable(", ".join(table.columns[:8]))
    typer.echo(f"wrote {output}: {table.height:,} rows of {names}", err=True)


def without_formulas(table: pl.DataFrame) -> pl.DataFrame:
    """The table with an apostrophe before words that a spreadsheet would take for a formula.

    Example:
        >>> import polars as pl
        >>> from contiformer.cli.predict import without_formulas
        >>> without_formulas(pl.DataFrame({"id": ["=1+1", "a"], "-x": [1, 2]})).to_dict(as_series=False)
        {'id': ["'=1+1", 'a'], "'-x": [1, 2]}
    """
    words = pl.col(pl.String)
    escaped = table.with_columns(pl.when(words.str.contains(_FORMULA)).then("'" + words).otherwise(words).name.keep())
    return escaped.rename({name: f"'{name}" for name in table.columns if re.match(_FORMULA, name)})


def check_output(output: Path, endings: Sequence[str]) -> None:
    """Reject a file that cannot be written, before the work."""
    if output.suffix not in endings:
        known = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise typer.BadParameter(f"{output} has to end in {known}.", param_hint="--output")
    if not output.absolute().parent.is_dir():
        raise DataError("there is no such folder", file=output.parent, remedy="make it first")


def predictions(estimator: Any, data: SeriesSet, at: str | None, levels: Sequence[float] | None) -> pl.DataFrame:
    """A row for each series, or for each series and time."""
    columns: Columns = estimator.columns_
    id, time = columns.id or "id", columns.time or "time"
    task = estimator.task_name
    if task == "classification" or (task == "regression" and not estimator._in_time):
        why = "this model says one thing about a whole series."
        refuse_options(("--at", at), ("--quantiles", levels), why=why)
        table: dict[str, Any] = {id: names_of(data)}
        if task == "regression":
            return pl.DataFrame(table | {columns.label or "prediction": estimator.predict(data)})
        probability, classes = estimator.predict_proba(data), estimator.classes_
        shares = {f"probability_{label}": probability[:, k] for k, label in enumerate(classes.tolist())}
        return pl.DataFrame(table | {"class": classes[probability.argmax(1)]} | shares)
    times = None if at is None else parse_times(at, columns.id, columns.time, kind=data.schema.time_kind)
    if levels is not None:
        if task == "regression":
            raise typer.BadParameter("regression has none.", param_hint="--quantiles")
        parts = [estimator.predict(data, at=times, quantiles=levels)]
    elif task != "forecasting" and estimator.law == "gaussian":
        parts = list(estimator.predict(data, at=times, return_std=True))
    else:
        parts = [estimator.predict(data, at=times)]
    names = [f"{channel}{suffix}" for part, suffix in zip(parts, ("", "_std")) for channel in part.channels]
    values = [np.hstack([one.values for one in series]) for series in zip(*parts, strict=True)]
    return frame_of(data, [one.times for one in parts[0]], values, names, Columns(id, time))


def parse_times(text: str, id: str | None = None, time: str | None = None, kind: TimeKind | None = None) -> Any:
    """Times from a list, a range, or a file; from a file with ids a dictionary. Where the kind is known, of that kind.

    Example:
        >>> from contiformer.cli.predict import parse_times
        >>> parse_times("0,0.5,1"), parse_times("0:1:0.25").tolist()
        ([0.0, 0.5, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0])
    """
    path = Path(text)
    if path.is_file():
        return _times_in(path, id or "id", time or "time", kind)
    if kind != "durations" and text.count(":") == 2 and "-" not in text.partition(":")[0][1:]:
        start, stop, step = _numbers(text.split(":"), "--at")
        if step <= 0 or stop < start:
            raise typer.BadParameter(f"{text} has no times: start:stop:step needs a positive step.", param_hint="--at")
        # the last one counts, whatever rounding does to it
        return start + step * np.arange(int(np.floor((stop - start) / step * (1 + 1e-9))) + 1)
    return _times(text.split(","), f"{text!r} is neither a file nor times", kind)


def _times_in(path: Path, id: str, time: str, kind: TimeKind | None) -> Any:
    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    header = rows[0]
    problem = f"a row of {path} is no time"
    if len(header) == 1:
        return _times([row[0] for row in rows[header[0] == time :]], problem, kind)
    if not {id, time} <= set(header):
        raise DataError(f"there are no columns {id} and {time}", file=path, remedy="give them, or times alone")
    who, when = header.index(id), header.index(time)
    times: dict[Any, list[str]] = {}
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise DataError(f"{len(row)} fields, the first row has {len(header)}", file=path, row=number)
        times.setdefault(row[who], []).append(row[when])
    named: dict[Any, Any] = {}
    for key, words in times.items():
        named[key] = _times(words, problem, kind)
        if key.lstrip("-").isdigit():
            named[int(key)] = named[key]  # ids that are whole numbers are read as such
    return named


def _times(words: Sequence[str], problem: str, kind: TimeKind | None) -> Any:
    """Numbers, or else dates; or words such as 01:30 where times are durations."""
    bad = _no_number(words)
    if bad is None and kind not in (None, "numbers"):
        form = "durations, such as 01:30" if kind == "durations" else "dates, such as 2024-01-31"
        raise typer.BadParameter(f"the run was trained on {kind}: give {form}.", param_hint="--at")
    if kind == "durations":
        return [word.strip() for word in words]
    if bad is None:
        return [float(word) for word in words]
    try:
        return [dt.datetime.fromisoformat(word.strip()) for word in words]
    except ValueError:
        advice = "Pass 0,0.5,1 or start:stop:step or a file."
        raise typer.BadParameter(f"{problem}: {bad.strip()!r} is no number. {advice}", param_hint="--at") from None


def _no_number(words: Sequence[str]) -> str | None:
    """The first word that is no number."""
    for word in words:
        try:
            float(word)
        except ValueError:
            return word
    return None


def _numbers(words: Sequence[str], option: str) -> list[float]:
    bad = _no_number(words)
    if bad is not None:
        raise typer.BadParameter(f"{bad!r} is no number.", param_hint=option)
    return [float(word) for word in words]
