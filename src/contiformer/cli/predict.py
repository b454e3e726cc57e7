"""``contiformer predict``: answers of a trained model, at any times."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from contiformer.cli import options
from contiformer.data.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from contiformer.cli.source import Source
    from contiformer.data.series_set import SeriesSet

ENDINGS = (".csv", ".parquet", ".json")


def predict(
    run: options.Run,
    given: Annotated[
        str, typer.Option("--input", metavar="FILE", help="Series in the columns of the run; answers are not needed.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIMES",
            help="0,0.5,1 or start:stop:step or a file with a time in each row, and an id if series differ. "
            "Default: the times of the series; in forecasting the next steps.",
        ),
    ] = None,
    quantiles: Annotated[
        str | None, typer.Option(metavar="0.1,0.9", help="Quantiles instead of the mean and its standard deviation.")
    ] = None,
    id: options.Id = None,
    time: options.Time = None,
    type: options.Type = None,
    n: Annotated[
        int | None, typer.Option(min=1, metavar="STEPS", help="For events: so many events ahead, by sampling.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".csv, .parquet or .json (default: CSV on stdout).")
    ] = None,
) -> None:
    """Classes and their probabilities, numbers, values with their uncertainty at any times, or the next events.

    [bold]Examples[/bold]

      contiformer predict runs/mortality --input new.csv --output risk.csv

      contiformer predict runs/vitals --input new.csv --at 0:48:0.5 --output hourly.parquet

      contiformer predict runs/demand --input known.csv --quantiles 0.1,0.5,0.9

      contiformer predict runs/orders --input known.csv --n 5 --output next.csv
    """
    if output is not None:
        _check_output(output)
    levels = None if quantiles is None else _numbers(quantiles.split(","), "--quantiles")
    from contiformer.cli.next_events import next_events  # noqa: PLC0415
    from contiformer.cli.run_folder import load_run, read_start  # noqa: PLC0415

    estimator: Any = load_run(run)
    if estimator.task_name == "events":
        _refuse(("--at", at), ("--quantiles", levels), why="a model of events says what comes next, and when.")
        table = next_events(estimator, given, n, id=id, time=time, type=type)
    else:
        _refuse(("--n", n), ("--type", type), why=f"{estimator.task_name} has no use for it.")
        start = read_start(run)
        duplicates = "error" if start is None else cast("Source", start.source).duplicates
        data = _read(given, estimator, id, time, duplicates)
        _refuse_other_times(estimator, data, at)
        table = predictions(estimator, data, at, levels)
    if output is None:
        sys.stdout.write(table.write_csv())
        return
    _write(table, output)
    typer.echo(f"wrote {output}: {table.height:,} rows of {', '.join(table.columns[:8])}", err=True)


def _refuse(*given: tuple[str, Any], why: str) -> None:
    """Options that mean nothing for this model."""
    for option, value in given:
        if value is not None:
            raise typer.BadParameter(why, param_hint=option)


def _check_output(output: Path) -> None:
    if output.suffix not in ENDINGS:
        raise typer.BadParameter(f"{output} has to end in .csv, .parquet or .json.", param_hint="--output")
    if not output.absolute().parent.is_dir():
        raise DataError("there is no such folder", file=output.parent, remedy="make it first")


def _refuse_other_times(estimator: Any, data: SeriesSet, at: str | None) -> None:
    """Dates and numbers are not the same clock."""
    dated = estimator.schema_.dates
    if data.schema.dates != dated:
        raise DataError(
            f"the times of --input are {'numbers' if dated else 'dates'}, the run was trained on "
            f"{'dates' if dated else 'numbers'}",
            remedy="give the same kind of times",
        )
    first = at.replace(":", ",").split(",")[0] if at is not None and not Path(at).is_file() else ""
    if dated and re.fullmatch(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", first.strip()):
        raise typer.BadParameter("the run was trained on dates: give dates, such as 2024-01-31.", param_hint="--at")


def _read(given: str, estimator: Any, id: str | None, time: str | None, duplicates: str) -> SeriesSet:
    from contiformer.cli.files import read_file  # noqa: PLC0415
    from contiformer.cli.source import Source, kind_of  # noqa: PLC0415

    source = Source.of(given, test=given)
    if kind_of(source.data) != "file":
        found = source.testing(estimator)
        assert found is not None
        return found
    columns = options.columns_of_run(estimator, id, time)
    return read_file(Path(source.data), columns, duplicates=duplicates, answers=False)[0]


def predictions(estimator: Any, data: SeriesSet, at: str | None, levels: Sequence[float] | None) -> pl.DataFrame:
    """A row for each series, or for each series and time."""
    import polars as pl  # noqa: PLC0415

    name = estimator.columns_.id or "id"
    ids = pl.Series(name, [n if one.id is None else one.id for n, one in enumerate(data)])
    at_times = estimator.task_name in ("interpolation", "forecasting") or (
        estimator.task_name == "regression" and estimator._in_time
    )
    if not at_times:
        _refuse(("--at", at), ("--quantiles", levels), why="this model says one thing about a whole series.")
    if estimator.task_name == "classification":
        probability = estimator.predict_proba(data)
        columns = {f"probability_{label}": probability[:, n] for n, label in enumerate(estimator.classes_.tolist())}
        return pl.DataFrame({name: ids, "class": estimator.classes_[probability.argmax(1)], **columns})
    if not at_times:
        return pl.DataFrame({name: ids, estimator.columns_.label or "prediction": estimator.predict(data)})
    times = None if at is None else parse_times(at, estimator.columns_.id, estimator.columns_.time)
    return _at_times(estimator, data, ids, times, levels)


def _at_times(
    estimator: Any, data: SeriesSet, ids: pl.Series, times: Any, levels: Sequence[float] | None
) -> pl.DataFrame:
    import numpy as np  # noqa: PLC0415
    import polars as pl  # noqa: PLC0415

    from contiformer.data.times import as_datetimes  # noqa: PLC0415

    if levels is not None and estimator.task_name == "regression":
        raise typer.BadParameter("regression has none.", param_hint="--quantiles")
    parts: list[SeriesSet]
    if levels is not None:
        parts = [estimator.predict(data, at=times, quantiles=levels)]
    elif estimator.task_name != "forecasting" and estimator.law == "gaussian":
        mean, std = estimator.predict(data, at=times, return_std=True)
        parts = [mean, std]
    else:
        parts = [estimator.predict(data, at=times)]
    answered = parts[0]
    stamps = np.concatenate([one.times for one in answered])
    rows = np.repeat(np.arange(len(answered)), answered.lengths)
    table: dict[str, Any] = {ids.name: ids.gather(rows)}
    table[estimator.columns_.time or "time"] = as_datetimes(stamps) if data.schema.dates else stamps
    for part, suffix in zip(parts, ("", "_std"), strict=False):
        stacked = np.concatenate([one.values for one in part])
        table |= {f"{channel}{suffix}": stacked[:, n] for n, channel in enumerate(answered.channels)}
    return pl.DataFrame(table)


def parse_times(text: str, id: str | None = None, time: str | None = None) -> Any:
    """Times from a list, a range, or a file; from a file with ids a dictionary.

    Example:
        >>> parse_times("0,0.5,1"), parse_times("0:1:0.25").tolist()
        ([0.0, 0.5, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0])
    """
    import numpy as np  # noqa: PLC0415

    path = Path(text)
    if path.is_file():
        return _times_in(path, id, time)
    if text.count(":") == 2 and "-" not in text.partition(":")[0][1:]:
        start, stop, step = _numbers(text.split(":"), "--at")
        if step <= 0 or stop < start:
            raise typer.BadParameter(f"{text} has no times: start:stop:step needs a positive step.", param_hint="--at")
        # the last one counts, whatever rounding does to it
        return start + step * np.arange(int(np.floor((stop - start) / step * (1 + 1e-9))) + 1)
    return _times(text.split(","), f"{text!r} is neither a file nor times")


def _times_in(path: Path, id: str | None, time: str | None) -> Any:
    import csv  # noqa: PLC0415

    from contiformer.data.readers.text import read_text  # noqa: PLC0415

    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    header = rows[0]
    if len(header) == 1:
        first = 1 if header[0] == (time or "time") else 0
        return _times([row[0] for row in rows[first:]], f"a row of {path} is no time")
    columns = (id or "id", time or "time")
    if not set(columns) <= set(header):
        raise DataError(f"there are no columns {' and '.join(columns)}", file=path, remedy="give them, or times alone")
    who, when = (header.index(column) for column in columns)
    times: dict[Any, list[str]] = {}
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise DataError(f"{len(row)} fields, the first row has {len(header)}", file=path, row=number)
        times.setdefault(row[who], []).append(row[when])
    named: dict[Any, Any] = {}
    for key, words in times.items():
        named[key] = _times(words, f"a row of {path} is no time")
        if key.lstrip("-").isdigit():
            named[int(key)] = named[key]  # ids that are whole numbers are read as such
    return named


def _times(words: Sequence[str], problem: str) -> Any:
    """Numbers, or dates where the first is one."""
    import datetime as dt  # noqa: PLC0415

    try:
        return [float(word) for word in words]
    except ValueError:
        pass
    try:
        return [dt.datetime.fromisoformat(word.strip()) for word in words]
    except ValueError:
        bad = next((word for word in words if not _is_number(word)), words[0])
        raise typer.BadParameter(
            f"{problem}: {bad.strip()!r} is no number. Pass 0,0.5,1 or start:stop:step or a file.", param_hint="--at"
        ) from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _numbers(words: Sequence[str], option: str) -> list[float]:
    try:
        return [float(word) for word in words]
    except ValueError:
        bad = next(word for word in words if not _is_number(word))
        raise typer.BadParameter(f"{bad!r} is no number.", param_hint=option) from None


def _write(table: pl.DataFrame, output: Path) -> None:
    import io  # noqa: PLC0415

    from contiformer.data.readers.text import write_bytes  # noqa: PLC0415

    packed = io.BytesIO()
    if output.suffix == ".csv":
        table.write_csv(packed)
    elif output.suffix == ".parquet":
        table.write_parquet(packed)
    else:
        table.write_json(packed)
    write_bytes(output, packed.getvalue())
