"""``contiformer predict``: predictions of a trained model as a table."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer

from contiformer.cli.batch import STDIN, Options, score_in_order, score_to_folder
from contiformer.cli.run_folder import load_run, read_source
from contiformer.data import DataError, read_text, write_bytes
from contiformer.data.conversion import TimeKind, as_clock
from contiformer.data.errors import printable
from contiformer.estimators.scoring import OptionError, Scorer, columns_of_run

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
    shard: str | None,
    on_error: str | None,
    block_rows: int | None,
    format: str | None,
    escape_formulas: bool,
    **columns: str | None,
) -> None:
    """Write the predictions for the data ``given`` to ``output`` or stdout."""
    output = None if output == Path(STDIN) else output
    folder = output is not None and (output.is_dir() or not output.suffix)
    options = Options.of(shard, on_error, block_rows, format)
    if output is not None and not folder:
        check_output(output, ENDINGS)
    if format is not None and not folder:
        raise typer.BadParameter("only the parts in a folder have one.", param_hint="--format")
    levels = None if quantiles is None else _numbers(quantiles.split(","), "--quantiles")
    estimator: Any = load_run(run)
    if type is not None:
        columns["type"] = type
    whole = not (folder or is_batch(given) or shard or on_error or block_rows)
    try:
        data = read_source(run, estimator.task_name).inputs(given, estimator, **columns) if whole else None
        roles = columns_of_run(estimator, columns)
        scorer = Scorer(estimator, roles, _ask(at, estimator, data), levels, n)
    except OptionError as error:
        raise typer.BadParameter(error.why, param_hint=f"--{error.option}") from None

    if folder and output is not None:
        asked = {"at": _digest(at), "quantiles": levels, "n": n, "escape_formulas": escape_formulas}

        def write_part(table: pl.DataFrame, path: Path) -> None:
            _write_file(_as_text(table, path.suffix, escape_formulas), path)

        score_to_folder(scorer, run, given, output, options, asked, write_part)
    elif whole:
        write_table(scorer.predict(data), output, escape_formulas=escape_formulas)
    elif output is None:
        lines = _to_stdout()
        score_in_order(scorer, given, options, lambda table: lines(_as_text(table, ".csv", escape_formulas)))
    else:
        tables: list[pl.DataFrame] = []
        score_in_order(scorer, given, options, tables.append)
        write_table(pl.concat(tables) if tables else pl.DataFrame(), output, escape_formulas=escape_formulas)


def write_table(table: pl.DataFrame, output: Path | None, *, escape_formulas: bool = False) -> None:
    """Write a table to a file by its ending, or as CSV to stdout."""
    table = _as_text(table, ".csv" if output is None else output.suffix, escape_formulas)
    if output is None:
        _to_stdout()(table)
        return
    _write_file(table, output)
    names = printable(", ".join(table.columns[:8]))
    typer.echo(f"wrote {output}: {table.height:,} rows of {names}", err=True)


def _as_text(table: pl.DataFrame, ending: str, escape_formulas: bool) -> pl.DataFrame:
    """The table as the format can hold it: Parquet alone has durations."""
    if ending != ".parquet":
        durations = [name for name, kind in table.schema.items() if kind == pl.Duration]
        table = table.with_columns(pl.Series(name, list(map(as_clock, table[name]))) for name in durations)
    return without_formulas(table) if escape_formulas else table


def _write_file(table: pl.DataFrame, path: Path) -> None:
    packed = io.BytesIO()
    writers: dict[str, Any] = {".csv": table.write_csv, ".parquet": table.write_parquet, ".json": table.write_json}
    writers[path.suffix](packed)
    write_bytes(path, packed.getvalue())


def is_batch(given: str) -> bool:
    """Whether the input is stdin, a pattern, or a folder of CSV files, and not one file or a folder of Parquet."""
    path = Path(given)
    if path.is_dir():
        return not any(path.rglob("*.parquet"))
    return given == STDIN or (any(sign in given for sign in "*?[") and not path.exists())


def _ask(at: str | None, estimator: Any, data: Any) -> Any:
    """The times of ``--at``, of the kind of the data, or else of the training."""
    if at is None or estimator.task_name == "events":
        return at
    schema = estimator.schema_ if data is None else data.schema
    return parse_times(at, estimator.columns_.id, estimator.columns_.time, kind=schema.time_kind)


def _digest(at: str | None) -> str | None:
    """The text of ``--at``; of a file a hash of its contents."""
    if at is None or not Path(at).is_file():
        return at
    return f"sha256 {hashlib.sha256(Path(at).read_bytes()).hexdigest()}"


def _to_stdout() -> Callable[[pl.DataFrame], None]:
    """Write tables as one CSV, with one line of column names."""
    header = [True]

    def write(table: pl.DataFrame) -> None:
        text = table.write_csv(include_header=header[0])
        header[0] = False
        sys.stdout.write("\n".join(map(printable, text.split("\n"))) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    return write


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
            problem = f"has {len(row)} fields, the first row has {len(header)}"
            raise DataError(problem, file=path, row=number, remedy="write as many in every row")
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
